-- renew: owner, ttl
local owner = ARGV[1]
load()
settle()
local status = 'lost'
if s.o == owner then
  status = 'ok'
  extend(tonumber(ARGV[2]))
else
  promote('')
end
save(true)
return {status, text(s.t), s.c}
