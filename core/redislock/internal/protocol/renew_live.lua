local read = redis.call('HMGET', key, 'o', 't', 'x', 'c', 'l')
if read[1] == ARGV[1] and ARGV[3] == '0' then
  local x, old, l = now + ARGV[2], read[3] + 0, read[5]
  if old > now and x > old and x - x % STEP == old - old % STEP then
    if l + 0 < ARGV[2] + 0 then l = ARGV[2] end
    if type(redis.pcall('HSET', key, 'x', x, 'l', l)) == 'number' then
      if (read[4] or '0') == '0' then return read[2] end
      return {'ok', read[2], tonumber(read[4])}
    end
  end
end
