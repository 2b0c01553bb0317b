if ARGV[5] == '1' and ARGV[7] == '1' and (read[1] or '') == '' and (read[9] or '0') == '0'
  and not string.find(read[6] or '', ARGV[1], 1, true) then
  local t = text(math.max(tonumber(read[3] or 0) + 1, us))
  redis.call('HSET', key, 'o', ARGV[1], 'p', ARGV[2], 't', t, 'x', text(now + ARGV[3]), 'l', ARGV[3])
  redis.call('PEXPIRE', key, text(LINGER + ARGV[3]))
  return {'granted', t, 0, 0, tonumber(ARGV[3]), 0}
end
