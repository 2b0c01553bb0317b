-- ARGV[6]  key
-- ARGV[7]  ID of the item
-- ARGV[8]  payload
-- ARGV[9]  trace
-- ARGV[10] how many items the key may have
-- Answers {0} if the queue is full, or {1, sequence, items ahead}.
if damaged() then
  return redis.error_reply(lost)
end
local old = redis.call('HGET', I, ARGV[7])
if old then
  local state, seq, ended = string.sub(old, 1, 1), tonumber(string.match(old, '^.(%d+)')), tonumber(string.match(old, ':(%d+)$') or '0')
  if state == 'w' then
    return {1, seq, seq - k.head}
  end
  if now - ended < keepFor or k.parked == 1 and seq == k.head then
    return {1, seq, 0}
  end
end
if k.len >= tonumber(ARGV[10]) then
  return {0}
end
if k.len == 0 then
  publish(math.max(now, k.next))
end
tick()
if not known then
  k.seq = now - 1
end
k.seq = k.seq + 1
redis.call('RPUSH', Q, cmsgpack.pack({k.seq, ARGV[7], now, ARGV[9], ARGV[8]}))
redis.call('HSET', I, ARGV[7], string.format('w%.0f', k.seq))
k.len = k.len + 1
if k.len == 1 then
  k.head = k.seq
  redis.call('HSET', H, 'n:' .. d, ARGV[6])
  redis.call('PERSIST', K)
  redis.call('PERSIST', I)
  redis.call('PERSIST', E)
  settle()
end
prune()
save()
return {1, k.seq, k.len - 1}
