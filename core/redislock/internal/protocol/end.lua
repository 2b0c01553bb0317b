-- end: owner, keep [, next owner, channel, length, E]
local owner, keep, nextOwner = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local i, j = load()
settle()
local status
if s.o == owner then
  status = 'ended'
  -- The token tells when the lease was granted, unless the clock went back.
  local till = math.min(math.floor(s.t / 1000), now) + keep
  s.o, s.p = '', ''
  if till > now then s.o, s.l, s.x = KEPT, till - now, till end
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
  outcome = seek(nextOwner, ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), j, true, true)
else
  promote('')
end
save(true)
return {status, text(s.t), s.c, more, outcome, head(), left()}
