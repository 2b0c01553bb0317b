-- probe: channel. Runs every command that the lock's scripts run and that a
-- subscription needs, on a key that is gone when it ends. Answers name and error
-- of those that failed.
local key = KEYS[1]
local failed = {}
local function try(...)
  local r = redis.pcall(...)
  if type(r) == 'table' and r.err then
    failed[#failed + 1] = string.lower((...))
    failed[#failed + 1] = r.err
  end
end
try('PING')
try('HMGET', key, 'p')
try('HGET', key, 'p')
try('HEXISTS', key, 'p')
try('TIME')
try('PUBLISH', ARGV[1], '')
try('PEXPIRE', key, '1000')
try('HDEL', key, 'p')
-- Last, when it is known that the key can be taken away again.
if #failed == 0 then
  try('HSET', key, 'p', '')
  try('HDEL', key, 'p')
end
return failed
