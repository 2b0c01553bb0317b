-- Times are whole microseconds of a clock of the shard that never goes back: the server's,
-- and what it was behind when it was found to be. Numbers are exact up to 2^53, which is in 2255.
--   KEYS[1]  hash of the shard: last and off of the clock, len: items in the shard,
--            n:<digest> the key of each digest that has items, b:<digest> who has
--            claimed it, p:<digest> the dead item of a parked key, <sequence>:<ID>
local H = KEYS[1]
local read = redis.call('TIME')
local clock = redis.call('HMGET', H, 'last', 'off', 'len')
local last, off, queued = tonumber(clock[1] or '0'), tonumber(clock[2] or '0'), tonumber(clock[3] or '0')
local now = read[1] * 1000000 + read[2] + off
local behind = now < last
if behind then
  off, now = off + last - now, last
end

-- tick notes the time, before anything else is written.
local function tick()
  if behind then
    redis.call('HSET', H, 'last', now, 'off', off)
  else
    redis.call('HSET', H, 'last', now)
  end
end
