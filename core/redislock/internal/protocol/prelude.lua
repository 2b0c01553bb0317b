-- The general path of all scripts. was is the hash as it was read; s and holders are the
-- hash as it shall be. save writes what differs. Names: e is E, a place's time in ms without a
-- refresh; limit is when a place ends; room is how many owners may hold the key at once. Redis
-- defines the functions anew at every run, which usually takes 100 ns each.

local SCAN = 64        -- places of the queue that one script looks at
local KEPT = '-'       -- in o while the key is kept for MinHold
local SHARED = '+'     -- in o while several may hold together: they stand in s

local function text(n) return string.format('%.0f', n) end

local puts, dels = {}, {}
local gone = {}        -- entries that dels removes
local pushes = {}      -- to publish, three elements each: channel, kind and owner, number
local wanted = false   -- tell the holders that somebody waits
local more = 0         -- 1 if the queue has to be looked at further
local lapsed = false   -- a lease has just been found to be over
local mine             -- the entry that seek has made or refreshed, not written yet

-- traced returns the trace in what a field d holds, if it is the owner's, and else ''.
local function traced(d, owner)
  if d and string.sub(d, 1, 16) == owner then return string.sub(d, 17) end
  return ''
end

-- i and j are the indexes of the entries of the owners in ARGV[1] and ARGV[3], if any.
local was = redis.call('HMGET', key, 'o', 'p', 't', 'x', 'l', 'z', 'h', 'n', 'c', 's', 'u',
  'i' .. (ARGV[1] or ''), 'i' .. (ARGV[3] or ''), 'd')
local i, j = tonumber(was[12] or nil), tonumber(was[13] or nil)
local s = {
  o = was[1] or '', p = was[2] or '', t = (was[3] or 0) + 0, x = (was[4] or 0) + 0, l = (was[5] or 0) + 0,
  z = was[6] or '', h = (was[7] or 0) + 0, n = (was[8] or 0) + 0, c = (was[9] or 0) + 0, u = (was[11] or 0) + 0,
  d = was[14] or '',
}
if s.c > 0 then s.o = string.sub(s.o, 1, -2) end

-- holders are those who hold the key together. s has for each: the owner,
-- "room:token:expiry:length:n:" and the channel of n bytes.
local holders = {}
if s.o == SHARED then
  local at, all = 1, was[10]
  while at <= #all do
    local room, t, x, l, n, rest = string.match(all, '^(%d+):(%d+):(%d+):(%d+):(%d+):()', at + 16)
    n = tonumber(n)
    holders[#holders + 1] = {
      owner = string.sub(all, at, at + 15), p = string.sub(all, rest, rest + n - 1),
      room = tonumber(room), t = tonumber(t), x = tonumber(x), l = tonumber(l),
    }
    at = rest + n
  end
end

-- ended reports whether the owner is one of the last four that ended.
local function ended(owner)
  for i = 1, #s.z, 16 do
    if string.sub(s.z, i, i + 15) == owner then return true end
  end
  return false
end

-- bury notes that an owner has ended, so that a late request of it gets nothing.
local function bury(owner)
  if not ended(owner) then s.z = string.sub(owner .. s.z, 1, 64) end
end

-- holding returns an owner's lease: s itself, or the record of one who shares.
local function holding(owner)
  if s.o == owner then return s end
  for n = 1, #holders do
    if holders[n].owner == owner then return holders[n] end
  end
end

-- share sets o, p, l and x from the holders. x is when the first of their leases ends.
local function share()
  s.o, s.p, s.l = '', '', 0
  for _, h in ipairs(holders) do
    if s.o == '' or h.x < s.x then s.x = h.x end
    s.o = SHARED
  end
end

-- The leases are brought up to date with the clock. A lease that lasts longer than
-- it was ever given shows that the clock went back. An end that was seen is kept: it
-- must not be undone by a clock that steps back later.
if s.o == SHARED then
  for n = #holders, 1, -1 do
    local h = holders[n]
    h.x = math.min(h.x, now + h.l)
    if h.x <= now then
      if h.p ~= '' then bury(h.owner) end
      table.remove(holders, n)
      lapsed = true
    end
  end
  share()
elseif s.o ~= '' then
  if s.x > now + s.l then s.x = now + s.l end
  if s.x <= now then
    if s.o ~= KEPT then bury(s.o) end
    s.o, s.p = '', ''
    lapsed = true
  end
end

