-- ARGV: channel, key as announced. A copy of the value may be somewhere even if there is
-- none here.
redis.call('PUBLISH', ARGV[1], ARGV[2]) -- first: without the right to, nothing is done
if stands then
  local kept = redis.pcall('SET', KEYS[1], header('i', token, claimed, 0, 0), 'PXAT', claimed)
  if not kept.err then
    return 1
  end
end
redis.call('DEL', KEYS[1]) -- which a server that is out of memory allows
return 1
