-- probe: channel. Runs every command that locks need, on a key that is gone when it ends, and on a
-- stream that stays only if it was there before. Answers name and error of those that failed.
local key, stream = KEYS[1], KEYS[2] or string.sub(KEYS[1], 1, 8)
local failed = {}
local function try(...)
  local r = redis.pcall(...)
  if type(r) == 'table' and r.err then
    failed[#failed + 1] = string.lower((...))
    failed[#failed + 1] = r.err
  end
end
try('PING')
try('TIME')
try('PUBLISH', ARGV[1], '')
try('HMGET', key, 'p')
try('HEXISTS', key, 'p')
try('EXISTS', stream)
try('GET', key)
try('PTTL', key)
try('PEXPIRE', key, '1000')
try('HDEL', key, 'p')
try('DEL', key)
-- Last, when it is known that the key can be taken away again.
if #failed == 0 then
  try('SET', key, '', 'NX', 'PX', '1000')
  try('DEL', key)
  try('HSET', key, 'p', '')
  try('DEL', key)
  local there = redis.call('EXISTS', stream) == 1
  try('XADD', stream, 'MAXLEN', '~', '1', '*', '', '')
  if not there then try('DEL', stream) end
end
return failed
