-- ARGV: token, ttl of the claim in ms. Answers {0} if superseded, {1} without a value, or
-- {1, ms that it has left, value}.
if stands and (token > ARGV[1] or token == ARGV[1] and stage == 'i') then
  return {0}
end
claimed = math.max(claimed, now + ARGV[2])
if ends > now then
  redis.call('SETRANGE', KEYS[1], 0, header('l', ARGV[1], claimed, ends, ttl))
  redis.call('PEXPIREAT', KEYS[1], math.max(claimed, ends))
  return {1, ends - now, redis.call('GETRANGE', KEYS[1], 63, -1)}
end
redis.call('SET', KEYS[1], header('l', ARGV[1], claimed, 0, 0), 'PXAT', claimed)
return {1}
