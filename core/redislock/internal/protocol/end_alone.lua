local read = redis.call('HMGET', key, 'o', 't', 'x', 'c', 'z')
if read[1] == ARGV[1] and (read[4] or '0') == '0' and ARGV[2] == '0' and not ARGV[3] then
  local x = read[3] + 0
  if x > now and x <= now + LINGER then
    local z = ARGV[1] .. string.sub(read[5] or '', 1, 48)
    -- A server out of memory refuses this; the general way knows what then helps.
    if type(redis.pcall('HSET', key, 'o', '', 'z', z)) == 'number' then return read[2] end
  end
end
