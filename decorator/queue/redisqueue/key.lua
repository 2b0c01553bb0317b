-- The state of a key, and what the operations on it share. A script runs one operation
-- several times, each time on a key and with arguments of its own.
--   KEYS[2]  sorted set: digests by when they are due, or their claims end
--   KEYS[3]  sorted set: digests by when their first items were appended
--   KEYS[4]  sorted set: digests of parked keys, by since when
-- and for each time
--   K  what is known of the key, packed
--   Q  list of its items that have not ended, packed: sequence, ID, appended, trace, payload. Before
--      them are those that have died with another and were not removed yet.
--   I  hash: i<ID> what has become of it: w<sequence>, or d (done) or x (dead) and
--      <sequence>:<attempts>:<ended>; s<sequence> its ID; n the key
--   ARGV[1]  how many arguments there are each time
--   ARGV[2]  channel
--   ARGV[3]  shard
--   ARGV[4]  for how long what has ended is kept
--   ARGV[5]  how many are kept
--   ARGV[6]  how many items a key may have
--   ARGV[7]  spacing
--   ARGV[8]  attempts
--   ARGV[9]  what a death means
-- and for each time
--   ARGV[a]  digest of the key
-- Tokens exceed what a Lua number holds exactly, so they are strings of 19 digits.
local D, O, P = KEYS[2], KEYS[3], KEYS[4]
local keepFor, keepCount = tonumber(ARGV[4]), tonumber(ARGV[5])
local a, d, K, Q, I
local k, was, head, len -- the state as it is to be; as it was stored, false if there is none; parts of that
local item              -- the first one, if it was read
local most, mostBytes = 500, 1048576 -- what a script may still remove that has died with another
local swept = 0         -- how many it has removed

-- What is to be stored in H, D, O and P is gathered, and stored at the end: false removes it.
local set, due, since, held = {}, {}, {}, {}
local changed = false

-- load reads the state of the key of the n-th time, from 0.
local function load(n)
  local token
  a = 10 + n * ARGV[1]
  d, K, Q, I = ARGV[a], KEYS[5 + 3 * n], KEYS[6 + 3 * n], KEYS[7 + 3 * n]
  k, item = {token = '0000000000000000000', run = 0, over = 0, lseq = 0, latt = 0, begun = 0, next = 0, seq = 0, head = 0, tail = 0, att = 0, len = 0, parked = 0, prune = 0}, nil
  was = redis.call('GET', K)
  if was then
    k.token, k.run, k.over, k.lseq, k.latt, k.begun, k.next, k.seq, k.head, k.tail, k.att, k.len, k.parked, k.prune, k.fallen, k.ended, k.index, token = cmsgpack.unpack(was)
    k.token = k.token or token
  end
  -- Earlier releases know nothing of these: how many items at the head of the list are dead, when
  -- the last item has ended, and the index that the key is in. While there are dead items they find
  -- no token, and fail.
  k.fallen, k.ended, k.index = k.fallen or 0, k.ended or 0, k.index or 0
  head, len = k.head, k.len
end

-- first and enter are below.
local first, enter

-- save stores the state. It comes last.
local function save()
  changed = true
  if k.index ~= index then
    if index > 0 then
      len = 0 -- it is not counted in this index
    end
    enter()
  end
  queued = queued + k.len - len
  local is = cmsgpack.pack(k.fallen == 0 and k.token, k.run, k.over, k.lseq, k.latt, k.begun, k.next, k.seq, k.head, k.tail, k.att, k.len, k.parked, k.prune, k.fallen, k.ended, k.index, k.fallen > 0 and k.token)
  if k.len + k.fallen > 0 then
    redis.call('SET', K, is)
  elseif is ~= was then
    local ms = math.ceil(keepFor / 1000)
    redis.call('PEXPIRE', I, ms) -- never after K
    redis.call('SET', K, is, 'PX', ms)
  end
end

-- lost is raised when parts of the key are gone.
local lost = redis.error_reply('DAMAGED the server has lost a part of the queue')

-- whole raises lost if the state is gone and the key is known otherwise, or the list is not as long as
-- the state says.
local function whole()
  if redis.call('LLEN', Q) ~= k.len + k.fallen or not was and (redis.call('ZSCORE', D, d) or redis.call('HGET', I, 'n')) then
    error(lost)
  end
end

-- known returns what has become of an item, and raises lost if that is gone: nobody knows then which
-- IDs there were. What is kept of an idle key expires; there it is looked at until shortly before.
local function known(id)
  local at = k.len > 0 and k.head or k.head - 1
  local old, there = unpack(redis.call('HMGET', I, 'i' .. id, string.format('s%.0f', at)))
  if not there and (k.len > 0 or k.tail < k.head and now - k.ended < keepFor - math.min(keepFor / 2, 1000000)) then
    error(lost)
  end
  if old and string.sub(old, 1, 1) == 'w' and tonumber(string.sub(old, 2)) < k.head then
    return string.format('x%s:0:%.0f', string.sub(old, 2), k.ended) -- it has died with another
  end
  return old
end

-- first returns the first item.
function first()
  if not item then
    local raw = redis.call('LINDEX', Q, k.fallen)
    item = raw and cmsgpack.unpack(raw)
    if not item or item[1] ~= k.head then
      error(lost)
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
    set['b:' .. d], since[d] = false, false
    if k.fallen == 0 then
      set['n:' .. d], due[d] = false, false
    else
      due[d] = now
    end
    return
  end
  if len > 0 then
    set['b:' .. d] = false
  end
  if k.head ~= head or len == 0 then
    since[d] = first()[3]
  end
  due[d] = k.parked == 0 and math.max(now, k.fallen == 0 and k.next or 0)
