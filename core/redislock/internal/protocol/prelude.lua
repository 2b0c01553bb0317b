-- The general path of all scripts. A key is a string while one owner holds it alone and nobody
-- waits, and else a hash: was is the hash as it was read, value the string. s and holders are what
-- the key shall be. save writes what differs. Names: e is E, a place's time in ms without a refresh;
-- limit is when a place ends; room is how many owners may hold the key at once. Redis defines the
-- functions anew at every run, which usually takes 100 ns each.

local SCAN = 64                    -- places of the queue that one script looks at
local DEAD = 16                    -- places that a refusal looks at
local KEPT = string.rep('-', 16)   -- the owner while the key is kept for MinHold
local NUMBERS = {'t', 'y', 'h', 'n', 'c', 'u'}
local TEXTS = {'z', 'd', 's'}

local function text(n) return string.format('%.0f', n) end

local puts, dels = {}, {}
local gone = {}        -- entries that dels removes
local pushes = {}      -- to publish, three elements each: channel, kind and owner, number
local wanted = false   -- tell the holders that somebody waits
local more = 0         -- 1 if the queue has to be looked at further
local lapsed = false   -- a lease has just been found to be over
local frees = true     -- the script frees memory or refreshes something
local mine             -- the entry that seek has made or refreshed, not written yet

-- traced returns the trace in what a field d holds, if it is the owner's, and else ''.
local function traced(d, owner)
  if d and string.sub(d, 1, 16) == owner then return string.sub(d, 17) end
  return ''
end

-- record reads the holder at a place of a text, and returns it with the place behind it. A holder
-- is the owner, "room:token:expiry:length:n:" and the channel of n bytes. The token is 0 while only
-- the holder knows it, and in a string the expiry is, since the key's own is meant.
local function record(all, at)
  local room, t, x, l, n, rest = string.match(all, '^(%d+):(%d+):(%d+):(%d+):(%d+):()', at + 16)
  if not room then return nil end
  local over = rest + n
  return {
    owner = string.sub(all, at, at + 15), p = string.sub(all, rest, over - 1),
    room = tonumber(room), t = tonumber(t), x = tonumber(x), l = tonumber(l),
  }, over
end

local function recorded(h, x)
  return h.owner .. text(h.room) .. ':' .. text(h.t) .. ':' .. text(x) .. ':' .. text(h.l) .. ':' .. #h.p .. ':' .. h.p
end

-- since returns the token of a holder, or one that it is not less than: the moment of the grant.
local function since(h)
  if h.t > 0 then return h.t end
  return math.max(h.x - h.l, 0) * 1000
end

-- i and j are the indexes of the entries of the owners in ARGV[1] and ARGV[4], if any.
local key, stream = KEYS[1], KEYS[2] or string.sub(KEYS[1], 1, SHARD)
local was = redis.pcall('HMGET', key, 't', 'y', 'h', 'n', 'c', 'u', 'z', 'd', 's', 'i' .. (ARGV[1] or ''), 'i' .. (ARGV[4] or ''))
local value, lasts  -- the string, and for how long
local holders = {}
if was.err then
  value = redis.call('GET', key)
  local h, rest = record(value, 1)
  if not h then return redis.error_reply('WRONGTYPE the key holds a string that is no lock of this kind') end
  lasts = redis.call('PTTL', key)
  if lasts == 0 then lasts = 1 end -- in its last ms the key is there, and held
  h.x = now + (lasts >= 0 and lasts or h.l)
  holders[1] = h
  was = {}
  if rest <= #value then was[8] = h.owner .. string.sub(value, rest) end
end
local there = value or was[1]
if not there and redis.call('EXISTS', key) == 1 then return redis.error_reply('WRONGTYPE the key holds a hash that is no lock') end
local i, j = tonumber(was[10] or nil), tonumber(was[11] or nil)
local s = {z = was[7] or '', d = was[8] or ''}
for n, name in ipairs(NUMBERS) do s[name] = (was[n] or 0) + 0 end
if value then s.t = since(holders[1]) end
local at = 1
while was[9] and at <= #was[9] do holders[#holders + 1], at = record(was[9], at) end

-- Owners that were given up are forgotten in time. A clock that goes back does not stretch that.
s.y = math.min(s.y, now + LINGER)
if s.y <= now then s.z, s.y = '', 0 end

-- buried reports whether the owner is one of the last four that were given up.
local function buried(owner)
  for n = 1, #s.z, 16 do
    if string.sub(s.z, n, n + 15) == owner then return true end
  end
  return false
end

