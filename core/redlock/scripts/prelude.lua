-- What the general paths begin with.
--
-- Every call makes the functions anew, and each local name that a function takes from outside is
-- looked for then. So they take few, and are given what they need.
local KEPT = '-' -- in o while nobody has the key and it is kept

-- s is the hash, but for p, a, g and d, which more reads: most calls do not need them. They are
-- as here while there is no vote. Nobody waits at a key that has had no ticket.
local was = redis.call('HMGET', key, 'o', 'x', 'l', 't', 'n', 'z', 'k')
local s = {
  key = key, queue = queue, now = now, queued = (was[5] or '0') ~= '0' and redis.call('ZCARD', queue) > 0,
  o = was[1] or '', x = (was[2] or 0) + 0, l = (was[3] or 0) + 0, t = (was[4] or 0) + 0, n = (was[5] or 0) + 0, z = was[6] or '',
  p = '', a = 0, g = 0, d = '', known = not was[1] or was[1] == '',
  changed = false, -- whether the vote or t has to be written
}

local function more(s)
  if s.known then return end
  s.known = true
  local rest = redis.call('HMGET', s.key, 'p', 'a', 'g', 'd')
  s.p, s.a, s.g, s.d = rest[1] or '', (rest[2] or 0) + 0, (rest[3] or 0) + 0, rest[4] or ''
end

local function ended(s, owner)
  local i = 0
  repeat i = string.find(s.z, owner, i + 1, true) until not i or i % 16 == 1
  return i ~= nil
end

-- bury remembers the last 8 owners that ended.
local function bury(s, owner)
  if not ended(s, owner) then s.z = string.sub(owner .. s.z, 1, 128) end
end

local function clear(s)
  s.known, s.changed = true, true
  s.o, s.p, s.x, s.l, s.a, s.g = '', '', 0, 0, 0, 0
end

-- A vote that lasts longer than it was ever given for shows that the clock went back.
if s.o ~= '' then
  if s.x > now + s.l then
    more(s)
    s.x, s.changed = now + s.l, true
  end
  if s.x <= now then
    if s.o ~= KEPT then bury(s, s.o) end
    clear(s)
  end
end

local function extend(s, length)
  s.changed = true
  s.x, s.l = math.max(s.x, s.now + length), math.max(s.l, length)
end

-- accept notes a token with the vote.
local function accept(s, token)
  if s.a == 0 then s.g = s.now + 1 end -- Keep counts from here, in whole ms
  s.a, s.t = token, token
end

-- save writes the hash. A server out of memory refuses a script's first write if that
-- needs memory, but nothing after it: PEXPIRE in front needs none, so whoever frees
-- something succeeds.
local function save(s, was, frees)
  if was[7] and was[7] - STEP > s.now then redis.call('HDEL', s.key, 'k') end -- the clock went back
  local keep = math.max(s.x - s.now, 0) + LINGER + STEP
  local there = frees and redis.call('PEXPIRE', s.key, keep) == 1
  if s.changed then
    -- A number takes Redis longer than its text; %d would have 32 bits on some servers.
    local text = string.format
    local t = text('%.0f', s.t)
    local a = s.a == s.t and t or s.a
    redis.call('HSET', s.key, 'o', s.o, 'p', s.p, 'x', text('%.0f', s.x), 'l', s.l, 'a', a, 'g', text('%.0f', s.g), 't', t, 'z', s.z)
  elseif s.z ~= was[6] then
    redis.call('HSET', s.key, 'z', s.z)
  end
  if not there then redis.call('PEXPIRE', s.key, keep) end
end

-- tell comes last of all: a server that denies PUBLISH would leave a script half done.
local function tell(channel, kind, owner)
  if channel and channel ~= '' then redis.pcall('PUBLISH', channel, kind .. owner) end
end

-- place returns the limit and the channel of an owner's place in the queue.
local function place(s, owner)
  local e = redis.call('HGET', s.key, 'e' .. owner)
  if not e then return nil end
  local limit, length, channel = string.match(e, '^(%d+):(%d+):(.*)$')
  return math.min(tonumber(limit), s.now + tonumber(length)), channel
end

local function drop(s, owner)
  if not s.queued then return end
  redis.call('ZREM', s.queue, owner)
  redis.call('HDEL', s.key, 'e' .. owner)
end

-- first returns the first owner that still waits, and its channel.
local function first(s)
  while s.queued do
    local owner = redis.call('ZRANGE', s.queue, 0, 0)[1]
    if not owner then return nil end
    local limit, channel = place(s, owner)
    if limit and limit > s.now then return owner, channel end
    drop(s, owner)
  end
end

-- free tells the first of those who wait, unless that is self, that the vote is free.
local function free(s, self)
  local owner, channel = first(s)
  if owner and owner ~= self then tell(channel, 'f', owner) end
end

-- answer is the reply of every script but end; owner is who asks, and boot when the node's data
-- began. It ends with the channel and the trace of another owner who has the vote with a token,
-- or '' for what is not known.
local function answer(s, us, boot, status, owner, head, firm)
  local a, channel, trace = 0, '', ''
  more(s)
  if s.o == owner then
    a = s.a
  elseif s.a > 0 and s.o ~= KEPT then
    channel = s.p
    if string.sub(s.d, 1, 16) == s.o then trace = string.sub(s.d, 17) end
  end
  local others = 0 -- the places of those who neither ask nor hold
  if s.queued then
    others = redis.call('ZCARD', s.queue)
    if others > 0 and redis.call('ZSCORE', s.queue, owner) then others = others - 1 end
    if others > 0 and s.o ~= '' and s.o ~= owner and redis.call('ZSCORE', s.queue, s.o) then others = others - 1 end
  end
  return {
    status, us, s.t, a, s.n, math.max(s.x - s.now, 0), others, head and 1 or 0, firm and 1 or 0,
    tonumber(boot or 0), channel, trace,
  }
end
