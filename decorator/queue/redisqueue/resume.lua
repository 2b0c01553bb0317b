-- ARGV[a + 1]  ID
-- ARGV[a + 2]  go on, drop or repeat
-- Answers 1 if the key goes on, 0 if it is not parked with that item, -1 if there is none.
local function op()
  whole()
  local id, how = ARGV[a + 1], ARGV[a + 2]
  local old = known(id)
  if not old then
    return -1
  end
  local ended = tonumber(string.match(old, ':(%d+)$') or now)
  if k.parked ~= 1 or first()[2] ~= id then
    if now - ended >= keepFor then
      return -1
    end
    return 0
  end
  publish(math.max(now, k.next))
  k.parked = 0
  held[d], set['p:' .. d] = false, false
  if how == 'repeat' then
    k.att = 0
    redis.call('HSET', I, 'i' .. id, string.format('w%.0f', k.head))
  else
    finish('x')
    if how == 'drop' then
      redis.call('HDEL', I, 'i' .. id)
    end
  end
  settle()
  prune()
  save()
  return 1
end
