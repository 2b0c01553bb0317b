-- Times are whole microseconds of a clock of the shard that never goes back: the server's,
-- and what it was behind when it was found to be. Numbers are exact up to 2^53, which is in 2255.
--   KEYS[1]  hash of the shard: c, packed: see below; n:<digest> the key of each digest that has
--            items, b:<digest> who has claimed it, p:<digest> the dead item of a parked key, <sequence>:<ID>
local H = KEYS[1]
local read = redis.call('TIME')
local now = read[1] * 1000000 + read[2]

-- The index of a shard is this hash and three sorted sets, and can be made anew of its keys. Here are
-- the last time, what the clock was behind, how many items there are, since when the index is the one
-- that it is, how many members the sorted sets should have together, and from when somebody
-- is to make the index whole; 0: it is whole. Earlier releases know of the first three.
local last, off, queued, index, indexed, torn = 0, 0, 0, now, 0, 0
local clock = redis.call('HGET', H, 'c')
if clock then
  last, off, queued, index, indexed, torn = cmsgpack.unpack(clock)
  index, torn = index or 0, torn or 0
  now = now + off
  if now < last then
    off, now = off + last - now, last
  end
end

-- put stores a time, a member of a sorted set each, and removes members.
local function put(set, new, old)
  local by = 0
  if #new > 0 then
    by = redis.call('ZADD', set, unpack(new))
  end
  if #old > 0 then
    by = by - redis.call('ZREM', set, unpack(old))
  end
  indexed = indexed and indexed + by
end

-- tick stores the clock.
local function tick()
  redis.call('HSET', H, 'c', cmsgpack.pack(now, off, queued, index, indexed or false, torn))
end
