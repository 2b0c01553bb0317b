-- renew: owner, length, token. It never makes what is gone. A bare vote, which a yield
-- that is still on its way would give back, becomes one with the token, as by accept.
local owner, token = ARGV[1], tonumber(ARGV[3])
local status = 'lost'
if s.o == owner and s.a == 0 and token > s.t then
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
