-- KEYS[2]  sorted set: digests by when they are due, or their claims end
-- ARGV: channel, shard, worker, how many to name, how long a claim lasts, how many follow to
-- keep, their digests, then those to give up.
-- Answers when the next one is due, in microseconds, or -1, and the keys.
local D, worker, lasts = KEYS[2], ARGV[3], tonumber(ARGV[5])
local keep = tonumber(ARGV[6])
if #ARGV > 6 + keep then
  redis.call('PUBLISH', ARGV[1], ARGV[2] .. ' 0')
end
tick()
for i = 7, #ARGV do
  local d = ARGV[i]
  if redis.call('HGET', H, 'b:' .. d) == worker then
    if i <= 6 + keep then
      redis.call('ZADD', D, 'XX', now + lasts, d)
    else
      redis.call('HDEL', H, 'b:' .. d)
      redis.call('ZADD', D, 'XX', now, d)
    end
  end
end
local answer = {-1}
local max = tonumber(ARGV[4])
if max > 0 then
  for _, d in ipairs(redis.call('ZRANGEBYSCORE', D, '-inf', now, 'LIMIT', 0, max)) do
    local key = redis.call('HGET', H, 'n:' .. d)
    if key then
      redis.call('HSET', H, 'b:' .. d, worker)
      redis.call('ZADD', D, now + lasts, d)
      answer[#answer + 1] = key
    else
      redis.call('ZREM', D, d) -- the server has lost its key
    end
  end
end
local due = redis.call('ZRANGE', D, 0, 0, 'WITHSCORES')
if due[2] then
  answer[1] = math.max(tonumber(due[2]) - now, 0)
end
return answer
