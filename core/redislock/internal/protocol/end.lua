-- end: owner, how, keep [, next owner, channel, length, E, room [, trace]]
-- How is b to bury the owner. The reply names what became of owner, and as outcome what nextOwner
-- got.
local owner, keep, nextOwner = ARGV[1], tonumber(ARGV[3]), ARGV[4]
local status
local first, kept = s.h, false
local h = holding(owner)
if h then
  status = 'ended'
  -- The token tells when the lease was granted, unless the clock went back.
  local till = math.min(math.floor(since(h) / 1000), now) + keep
  kept = till > now
  if kept then
    h.owner, h.p, h.l, h.x = KEPT, '', till - now, till
  else
    remove(function(o) return o == h end)
  end
elseif i then
  status = 'withdrawn'
  drop(i, owner)
elseif there then
  status = 'notmine'
else
  status = 'absent'
end
if ARGV[2] == 'b' then bury(owner) end
local outcome = ''
if nextOwner and status == 'ended' then
  outcome = seek(nextOwner, ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), j, true, true, tonumber(ARGV[8]), ARGV[9] or '')
else
  promote('')
end
if kept or i == first then hurry() end
local failed = save()
if failed then return failed end
if status == 'ended' and not nextOwner and s.c == 0 and #holders == 0 then return 1 end
local channel, trace = '', ''
if outcome == 'queued' then channel, trace = taker() end
return {status, token(nextOwner or ''), s.c, more, outcome, head(), left(), status == 'notmine' and text(s.u) or '0', channel, trace}