-- fits reports whether one more owner, of that room, may hold. The room counts that owner too;
-- 0 is any number. Each holder has a room of its own, which counts as well.
local function fits(room)
  if s.o == '' then return true end
  if s.o ~= SHARED then return false end
  local n = #holders
  if room > 0 and n >= room then return false end
  for _, h in ipairs(holders) do
    if h.room > 0 and n >= h.room then return false end
  end
  return true
end

-- grant gives an owner the key, with a new token, until limit. trace may be ''.
local function grant(owner, channel, length, limit, room, trace)
  s.t = math.max(s.t + 1, us)
  if trace ~= '' then s.d = owner .. trace end
  if room == 1 then
    s.o, s.p, s.l, s.x = owner, channel, length, limit
    return
  end
  holders[#holders + 1] = {owner = owner, p = channel, room = room, t = s.t, x = limit, l = length}
  share()
end

-- extend makes a lease last for length from now; it never shortens one.
local function extend(h, length)
  h.x = math.max(h.x, now + length)
  h.l = math.max(h.l, length)
  if h ~= s then share() end
end

-- entry returns entry i of the queue, or nil.
local function entry(i)
  if gone[i] then return nil end
  if mine and mine.i == i then return mine end
  local found = redis.call('HMGET', key, 'w' .. text(i), 'd' .. i % TRACES)
  local w = found[1]
  if not w then return nil end
  local e, limit, room, channel = string.match(w, '^(%d+):(%d+):(%d+):(.*)$', 17)
  local owner = string.sub(w, 1, 16)
  e = tonumber(e)
  return {
    i = i, owner = owner, e = e, limit = math.min(tonumber(limit), now + e),
    room = tonumber(room), channel = channel, trace = traced(found[2], owner),
  }
end

-- put notes an entry to be written.
local function put(e)
  puts[#puts + 1] = 'w' .. text(e.i)
  puts[#puts + 1] = e.owner .. text(e.e) .. ':' .. text(e.limit) .. ':' .. text(e.room) .. ':' .. e.channel
end

-- hole reports whether index i of the queue has no entry, as after a withdrawal.
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

-- tell notes a message to a process about one of its owners.
local function tell(channel, kind, owner, token)
  local n = #pushes
  pushes[n + 1], pushes[n + 2], pushes[n + 3] = channel, kind .. owner, token
end

-- promote grants the key to the first live entries for as long as they fit. The owner self
-- gets no push, since the reply tells it of its grant. A grant lasts as long as the
-- place would have. After a release it lasts a third of E at least; after an expiry it
-- does not, so that entries that died together do not delay the next one for long.
local function promote(self)
  for _ = 1, SCAN do
    if s.c == 0 or s.o ~= '' and s.o ~= SHARED then return end
    local e = entry(s.h)
    if not e then
      s.h = s.h + 1
    elseif e.limit <= now then
      drop(e.i, e.owner)
    elseif fits(e.room) then
      drop(e.i, e.owner)
      local least = lapsed and 0 or math.floor(e.e / 3)
      grant(e.owner, e.channel, e.e, math.max(e.limit, now + least), e.room, e.trace)
      if e.owner ~= self then tell(e.channel, 'g', e.owner, s.t) end
    else
      return
    end
  end
  if s.c > 0 and (s.o == '' or s.o == SHARED) then more = 1 end
end

-- seek gives an owner the key or a place, or refreshes what it has, and returns which as a
-- status. i is the index of its entry, if any. trace may be ''.
local function seek(owner, channel, length, e, i, create, wait, room, trace)
  if i and not holding(owner) then
    mine = entry(i)
    mine.e = math.max(mine.e, e)
    mine.limit = now + mine.e
    mine.channel = channel
    put(mine)
  end
  promote(owner)
  local h = holding(owner)
  if h then
    extend(h, length)
    h.p = channel
    return 'granted'
  end
  if i then
    wanted = wanted or i == s.h
    return 'queued'
  end
  if not create or ended(owner) then return 'over' end
  if s.c == 0 and fits(room) then
    grant(owner, channel, length, now + length, room, trace)
    return 'granted'
  end
  if not wait then
    wanted = true
    return 'busy'
  end
  mine = {i = s.n, owner = owner, e = e, limit = now + e, room = room, channel = channel, trace = trace}
  put(mine)
  if trace ~= '' then
    puts[#puts + 1] = 'd' .. mine.i % TRACES
    puts[#puts + 1] = owner .. trace
  end
  puts[#puts + 1] = 'i' .. owner
  puts[#puts + 1] = text(s.n)
  s.n = s.n + 1
  s.c = s.c + 1
  wanted = wanted or s.c == 1
  return 'queued'
end

-- taker returns the channel of one who holds the key, and its trace; '' for what is not known.
local function taker()
  if s.p ~= '' then return s.p, traced(s.d, s.o) end
  for _, h in ipairs(holders) do
    if h.p ~= '' then return h.p, traced(s.d, h.owner) end
  end
  return '', ''
end

-- head returns 1 if the owner that seek was called for is the first of the queue, else 0.
local function head()
  if mine and not holding(mine.owner) and mine.i == s.h then return 1 end
  return 0
end

-- left returns how many ms are left until the first lease ends; 0 if the key is free.
local function left()
  if s.o == '' then return 0 end
  return s.x - now
end

-- hurry tells the first of the queue how soon a lease ends, if that is before it would
-- ask by itself.
local function hurry()
  local e = s.c > 0 and entry(s.h)
  if e and left() > 0 and left() < math.floor(e.e / 3) then tell(e.channel, 'e', e.owner, left()) end
end

-- token returns the token of an owner's lease, or the latest of the key if it has none.
local function token(owner) return text((holding(owner) or s).t) end

-- save writes what has changed, and publishes after that. An error of PUBLISH, as for lack of
-- the right, changes nothing: Redis would not undo the writes.
--
-- A server out of memory refuses a script's first write if that needs memory, but none after
-- it. PEXPIRE needs no memory. So it comes first if frees is true: the script frees memory or
-- refreshes something. Otherwise it comes last, and the server refuses to add anything. A new
-- hash gets it last in any case.
local function save(frees)
  local last, shared = left(), ''
  if s.o == SHARED then
    local records = {}
    for n, h in ipairs(holders) do
      last = math.max(last, h.x - now)
      records[n] = h.owner .. text(h.room) .. ':' .. text(h.t) .. ':' .. text(h.x) .. ':' .. text(h.l) .. ':' .. #h.p .. ':' .. h.p
    end
    shared = table.concat(records)
  end
  local o = s.c > 0 and s.o .. WAITING or s.o
  local n = #puts
  if o ~= (was[1] or '') then puts[n + 1], puts[n + 2], n = 'o', o, n + 2 end
  if s.p ~= (was[2] or '') then puts[n + 1], puts[n + 2], n = 'p', s.p, n + 2 end
  if s.t ~= (was[3] or 0) + 0 then puts[n + 1], puts[n + 2], n = 't', s.t, n + 2 end
  if s.x ~= (was[4] or 0) + 0 then puts[n + 1], puts[n + 2], n = 'x', s.x, n + 2 end
  if s.l ~= (was[5] or 0) + 0 then puts[n + 1], puts[n + 2], n = 'l', s.l, n + 2 end
  if s.z ~= (was[6] or '') then puts[n + 1], puts[n + 2], n = 'z', s.z, n + 2 end
  if s.h ~= (was[7] or 0) + 0 then puts[n + 1], puts[n + 2], n = 'h', s.h, n + 2 end
  if s.n ~= (was[8] or 0) + 0 then puts[n + 1], puts[n + 2], n = 'n', s.n, n + 2 end
  if s.c ~= (was[9] or 0) + 0 then puts[n + 1], puts[n + 2], n = 'c', s.c, n + 2 end
  if shared ~= (was[10] or '') then puts[n + 1], puts[n + 2], n = 's', shared, n + 2 end
  if s.u ~= (was[11] or 0) + 0 then puts[n + 1], puts[n + 2], n = 'u', s.u, n + 2 end
  if s.d ~= (was[14] or '') then puts[n + 1], puts[n + 2], n = 'd', s.d, n + 2 end
  if n > 0 or #dels > 0 then
    local step = (s.t - s.t % (STEP * 1000)) / 1000
    local keep = math.max(last, step + 2 * STEP - now) + LINGER
    if frees then redis.call('PEXPIRE', key, keep) end
    if n > 0 then redis.call('HSET', key, unpack(puts)) end
    if #dels > 0 then redis.call('HDEL', key, unpack(dels)) end
    if not frees or not was[3] then redis.call('PEXPIRE', key, keep) end
  end
  if wanted and #pushes == 0 then
    if s.p ~= '' then tell(s.p, 'w', s.o, s.t) end
    for n = 1, #holders do
      local h = holders[n]
      if h.p ~= '' then tell(h.p, 'w', h.owner, h.t) end
    end
  end
  for n = 1, #pushes, 3 do
    redis.pcall('PUBLISH', pushes[n], pushes[n + 1] .. text(pushes[n + 2]) .. ':' .. s.c .. ':' .. key)
  end
end
