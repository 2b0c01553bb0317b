local read = redis.call('HMGET', key, 'o', 't', 'x', 'c', 'z')
if ARGV[5] == '1' and ARGV[7] == '1' and (read[1] or '') == '' and (read[4] or '0') == '0'
  and not (read[5] and string.find(read[5], ARGV[1], 1, true)) then
  local x, old = now + ARGV[3], (read[3] or 0) + 0
  if read[2] and read[2] + 0 >= us then stamp = string.format('%.0f', read[2] + 1) end
  redis.call('HSET', key, 'o', ARGV[1], 'p', ARGV[2], 't', stamp, 'x', x, 'l', ARGV[3])
  if x - x % STEP ~= old - old % STEP then
    redis.call('PEXPIRE', key, x - x % STEP + STEP + LINGER - now)
  end
  return stamp
end
