-- The general way of all scripts. The hash as it was read is in was, and as it
-- shall be in s; what differs is written at the end.

local SCAN = 64        -- places of the queue that one script looks at
local KEPT = '-'       -- in o while the key is kept for MinHold

local s, was
local puts, dels = {}, {}
local gone = {}        -- entries that dels removes
local push             -- 'g' or 'w': what to tell the holder's process
local more = 0         -- 1 if the queue has to be looked at further
local mine             -- an entry that is not yet written

-- load returns the indexes of the entries of the owners in ARGV[1] and ARGV[3],
-- if any.
local function load()
  was = {
    o = read[1] or '', p = read[2] or '', t = tonumber(read[3] or 0),
    x = tonumber(read[4] or 0), l = tonumber(read[5] or 0), z = read[6] or '',
    h = tonumber(read[7] or 0), n = tonumber(read[8] or 0), c = tonumber(read[9] or 0),
  }
  s = {}
  for k, v in pairs(was) do s[k] = v end
  return tonumber(read[10] or nil), tonumber(read[11] or nil)
end

-- ended reports whether the owner is one of the last four that ended.
local function ended(owner)
  for i = 1, #s.z, 16 do
    if string.sub(s.z, i, i + 15) == owner then return true end
  end
  return false
end

local function bury(owner)
  if not ended(owner) then s.z = string.sub(owner .. s.z, 1, 64) end
end

-- settle brings the lease up to date with the clock. A lease that lasts longer
-- than it was ever given shows that the clock went back. An end that was seen
-- is kept: it must not be undone by a clock that steps back later.
local function settle()
  if s.o == '' then return end
  s.x = math.min(s.x, now + s.l)
  if s.x > now then return end
  if s.o ~= KEPT then bury(s.o) end
  s.o, s.p = '', ''
end

local function grant(owner, channel, length, limit)
  s.o, s.p, s.l, s.x = owner, channel, length, limit
  s.t = math.max(s.t + 1, us)
end

-- extend makes a lease last that long from now; it never shortens one.
local function extend(length)
  s.x = math.max(s.x, now + length)
  s.l = math.max(s.l, length)
end

local function entry(i)
  if gone[i] then return nil end
  if mine and mine.i == i then return mine end
  local w = redis.call('HGET', key, 'w' .. text(i))
  if not w then return nil end
  local e, limit, channel = string.match(w, '^(%d+):(%d+):(.*)$', 17)
  e = tonumber(e)
  return {i = i, owner = string.sub(w, 1, 16), e = e, limit = math.min(tonumber(limit), now + e), channel = channel}
end

local function put(e)
  puts[#puts + 1] = 'w' .. text(e.i)
  puts[#puts + 1] = e.owner .. text(e.e) .. ':' .. text(e.limit) .. ':' .. e.channel
end

local function hole(i) return gone[i] or redis.call('HEXISTS', key, 'w' .. text(i)) == 0 end

-- drop removes an entry and the holes that it leaves at either end.
local function drop(i, owner)
  gone[i] = true
  dels[#dels + 1] = 'w' .. text(i)
  dels[#dels + 1] = 'i' .. owner
  s.c = s.c - 1
  if s.c == 0 then
    s.h = s.n
  elseif i == s.h then
    s.h = i + 1
    for _ = 1, SCAN do
      if not hole(s.h) then break end
      s.h = s.h + 1
    end
  elseif i == s.n - 1 then
    s.n = i
    for _ = 1, SCAN do
      if not hole(s.n - 1) then break end
      s.n = s.n - 1
    end
  end
end

-- promote grants a free key to the first live entry. self needs no push: it
-- learns of its grant from the reply.
local function promote(self)
  for _ = 1, SCAN do
    if s.o ~= '' or s.c == 0 then return end
    local e = entry(s.h)
    if not e then
      s.h = s.h + 1
    else
      drop(e.i, e.owner)
      if e.limit > now then
        grant(e.owner, e.channel, e.e, math.max(e.limit, now + math.floor(e.e / 3)))
        if e.owner ~= self then push = 'g' end
      end
    end
  end
  if s.o == '' and s.c > 0 then more = 1 end
end

-- seek finds out what an owner gets; i is the index of its entry, if any.
local function seek(owner, channel, length, e, i, create, wait)
  if i and s.o ~= owner then
    mine = entry(i)
    mine.e = math.max(mine.e, e)
    mine.limit = now + mine.e
    mine.channel = channel
    put(mine)
  end
  promote(owner)
  if s.o == owner then
    extend(length)
    s.p = channel
    return 'granted'
  end
  if i then
    if i == s.h then push = push or 'w' end
    return 'queued'
  end
  if not create or ended(owner) then return 'over' end
  if s.o == '' and s.c == 0 then
    grant(owner, channel, length, now + length)
    return 'granted'
  end
  if not wait then
    push = push or 'w'
    return 'busy'
  end
  mine = {i = s.n, owner = owner, e = e, limit = now + e, channel = channel}
  put(mine)
  puts[#puts + 1] = 'i' .. owner
  puts[#puts + 1] = text(s.n)
  s.n = s.n + 1
  s.c = s.c + 1
  if s.c == 1 then push = push or 'w' end
  return 'queued'
end

local function head()
  if mine and s.o ~= mine.owner and mine.i == s.h then return 1 end
  return 0
end

local function left()
  if s.o == '' then return 0 end
  return s.x - now
end

-- save writes what changed, and tells the holder's process last of all: a
-- server that denies PUBLISH would otherwise undo nothing of a script half done.
--
-- A server out of memory refuses a script's first write if that needs memory,
-- but nothing after it. PEXPIRE needs none, so with it in front whoever frees or
-- keeps something succeeds; who wants something new must be refused.
local function save(frees)
  for k, v in pairs(s) do
    if v ~= was[k] then
      puts[#puts + 1] = k
      puts[#puts + 1] = type(v) == 'number' and text(v) or v
    end
  end
  if #puts > 0 or #dels > 0 then
    local keep = text(LINGER + left())
    if frees then redis.call('PEXPIRE', key, keep) end
    if #puts > 0 then redis.call('HSET', key, unpack(puts)) end
    if #dels > 0 then redis.call('HDEL', key, unpack(dels)) end
    if not frees or was.t == 0 then redis.call('PEXPIRE', key, keep) end
  end
  if push and s.p ~= '' then
    redis.pcall('PUBLISH', s.p, push .. s.o .. text(s.t) .. ':' .. text(s.c) .. ':' .. key)
  end
end

