-- ARGV[a + 1]  key
-- ARGV[a + 2]  ID of the item
-- ARGV[a + 3]  payload
-- ARGV[a + 4]  trace
-- Answers {0} if the queue is full, or {1, sequence, items ahead}.
local function op()
  whole()
  local id = ARGV[a + 2]
  local old = known(id)
  if old then
    local state, seq, ended = string.sub(old, 1, 1), tonumber(string.match(old, '^.(%d+)')), tonumber(string.match(old, ':(%d+)$') or '0')
    if state == 'w' then
      return {1, seq, seq - k.head}
    end
    if now - ended < keepFor or k.parked == 1 and seq == k.head then
      return {1, seq, 0}
    end
  end
  if k.len >= tonumber(ARGV[6]) then
    return {0}
  end
  if k.len == 0 then
    publish(math.max(now, k.next))
  end
  if not was then
    k.seq, k.prune = now - 1, now + keepFor
    k.tail = now
  end
  k.seq = k.seq + 1
  if k.index ~= index then
    set['n:' .. d] = ARGV[a + 1]
  end
  local added = {k.seq, id, now, ARGV[a + 4], ARGV[a + 3]}
  redis.call('RPUSH', Q, cmsgpack.pack(added))
  local seq = string.format('%.0f', k.seq)
  k.len = k.len + 1
  if k.len > 1 then
    redis.call('HSET', I, 'i' .. id, 'w' .. seq, 's' .. seq, id)
  else
    redis.call('HSET', I, 'i' .. id, 'w' .. seq, 's' .. seq, id, 'n', ARGV[a + 1])
    redis.call('PERSIST', I)
    k.head, item = k.seq, added
    set['n:' .. d] = ARGV[a + 1]
    if k.fallen == 0 then
      settle()
    else
      since[d] = now -- it is due already
    end
  end
  prune()
  save()
  return {1, k.seq, k.len - 1}
end
