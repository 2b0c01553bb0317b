if read[1] == ARGV[1] and (read[9] or '0') == '0' and ARGV[2] == '0' and not ARGV[3] then
  local x = tonumber(read[4])
  if x > now and x <= now + read[5] then
    redis.call('PEXPIRE', key, LINGER)
    redis.call('HSET', key, 'o', '', 'p', '', 'z', ARGV[1] .. string.sub(read[6] or '', 1, 48))
    return {'ended', read[3], 0, 0, '', 0, 0, '0'}
  end
end
