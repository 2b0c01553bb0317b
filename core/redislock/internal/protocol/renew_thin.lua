-- renew of a lease that nobody waits for. From now on the key says which token the lease has.
-- A server out of memory refuses a script's first write if that needs memory: PEXPIRE needs none.
if ARGV[3] == '0' then
  local value = redis.pcall('GET', KEYS[1])
  if type(value) == 'string' and string.sub(value, 1, 16) == ARGV[1] then
    local token, length, rest = string.match(value, '^1:(%d+):0:(%d+)(:.*)$', 17)
    local left = redis.call('PTTL', KEYS[1])
    if token and left > 0 then
      local ttl = ARGV[2] + 0
      left = math.max(math.min(left, length), ttl)
      if token == '0' then token = ARGV[4] end
      if ttl > length + 0 then length = ARGV[2] end
      redis.call('PEXPIRE', KEYS[1], left)
      local said = ARGV[1] .. '1:' .. token .. ':0:' .. length .. rest
      if said ~= value then redis.call('SET', KEYS[1], said, 'KEEPTTL') end
      return token
    end
  end
end