end

-- enter puts a key into an index that does not have it, as far as that was not gathered already.
function enter()
  if k.len + k.fallen > 0 then
    local name = set['n:' .. d] or redis.call('HGET', I, 'n') or redis.call('HGET', H, 'n:' .. d)
    if not name then
      return -- an earlier release has appended the items, and the index with the key is lost
    end
    set['n:' .. d] = name
    if due[d] == nil and k.parked == 0 and not redis.call('ZSCORE', D, d) then
      due[d] = math.max(now, k.fallen == 0 and k.next or 0)
    end
    if k.len > 0 and since[d] == nil then
      since[d] = first()[3]
    end
    if k.parked == 1 and held[d] == nil then
      local dead = first()
      local state = redis.call('HGET', I, 'i' .. dead[2])
      held[d], set['p:' .. d] = tonumber(string.match(state or '', ':(%d+)$')) or now, string.format('%.0f:', dead[1]) .. dead[2]
    end
  end
  k.index = index
end

-- finish removes the first item from the queue; state is 'd' or 'x'.
local function finish(state)
  local ended = first()
  redis.call('LPOP', Q)
  redis.call('HSET', I, 'i' .. ended[2], string.format('%s%.0f:%d:%.0f', state, ended[1], k.att, now))
  k.len, k.head, k.att, k.ended, item = k.len - 1, ended[1] + 1, 0, now, nil
end

-- sweep removes items that have died with another, as many as one script may. Until the last of them is
-- gone the key stays due, and nothing of it begins.
local function sweep()
  if k.fallen == 0 then
    return
  end
  if redis.call('LLEN', Q) ~= k.len + k.fallen then
    error(lost)
  end
  local states = {}
  while k.fallen > 0 and most > 0 and mostBytes > 0 do
    local raw = redis.call('LPOP', Q)
    local dead = cmsgpack.unpack(raw)
    if redis.call('HGET', I, 'i' .. dead[2]) == string.format('w%.0f', dead[1]) then -- otherwise it was appended again
      states[#states + 1], states[#states + 2] = 'i' .. dead[2], string.format('x%.0f:0:%.0f', dead[1], k.ended)
    end
    k.fallen, most, mostBytes, swept = k.fallen - 1, most - 1, mostBytes - #raw, swept + 1
  end
  if #states > 0 then
    redis.call('HSET', I, unpack(states))
  end
end

-- kill makes the first item dead, and returns how many have died with it.
local function kill()
  k.run = 0
  if ARGV[9] == 'hold' then
    k.parked = 1
    local dead = first()
    redis.call('HSET', I, 'i' .. dead[2], string.format('x%.0f:%d:%.0f', dead[1], k.att, now))
    held[d], set['p:' .. d] = now, string.format('%.0f:', dead[1]) .. dead[2]
    return 1
  end
  local died = 1
  finish('x')
  if ARGV[9] == 'cascade' and k.len > 0 then
    died = died + k.len
    k.fallen, k.head, k.len = k.len, k.head + k.len, 0
    sweep()
  end
  return died
end

-- prune forgets what has ended and is kept no more, a hundred at most and as many as were removed. Before
-- k.prune there is nothing that has been kept for long enough.
local function prune()
  if now < k.prune and k.head - k.tail <= keepCount then
    return
  end
  local times = 100 + swept
  swept = 0
  for _ = 1, times do
    if k.tail >= k.head - k.fallen then
      k.prune = k.fallen == 0 and now + keepFor or k.prune
      return
    end
    local field = string.format('s%.0f', k.tail)
    local id = redis.call('HGET', I, field)
    if not id then
      return -- the server has lost it: see known
    end
    local state = redis.call('HGET', I, 'i' .. id)
    local same = state and string.match(state, '^[dx](%d+):') == string.sub(field, 2)
    local ended = same and tonumber(string.match(state, ':(%d+)$')) or 0
    if k.head - k.tail <= keepCount and now - ended < keepFor then
      k.prune = ended + keepFor
      return
    end
    redis.call('HDEL', I, field)
    if same then
      redis.call('HDEL', I, 'i' .. id)
    end
    k.tail = k.tail + 1
  end
end

-- begin begins the first item, if it is due, for ARGV[a + 2], who claims the key for
-- ARGV[a + 3]; ARGV[a + 4] is the grace. It returns the item and how many have died.
local function begin()
  local died = 0
  sweep()
  while k.fallen == 0 and k.len > 0 and k.parked == 0 do
    if k.run == 0 and k.att >= tonumber(ARGV[8]) then
      died = died + kill()
    elseif k.run == 0 and now < k.next then
      break
    else
      if k.run == 0 then -- otherwise the answer was lost
        k.att = k.att + 1
      end
      k.run, k.over, k.begun = 1, 0, now
      local spacing = tonumber(ARGV[7])
      if spacing > 0 then
        k.next = now + spacing + tonumber(ARGV[a + 4])
      end
      set['b:' .. d], due[d] = ARGV[a + 2], now + tonumber(ARGV[a + 3])
      if k.head ~= head then
        since[d] = first()[3]
      end
      return first(), died
    end
  end
  settle()
  return nil, died
end

-- answer is what Begin and End return.
local function answer(begun, died)
  if begun then
    return {1, k.len, k.parked, died, 0, begun[1], k.att, begun[2], begun[5], begun[4], math.max(now - begun[3], 0)}
  end
  local wait = 0
  if k.len > 0 and k.parked == 0 and k.fallen == 0 then
    wait = math.max(k.next - now, 0)
  end
  return {1, k.len, k.parked, died, wait}
end
