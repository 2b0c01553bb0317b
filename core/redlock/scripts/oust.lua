-- oust: token. Ends the lease if its token is at most that, so that a repetition spares
-- who came next, and accepts no such token any more.
local upto = tonumber(ARGV[1])
local status, lost, channel = 'absent', '', ''
if s.a > 0 and s.a <= upto then
  status = 'ended'
  if s.o ~= KEPT then
    lost, channel = s.o, s.p
    bury(lost)
  end
  clear()
end
s.t, s.u = math.max(s.t, upto), math.max(s.u, upto)
save(true)
if lost ~= '' then tell(channel, 'l', lost) end
if status == 'ended' then free('') end
return answer(status, '', false, false)