-- bury notes that an owner was given up, so that a late request of it gets nothing.
local function bury(owner)
  if not buried(owner) then s.z = string.sub(owner .. s.z, 1, 64) end
  s.y = now + LINGER
end

-- holding returns an owner's lease.
local function holding(owner)
  for n = 1, #holders do
    if holders[n].owner == owner then return holders[n] end
  end
end

-- remove ends the leases for which over says so, and returns them.
local function remove(over)
  local removed = {}
  for n = #holders, 1, -1 do
    if over(holders[n]) then table.insert(removed, 1, table.remove(holders, n)) end
  end
  return removed
end

-- The leases are brought up to date with the clock. A lease that lasts longer than
-- it was ever given shows that the clock went back. An end that was seen is kept: it
-- must not be undone by a clock that steps back later.
lapsed = #remove(function(h)
  h.x = math.min(h.x, now + h.l)
  return h.x <= now
end) > 0

-- alone reports whether the key is held exclusively.
local function alone() return #holders == 1 and holders[1].room == 1 end

-- fits reports whether one more owner, of that room, may hold. The room counts that owner too;
-- 0 is any number. Each holder has a room of its own, which counts as well.
local function fits(room)
  if room > 0 and #holders >= room then return false end
  for n = 1, #holders do
    if holders[n].room > 0 and #holders >= holders[n].room then return false end
  end
  return true
end

-- draw returns a new token, which is greater than all before it: see the package's comment. In a
-- Cluster it is 0 while the key is here and the stream is not, for the slot moves.
local function draw()
  if frees then redis.call('PEXPIRE', key, value and math.max(lasts, 1) or LINGER) end -- see save
  local id = drawn(KEYS[2] and redis.call or redis.pcall, stream)
  if type(id) == 'table' then
    if not string.find(id.err, 'non local', 1, true) then redis.call('XADD', stream, 'MAXLEN', '~', '1', '*', '', '') end
    return 0
  end
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  if n + 0 >= 1000 then -- the clock has gone back, and the stream has used up the ms before that
    ms, n = ms + 1, 0
    redis.call('XADD', stream, 'MAXLEN', '~', '1', text(ms) .. '-0', '', '')
  end
  return ms * 1000 + n
end

