-- probe: channel. Runs every command that the other scripts run, on keys that are gone
-- when it ends. Answers the name and the error of those that failed.
local failed = {}
local function try(...)
  local r = redis.pcall(...)
  if type(r) == 'table' and r.err then
    failed[#failed + 1] = string.lower((...))
    failed[#failed + 1] = r.err
  end
end
local key, queue, marker = KEYS[1], KEYS[2], KEYS[3]
try('TIME')
try('HMGET', key, 'o')
try('HGET', key, 'o')
try('ZRANGE', queue, 0, 0)
try('ZCARD', queue)
try('ZSCORE', queue, 'o')
try('PEXPIRE', key, '1000')
try('HDEL', key, 'o')
try('ZREM', queue, 'o')
try('GET', marker)
try('PTTL', marker)
try('PUBLISH', ARGV[1], '')
-- Last, when it is known that the keys can be taken away again.
if #failed == 0 then
  try('HSET', key, 'o', '')
  try('HDEL', key, 'o')
  try('ZADD', queue, 'NX', '1', 'o')
  try('ZREM', queue, 'o')
  try('SET', marker .. ':probe', '', 'PX', '1')
end
return failed
