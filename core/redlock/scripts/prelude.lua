-- What all scripts begin with. KEYS: the lock's hash, its queue, the node's boot marker.
-- Times are the node's own, read once, in ms; us is the same moment in microseconds.
--
-- The hash: o whose vote it is, p its channel, x when the vote ends, l how long it was
-- given for, a the token accepted with it (0: a bare vote), g when, t the largest
-- token accepted ever, n the largest ticket seen, z the last owners that ended, u up to
-- which token leases were ousted, and e<owner> for each place in the queue:
-- "limit:length:channel". d is an owner and the trace of its request, and counts only while
-- that owner has the vote. The queue is a sorted set of owners by ticket.
local key, queue, marker = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

local LINGER = 3600000 -- how long the hash stays after its last lease
local ENDED = 8        -- owners that z remembers
local KEPT = '-'       -- in o while nobody has the key and it is kept

local queued = redis.call('ZCARD', queue) > 0 -- whether anybody may wait
local boot -- when the node's data began, if that was read

local was = redis.call('HMGET', key, 'o', 'p', 'x', 'l', 'a', 'g', 't', 'n', 'z', 'u', 'd')
local s = {
  o = was[1] or '', p = was[2] or '', x = (was[3] or 0) + 0, l = (was[4] or 0) + 0, a = (was[5] or 0) + 0,
  g = (was[6] or 0) + 0, t = (was[7] or 0) + 0, n = (was[8] or 0) + 0, z = was[9] or '', u = (was[10] or 0) + 0,
  d = was[11] or '',
}

local function ended(owner)
  local i = 0
  repeat i = string.find(s.z, owner, i + 1, true) until not i or i % 16 == 1
  return i ~= nil
end

local function bury(owner)
  if not ended(owner) then s.z = string.sub(owner .. s.z, 1, 16 * ENDED) end
end

local function clear() s.o, s.p, s.x, s.l, s.a, s.g = '', '', 0, 0, 0, 0 end

-- A vote that lasts longer than it was ever given for shows that the clock went back.
if s.o ~= '' then
  s.x = math.min(s.x, now + s.l)
  if s.x <= now then
    if s.o ~= KEPT then bury(s.o) end
    clear()
  end
end

local function extend(length)
  s.x, s.l = math.max(s.x, now + length), math.max(s.l, length)
end

-- accept notes a token with the vote.
local function accept(token)
  if s.a == 0 then s.g = now + 1 end -- Keep counts from here, in whole ms
  s.a, s.t = token, token
end

-- place returns the limit and the channel of an owner's place in the queue.
local function place(owner)
  local e = redis.call('HGET', key, 'e' .. owner)
  if not e then return nil end
  local limit, length, channel = string.match(e, '^(%d+):(%d+):(.*)$')
  return math.min(tonumber(limit), now + tonumber(length)), channel
end

local function drop(owner)
  if not queued then return end
  redis.call('ZREM', queue, owner)
  redis.call('HDEL', key, 'e' .. owner)
end

-- first returns the first owner that still waits, and its channel.
local function first()
  while queued do
    local owner = redis.call('ZRANGE', queue, 0, 0)[1]
    if not owner then return nil end
    local limit, channel = place(owner)
    if limit and limit > now then return owner, channel end
    drop(owner)
  end
end

-- others counts the places of those who neither ask nor hold.
local function others(owner)
  if not queued then return 0 end
  local n = redis.call('ZCARD', queue)
  if n > 0 and redis.call('ZSCORE', queue, owner) then n = n - 1 end
  if n > 0 and s.o ~= '' and s.o ~= owner and redis.call('ZSCORE', queue, s.o) then n = n - 1 end
  return n
end

local function left()
  if s.o == '' then return 0 end
  return s.x - now
end

-- save writes the hash. A server out of memory refuses a script's first write if that
-- needs memory, but nothing after it: PEXPIRE in front needs none, so whoever frees
-- something succeeds.
local function save(frees)
  local keep = math.max(left(), 0) + LINGER
  local there = frees and redis.call('PEXPIRE', key, keep) == 1
  redis.call('HSET', key, 'o', s.o, 'p', s.p, 'x', s.x, 'l', s.l, 'a', s.a, 'g', s.g, 't', s.t, 'n', s.n, 'z', s.z, 'u', s.u)
  if s.d ~= (was[11] or '') then redis.call('HSET', key, 'd', s.d) end
  if not there then redis.call('PEXPIRE', key, keep) end
end

-- tell comes last of all: a server that denies PUBLISH would leave a script half done.
local function tell(channel, kind, owner)
  if channel and channel ~= '' then redis.pcall('PUBLISH', channel, kind .. owner) end
end

-- free tells the first of those who wait, unless that is self, that the vote is free.
local function free(self)
  local owner, channel = first()
  if owner and owner ~= self then tell(channel, 'f', owner) end
end

-- answer is the reply of every script; owner is who asks. It ends with the channel and the
-- trace of another owner who has the vote with a token, or '' for what is not known.
local function answer(status, owner, head, firm)
  local a, channel, trace = 0, '', ''
  if s.o == owner then
    a = s.a
  elseif s.a > 0 and s.o ~= KEPT then
    channel = s.p
    if string.sub(s.d, 1, 16) == s.o then trace = string.sub(s.d, 17) end
  end
  return {
    status, a, s.t, s.n, us, left(), others(owner), head and 1 or 0, firm and 1 or 0, s.u,
    tonumber(boot or redis.call('GET', marker) or 0), channel, trace,
  }
end
