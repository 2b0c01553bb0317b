-- end: owner, keep. Whatever the owner is at, it is over, and never granted again.
local owner, keep = ARGV[1], tonumber(ARGV[2])
local status = 'notmine'
if s.o == owner then
  status = 'ended'
  local till = s.g + keep
  if keep > 0 and till > now then
    s.o, s.p, s.x, s.l = KEPT, '', till, till - now
  else
    clear()
  end
elseif queued and redis.call('ZSCORE', queue, owner) then
  status = 'withdrawn'
elseif s.t == 0 then
  status = 'absent'
end
bury(owner)
save(true)
drop(owner)
if s.o == '' or status == 'ended' then free(owner) end
return answer(status, owner, false, false)
