-- renew of a lease that is held alone and live, without share.
if ARGV[3] == '0' then
  local read = redis.call('HMGET', key, 'o', 't', 'x', 'l')
  local alone = read[1] == ARGV[1]
  if alone or read[1] == ARGV[1] .. WAITING then
    local t, x, l, ttl = read[2] + 0, read[3] + 0, read[4], ARGV[2] + 0
    local till = now + ttl
    if x > now and till > x then
      if l + 0 < ttl then l = ARGV[2] end
      if till > (t - t % (STEP * 1000)) / 1000 + 2 * STEP then
        redis.call('PEXPIRE', key, ttl + LINGER)
      end
      -- As in the fast path of end.
      if type(redis.pcall('HSET', key, 'x', till, 'l', l)) == 'number' then
        if alone then return read[2] end
        return {'ok', read[2], tonumber(redis.call('HGET', key, 'c'))}
      end
    end
  end
end
