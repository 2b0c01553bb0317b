-- script.lua for many keys at once: ARGV has an owner for each, and how long at the end.
local replies = {}
for i, key in ipairs(KEYS) do
  local before = redis.call('HMGET', key, 'owner', 'token', 'until')
  local now = redis.call('TIME')
  local token = now[1] .. string.format('%06d', now[2])
  redis.call('HSET', key, 'owner', ARGV[i], 'token', token)
  redis.call('PEXPIRE', key, ARGV[#ARGV])
  replies[i] = {ARGV[i], token, before[1]}
end
return replies
