-- renew: owner, length, token. It never makes what is gone. A vote that is bare or has a
-- smaller token, which a yield still on its way would give back, gets the token, as by accept.
local owner, token = ARGV[1], tonumber(ARGV[3])
local status = 'lost'
more(s)
if s.o == owner and token > s.t then
  accept(s, token)
  drop(s, owner)
end
if s.o == owner and s.a > 0 then
  status = 'granted'
  extend(s, tonumber(ARGV[2]))
  save(s, was, true)
  first(s) -- so that the dead are not counted
end
return answer(s, us, redis.call('GET', marker), status, owner, false, false)