-- grant gives an owner the key until limit. trace may be ''. The token t may be 0 if the reply tells
-- the owner of the grant: it draws one then.
local function grant(owner, channel, length, limit, room, trace, t)
  if trace ~= '' then s.d = owner .. trace end
  if t > 0 then s.t = t end
  holders[#holders + 1] = {owner = owner, p = channel, room = room, t = t, x = limit, l = length}
end

-- extend makes a lease last for length from now; it never shortens one.
local function extend(h, length)
  h.x = math.max(h.x, now + length)
  h.l = math.max(h.l, length)
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

-- clear removes the places that have ended among DEAD of the queue. Where it begins goes by the ms, so that
-- of a longer queue other requests see the rest.
local function clear()
  local first, n, at, names = s.h, s.n - s.h, {}, {}
  for k = 1, math.min(n, DEAD) do
    at[k] = first + (now + k) % n
    names[k] = 'w' .. text(at[k])
  end
  for k, w in ipairs(redis.call('HMGET', key, unpack(names))) do
    if w and not gone[at[k]] and tonumber(string.match(w, '^%d+:(%d+):', 17)) <= now then
      drop(at[k], string.sub(w, 1, 16))
    end
  end
end

-- tell notes a message to a process about one of its owners.
local function tell(channel, kind, owner, number)
  local n = #pushes
  pushes[n + 1], pushes[n + 2], pushes[n + 3] = channel, kind .. owner, number
end

-- promote grants the key to the first live entries for as long as they fit. The owner self
-- gets no push, since the reply tells it of its grant. A grant lasts as long as the
-- place would have. After a release it lasts a third of E at least; after an expiry it
-- does not, so that entries that died together do not delay the next one for long.
local function promote(self)
  for _ = 1, SCAN do
    if s.c == 0 or alone() then return end
    local e = entry(s.h)
    if not e then
      s.h = s.h + 1
    elseif e.limit <= now then
      drop(e.i, e.owner)
    elseif fits(e.room) then
      local t = draw()
      if t == 0 and e.owner ~= self then return end -- its own request asks again
      drop(e.i, e.owner)
      local least = lapsed and 0 or math.floor(e.e / 3)
      grant(e.owner, e.channel, e.e, math.max(e.limit, now + least), e.room, e.trace, t)
      if e.owner ~= self then tell(e.channel, 'g', e.owner, t) end
    else
      return
    end
  end
  if s.c > 0 and not alone() then more = 1 end
end

-- seek gives an owner the key or a place, or refreshes what it has, and returns which as a
-- status. i is the index of its entry, if any. trace may be ''. most, if not nil, is how many places there
-- may be before a new one.
local function seek(owner, channel, length, e, i, create, wait, room, trace, most)
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
  if not create or buried(owner) then return 'over' end
  if s.c == 0 and fits(room) then
    grant(owner, channel, length, now + length, room, trace, draw())
    return 'granted'
  end
  if not wait then
    wanted = true
    return 'busy'
  end
  if most and s.c >= most then
    clear()
    if s.c >= most then return 'full' end
    if gone[s.n] then -- and is used again
      gone[s.n] = nil
      for n = #dels, 1, -1 do
        if dels[n] == 'w' .. text(s.n) then table.remove(dels, n) end
      end
    end
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
  local first
  for _, h in ipairs(holders) do
    if not first or h.x < first then first = h.x end
  end
  return first and first - now or 0
end

-- hurry tells the first of the queue how soon a lease ends, if that is before it would
-- ask by itself.
local function hurry()
  local e = s.c > 0 and entry(s.h)
  if e and left() > 0 and left() < math.floor(e.e / 3) then tell(e.channel, 'e', e.owner, left()) end
end

-- token returns the token of an owner's lease, 0 if that is not known here; or the latest that is
-- known of the key if the owner has none.
local function token(owner)
  local h = holding(owner)
  return text(h and h.t or s.t)
end

-- save writes what has changed, and publishes after that. An error of PUBLISH, as for lack of
-- the right, changes nothing: Redis would not undo the writes. It returns an error reply if it has
-- done nothing.
--
-- A server out of memory refuses a script's first write if that needs memory, but none after
-- it. PEXPIRE needs no memory. So it comes first if frees is true. Otherwise it comes last, and the
-- server refuses to add anything.
local function save()
  local last, idle = 0, s.c == 0
  local records = {}
  for n, h in ipairs(holders) do
    last = math.max(last, h.x - now)
    idle = idle and h.p == ''
    records[n] = recorded(h, h.x)
  end
  s.s = table.concat(records)
  -- What nobody holds and nobody waits for stays until no request of an owner that was given up can
  -- come any more.
  local keep = idle and math.max(last, s.y - now) or last + LINGER
  if keep <= 0 then
    if there then redis.call('DEL', key) end
  elseif alone() and not idle and s.c == 0 and s.z == '' and (value or not there) then
    local h = holders[1]
    local new = recorded(h, 0) .. traced(s.d, h.owner)
    if new ~= value or last ~= lasts then
      if frees then redis.call('PEXPIRE', key, last) end
      redis.call('SET', key, new, 'PX', last)
    end
  else
    local before, moves = was, false
    if value then
      -- While a slot of a Cluster moves away, a key cannot be made where the slot was, not even one
      -- that has just been there. No key at all can be asked for that is not there. A key that is free
      -- goes all the same: that a late copy may then have it until its TTL is over delays others, and no more.
      moves = not KEYS[2] and type(redis.pcall('EXISTS', key .. ':')) == 'table'
      if moves and (#holders > 0 or s.c > 0) then return redis.error_reply('TRYAGAIN the slot moves') end
      if not frees then redis.call('SET', key, value, 'KEEPTTL') end
      redis.call('DEL', key)
      before = {}
    end
    for n, name in ipairs(NUMBERS) do
      if not before[n] and (name == 't' or s[name] ~= 0) or before[n] and s[name] ~= before[n] + 0 then
        puts[#puts + 1], puts[#puts + 2] = name, text(s[name])
      end
    end
    for n, name in ipairs(TEXTS) do
      if s[name] ~= (before[#NUMBERS + n] or '') then puts[#puts + 1], puts[#puts + 2] = name, s[name] end
    end
    if not moves and (#puts > 0 or #dels > 0) then
      if frees then redis.call('PEXPIRE', key, keep) end
      if #puts > 0 then redis.call('HSET', key, unpack(puts)) end
      if #dels > 0 then redis.call('HDEL', key, unpack(dels)) end
      if not frees or not was[1] then redis.call('PEXPIRE', key, keep) end
    end
  end
  if wanted and #pushes == 0 then
    for n = 1, #holders do
      local h = holders[n]
      if h.p ~= '' then tell(h.p, 'w', h.owner, since(h)) end
    end
  end
  for n = 1, #pushes, 3 do
    redis.pcall('PUBLISH', pushes[n], pushes[n + 1] .. text(pushes[n + 2]) .. ':' .. s.c .. ':' .. key)
  end
end
