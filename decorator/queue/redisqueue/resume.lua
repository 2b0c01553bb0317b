-- ARGV[6]  ID
-- ARGV[7]  go on, drop or repeat
-- Answers 1 if the key goes on, 0 if it is not parked with that item, -1 if there is none.
if damaged() then
  return redis.error_reply(lost)
end
local old = redis.call('HGET', I, ARGV[6])
if not old then
  return -1
end
local ended = tonumber(string.match(old, ':(%d+)$') or now)
if k.parked ~= 1 or first()[2] ~= ARGV[6] then
  if now - ended >= keepFor then
    return -1
  end
  return 0
end
publish(math.max(now, k.next))
tick()
k.parked = 0
redis.call('ZREM', P, d)
redis.call('HDEL', H, 'p:' .. d)
if ARGV[7] == 'repeat' then
  k.att = 0
  redis.call('HSET', I, ARGV[6], string.format('w%.0f', k.head))
elseif ARGV[7] == 'drop' then
  finish('x')
  redis.call('HDEL', I, ARGV[6])
else
  finish('x')
end
settle()
prune()
save()
return 1
