-- renew: owner, length. It never makes what is gone.
local owner = ARGV[1]
local status = 'lost'
if s.o == owner then
  status = 'granted'
  extend(tonumber(ARGV[2]))
  save(true)
  first() -- so that the dead are not counted
end
return answer(status, owner, false, false)
