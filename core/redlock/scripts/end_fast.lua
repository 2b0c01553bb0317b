-- end of a live vote at which nobody waits, without keep. A server out of memory refuses the
-- write here; the general path copes with that. Scripts of other releases look at a though nobody
-- has the vote.
if ARGV[2] == '0' then
  local owner = ARGV[1]
  local read = redis.call('HMGET', key, 'o', 'x', 'n', 'z')
  local z = read[4] or ''
  if read[1] == owner and read[2] + 0 > now and not string.find(z, owner, 1, true)
    and ((read[3] or '0') == '0' or redis.call('ZCARD', queue) == 0)
    and type(redis.pcall('HSET', key, 'o', '', 'x', '0', 'l', '0', 'a', '0', 'z', string.sub(owner .. z, 1, 128))) == 'number' then
    return us
  end
end
