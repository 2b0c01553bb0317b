-- The state of one key, and what the operations on it share.
--   KEYS[2]  sorted set: digests by when they are due, or their claims end
--   KEYS[3]  sorted set: digests by when their first items were appended
--   KEYS[4]  sorted set: digests of parked keys, by since when
--   KEYS[5]  hash of the key
--   KEYS[6]  list of its items that have not ended, packed: sequence, ID, appended, trace, payload
--   KEYS[7]  hash: what has become of each ID: w<sequence>, or d (done) or x (dead) and
--            <sequence>:<attempts>:<ended>
--   KEYS[8]  list of those that have ended, in that order: <sequence>:<ID>
--   ARGV[1]  digest of the key
--   ARGV[2]  channel
--   ARGV[3]  shard
--   ARGV[4]  for how long what has ended is kept
--   ARGV[5]  how many are kept
-- Tokens exceed what a Lua number holds exactly, so they are strings of 19 digits.
local D, O, P, K, Q, I, E = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local d = ARGV[1]
local keepFor, keepCount = tonumber(ARGV[4]), tonumber(ARGV[5])

local fields = {'token', 'run', 'over', 'lseq', 'latt', 'begun', 'next', 'seq', 'head', 'att', 'len', 'parked', 'prune'}
local k, was = {token = '0000000000000000000'}, {} -- as it is to be, and as it was stored
local known = false
do
  local got = redis.call('HMGET', K, unpack(fields))
  known = got[1] ~= false
  for i, f in ipairs(fields) do
    if f ~= 'token' then
      k[f] = tonumber(got[i] or '0')
    elseif known then
      k[f] = got[i]
    end
    if known then
      was[f] = k[f]
    end
  end
end

-- damaged reports whether parts of the key are gone.
local function damaged()
  return redis.call('LLEN', Q) ~= k.len or not known and redis.call('ZSCORE', D, d) ~= false
end

local lost = 'DAMAGED the server has lost a part of the queue'

-- save stores what has changed. It comes last.
local claimed = nil -- by whom
local function save()
  local args = {}
  for _, f in ipairs(fields) do
    if k[f] ~= was[f] then
      args[#args + 1] = f
      args[#args + 1] = k[f]
    end
  end
  if #args > 0 then
    redis.call('HSET', K, unpack(args))
  end
  local more = k.len - (was.len or 0)
  if more ~= 0 and claimed then
    redis.call('HSET', H, 'len', queued + more, 'b:' .. d, claimed)
  elseif more ~= 0 then
    redis.call('HSET', H, 'len', queued + more)
  elseif claimed then
    redis.call('HSET', H, 'b:' .. d, claimed)
  end
end

-- first returns the first item.
local item = nil
local function first()
  if not item and k.len > 0 then
    local raw = redis.call('LINDEX', Q, 0)
    if raw then
      item = cmsgpack.unpack(raw)
    end
  end
  return item
end

-- publish tells listeners when the key is due. It comes before all writes: without the right
-- to it, nothing is done.
local function publish(at)
  redis.call('PUBLISH', ARGV[2], ARGV[3] .. ' ' .. string.format('%.0f', math.max(at - now, 0)))
end

-- settle gives up the claim of a key that has no run, and schedules it.
local function settle()
  if k.len == 0 then
    redis.call('HDEL', H, 'b:' .. d, 'n:' .. d)
    redis.call('ZREM', D, d)
    redis.call('ZREM', O, d)
    local ms = math.ceil(keepFor / 1000)
    for _, key in ipairs({K, I, E}) do
      redis.call('PEXPIRE', key, ms)
    end
    return
  end
  redis.call('HDEL', H, 'b:' .. d)
  redis.call('ZADD', O, first()[3], d)
  if k.parked == 1 then
    redis.call('ZREM', D, d)
  else
    redis.call('ZADD', D, math.max(now, k.next), d)
  end
end

-- finish removes the first item from the queue; state is 'd' or 'x'.
local kept = 0 -- how many have ended and are kept, if one has ended just now
local function finish(state)
  local raw = redis.call('LPOP', Q)
  local ended = item or cmsgpack.unpack(raw)
  redis.call('HSET', I, ended[2], string.format('%s%.0f:%d:%.0f', state, ended[1], k.att, now))
  kept = redis.call('RPUSH', E, string.format('%.0f:', ended[1]) .. ended[2])
  k.len, k.head, k.att, item = k.len - 1, ended[1] + 1, 0, nil
end

-- kill makes the first item dead, and returns how many have died with it.
local function kill(onDead)
  k.run = 0
  if onDead == 'hold' then
    k.parked = 1
    local dead = first()
    redis.call('HSET', I, dead[2], string.format('x%.0f:%d:%.0f', dead[1], k.att, now))
    redis.call('ZADD', P, now, d)
    redis.call('HSET', H, 'p:' .. d, string.format('%.0f:', dead[1]) .. dead[2])
    return 1
  end
  local died = 1
  finish('x')
  while onDead == 'cascade' and k.len > 0 do
    finish('x')
    died = died + 1
  end
  return died
end

-- prune forgets what has ended and is kept no more, a hundred at most. Before k.prune there is
-- nothing that has been kept for long enough.
local function prune()
  if now < k.prune and kept <= keepCount then
    return
  end
  local count = redis.call('LLEN', E)
  for _ = 1, 100 do
    local oldest = redis.call('LINDEX', E, 0)
    if not oldest then
      k.prune = now + keepFor
      return
    end
    local seq, id = string.match(oldest, '^(%d+):(.*)$')
    local state = redis.call('HGET', I, id)
    local same = state and string.match(state, '^[dx](%d+):') == seq
    local ended = same and tonumber(string.match(state, ':(%d+)$')) or 0
    if count <= keepCount and now - ended < keepFor then
      k.prune = ended + keepFor
      return
    end
    redis.call('LPOP', E)
    count = count - 1
    if same then
      redis.call('HDEL', I, id)
    end
  end
end

-- begin begins the first item, if it is due. It returns the item and how many have died.
local function begin(r)
  local died = 0
  while k.len > 0 and k.parked == 0 do
    if k.run == 0 and k.att >= r.attempts then
      died = died + kill(r.onDead)
    elseif k.run == 0 and now < k.next then
      break
    else
      if k.run == 0 then -- otherwise the answer was lost
        k.att = k.att + 1
      end
      k.run, k.over, k.begun = 1, 0, now
      if r.spacing > 0 then
        k.next = now + r.spacing + r.grace
      end
      claimed = r.worker
      redis.call('ZADD', D, now + r.lasts, d)
      redis.call('ZADD', O, first()[3], d)
      return first(), died
    end
  end
  settle()
  return nil, died
end

-- answer is what Begin and End return.
local function answer(begun, died)
  local wait = 0
  if not begun and k.len > 0 and k.parked == 0 then
    wait = math.max(k.next - now, 0)
  end
  if not begun then
    return {1, k.len, k.parked, died, wait}
  end
  return {1, k.len, k.parked, died, wait, begun[1], k.att, begun[2], begun[5], begun[4], math.max(now - begun[3], 0)}
end

-- rules are those of the holder: ARGV from 6 on are token, worker, how long a claim lasts,
-- grace, spacing, attempts, what a death means.
local function rules()
  return {
    worker = ARGV[7], lasts = tonumber(ARGV[8]), grace = tonumber(ARGV[9]),
    spacing = tonumber(ARGV[10]), attempts = tonumber(ARGV[11]), onDead = ARGV[12],
  }
end
