if (ARGV[4] == 'cw' or ARGV[4] == 'c') and not ARGV[5] then
  local read = redis.call('HMGET', key, 'o', 't', 'z')
  if (read[1] or '') == '' and not (read[3] and string.find(read[3], ARGV[1], 1, true)) then
    local old, t, length = (read[2] or 0) + 0, us, ARGV[3] + 0
    if old >= us then
      t = old + 1
      stamp = string.format('%.0f', t)
    end
    redis.call('HSET', key, 'o', ARGV[1], 'p', ARGV[2], 't', stamp, 'x', now + length, 'l', ARGV[3])
    local step = t - t % (STEP * 1000)
    if length > STEP or old < step then
      redis.call('PEXPIRE', key, math.max(length, step / 1000 + 2 * STEP - now) + LINGER)
    end
    return stamp
  end
end
