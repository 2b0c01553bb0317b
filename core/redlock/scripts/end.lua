-- end: owner, keep. Whatever the owner is at, it is over, and never granted again. Answers the time
-- alone if a vote has ended.
local owner, keep = ARGV[1], tonumber(ARGV[2])
local status, ousted = 'notmine', 0
if s.o == owner then
  status = 'ended'
  if keep > 0 then more(s) end
  local till = s.g + keep
  if keep > 0 and till > now then
    s.o, s.p, s.x, s.l, s.changed = KEPT, '', till, till - now, true
  else
    clear(s)
  end
elseif s.queued and redis.call('ZSCORE', queue, owner) then
  status = 'withdrawn'
elseif s.t == 0 then
  status = 'absent'
end
if status ~= 'ended' then ousted = tonumber(redis.call('HGET', key, 'u') or 0) end
bury(s, owner)
save(s, was, true)
drop(s, owner)
if s.o == '' or status == 'ended' then free(s, owner) end
if status == 'ended' then return us end
return {status, us, s.t, ousted}
