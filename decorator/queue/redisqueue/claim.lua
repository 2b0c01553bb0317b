-- KEYS[2]  sorted set: digests by when they are due, or their claims end
-- KEYS[3], KEYS[4]  the other sorted sets of the index
-- ARGV: channel, shard, worker, how many to name, how long a claim lasts, the index that the caller has
-- made whole, how many follow to keep, their digests, then those to give up.
-- Answers when the next one is due, in microseconds, or -1, the index that the caller is to make whole,
-- or 0, and the keys.
local D, worker, lasts = KEYS[2], ARGV[3], tonumber(ARGV[5])
local keep = tonumber(ARGV[7])
if #ARGV > 7 + keep then
  redis.call('PUBLISH', ARGV[1], ARGV[2] .. ' 0')
end

-- anew begins an index in which no key is.
local function anew()
  index, queued, torn = math.max(now, index + 1), 0, now
end

local members = redis.call('ZCARD', D) + redis.call('ZCARD', KEYS[3]) + redis.call('ZCARD', KEYS[4])
if indexed and indexed ~= members then
  anew() -- the server has lost a part of the index
end
indexed = members
if tonumber(ARGV[6]) == index then
  torn = 0
end
for i = 8, #ARGV do
  local d = ARGV[i]
  if redis.call('HGET', H, 'b:' .. d) == worker then
    if i <= 7 + keep then
      redis.call('ZADD', D, 'XX', now + lasts, d)
    else
      redis.call('HDEL', H, 'b:' .. d)
      redis.call('ZADD', D, 'XX', now, d)
    end
  end
end
local answer = {-1, 0}
local max = tonumber(ARGV[4])
local due = max > 0 and redis.call('ZRANGEBYSCORE', D, '-inf', now, 'LIMIT', 0, max) or {}
if #due > 0 then
  local fields, claims, scores, gone = {}, {}, {}, {}
  for i, d in ipairs(due) do
    fields[i] = 'n:' .. d
  end
  for i, key in ipairs(redis.call('HMGET', H, unpack(fields))) do
    local d = due[i]
    if key then
      claims[#claims + 1], claims[#claims + 2] = 'b:' .. d, worker
      scores[#scores + 1], scores[#scores + 2] = now + lasts, d
      answer[#answer + 1] = key
    else
      gone[#gone + 1] = d -- the server has lost its key
    end
  end
  if #claims > 0 then
    redis.call('HSET', H, unpack(claims))
  end
  put(D, scores, gone)
  if #gone > 0 then
    anew()
  end
end
if torn > 0 and torn <= now then
  answer[2], torn = index, now + lasts -- another one begins if the caller has not ended by then
end
tick()
local next = redis.call('ZRANGE', D, 0, 0, 'WITHSCORES')
if next[2] then
  answer[1] = math.max(tonumber(next[2]) - now, 0)
end
return answer
