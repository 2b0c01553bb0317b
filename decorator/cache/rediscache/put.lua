-- ARGV: token, value, its ttl in ms, channel, key as announced. Answers whether it is
-- stored.
if not stands or token ~= ARGV[1] or stage == 'i' then
  return 0
end
if stage == 's' then
  return 1
end
ends = now + ARGV[3]
redis.call('PUBLISH', ARGV[4], ARGV[5]) -- first: without the right to, nothing is done
redis.call('SET', KEYS[1], header('s', token, claimed, ends, ARGV[3]) .. ARGV[2], 'PXAT', math.max(claimed, ends))
return 1
