-- end: owner, keep [, next owner, channel, length, E, room [, trace]]
-- The reply names what became of owner, and as outcome what nextOwner got.
local owner, keep, nextOwner = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local status
local first, kept = s.h, false
local h = holding(owner)
if h then
  status = 'ended'
  -- The token tells when the lease was granted, unless the clock went back.
  local till = math.min(math.floor(h.t / 1000), now) + keep
  kept = till > now
  if h == s then
    s.o, s.p = '', ''
    if kept then s.o, s.l, s.x = KEPT, till - now, till end
  elseif kept then
    h.owner, h.p, h.l, h.x = string.rep(KEPT, 16), '', till - now, till
    share()
  else
    for n = #holders, 1, -1 do
      if holders[n] == h then table.remove(holders, n) end
    end
    share()
  end
elseif i then
  status = 'withdrawn'
  drop(i, owner)
elseif s.t > 0 then
  status = 'notmine'
else
  status = 'absent'
end
bury(owner)
local outcome = ''
if nextOwner and status == 'ended' then
  outcome = seek(nextOwner, ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), j, true, true, tonumber(ARGV[7]), ARGV[8] or '')
else
  promote('')
end
if kept or i == first then hurry() end
save(true)
if status == 'ended' and not nextOwner and s.c == 0 and s.o == '' then return 1 end
local channel, trace = '', ''
if outcome == 'queued' then channel, trace = taker() end
return {status, token(nextOwner or ''), s.c, more, outcome, head(), left(), status == 'notmine' and text(s.u) or '0', channel, trace}
