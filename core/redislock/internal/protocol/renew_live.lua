if read[1] == ARGV[1] and ARGV[3] == '0' then
  local x, l, ttl = tonumber(read[4]), tonumber(read[5]), tonumber(ARGV[2])
  if x > now and x <= now + l and now + ttl > x then
    redis.call('PEXPIRE', key, text(LINGER + ttl))
    redis.call('HSET', key, 'x', text(now + ttl), 'l', text(math.max(l, ttl)))
    return {'ok', read[3], tonumber(read[9] or 0)}
  end
end
