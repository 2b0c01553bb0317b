-- renew: owner, length, token. It never makes what is gone. A vote that is bare or has a
-- smaller token, which a yield still on its way would give back, gets the token, as by accept.
local owner, token = ARGV[1], tonumber(ARGV[3])
local status = 'lost'
if s.o == owner and token > s.t then
  accept(token)
  drop(owner)
end
if s.o == owner and s.a > 0 then
  status = 'granted'
  extend(tonumber(ARGV[2]))
  save(true)
  first() -- so that the dead are not counted
end
return answer(status, owner, false, false)
