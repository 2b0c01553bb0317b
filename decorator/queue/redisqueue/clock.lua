-- Times are whole microseconds of a clock of the shard that never goes back: the server's,
-- and what it was behind when it was found to be. Numbers are exact up to 2^53, which is in 2255.
--   KEYS[1]  hash of the shard: c, packed: the last time, what the clock was behind, how many items
--            there are; n:<digest> the key of each digest that has items, b:<digest> who has
--            claimed it, p:<digest> the dead item of a parked key, <sequence>:<ID>
local H = KEYS[1]
local read = redis.call('TIME')
local now = read[1] * 1000000 + read[2]
local last, off, queued = 0, 0, 0
local clock = redis.call('HGET', H, 'c')
if clock then
  last, off, queued = cmsgpack.unpack(clock)
  now = now + off
  if now < last then
    off, now = off + last - now, last
  end
end
