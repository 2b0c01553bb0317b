-- take: value, ttl. It is SET with NX and XADD in one, for a Cluster, whose client may send the two on
-- to different servers, in any order. It answers the ID of what is drawn; 1 if the key is here and
-- the stream is not, for the slot moves; and nil if the key is taken.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
local id = drawn(redis.pcall, string.sub(KEYS[1], 1, 8))
return type(id) == 'table' and 1 or id
