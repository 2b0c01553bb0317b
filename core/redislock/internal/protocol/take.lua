-- take: value, ttl. It is SET with NX and XADD in one, for a Cluster, whose client may send the two on
-- to different servers, in any order. It answers the ID of what is drawn; 1 if the key is here and
-- the stream is not, for the slot moves; and nil if the key is taken.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
local stream = string.sub(KEYS[1], 1, 8)
local id = redis.pcall('XADD', stream, 'NOMKSTREAM', 'MAXLEN', '~', '1', '*', '', '')
if not id then -- see begin
  local time = redis.call('TIME')
  local ms = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  id = redis.pcall('XADD', stream, 'MAXLEN', '~', '1', ms .. '-' .. math.floor(time[2] % 1000 / 2), '', '')
end
return type(id) == 'table' and 1 or id
