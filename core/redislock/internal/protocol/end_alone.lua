if ARGV[2] == '0' and not ARGV[3] then
  local read = redis.call('HMGET', key, 'o', 'x', 'z')
  if read[1] == ARGV[1] then
    local x = read[2] + 0
    if x > now and x <= now + LINGER then
      local z = ARGV[1] .. string.sub(read[3] or '', 1, 48)
      -- A server out of memory refuses this; the general way knows what then helps.
      if type(redis.pcall('HSET', key, 'o', '', 'z', z)) == 'number' then return 1 end
    end
  end
end
