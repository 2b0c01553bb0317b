-- KEYS[2]  sorted set: digests by when their first items were appended
-- KEYS[3]  sorted set: digests of parked keys
-- Answers {items, age of the oldest that is the first of its key, parked keys}.
local age, oldest = 0, redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
if oldest[2] then
  age = math.max(now - tonumber(oldest[2]), 1)
end
return {queued, age, redis.call('ZCARD', KEYS[3])}
