-- oust: token. Ends the lease if its token is at most that, so that a repetition spares
-- who came next, and accepts no such token any more.
local upto = tonumber(ARGV[1])
local status, lost, channel = 'absent', '', ''
more(s)
if s.a > 0 and s.a <= upto then
  status = 'ended'
  if s.o ~= KEPT then
    lost, channel = s.o, s.p
    bury(s, lost)
  end
  clear(s)
end
s.t, s.changed = math.max(s.t, upto), true
save(s, was, true)
redis.call('HSET', key, 'u', math.max(upto, tonumber(redis.call('HGET', key, 'u') or 0)))
if lost ~= '' then tell(channel, 'l', lost) end
if status == 'ended' then free(s, '') end
return answer(s, us, redis.call('GET', marker), status, '', false, false)
