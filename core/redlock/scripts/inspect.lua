-- inspect writes nothing. After the usual answer: whose vote it is, its token, since
-- when, whether the key is kept for nobody, and the owners that wait.
local waiting = {}
for _, owner in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
  local limit = place(s, owner)
  if limit and limit > now and owner ~= s.o then waiting[#waiting + 1] = owner end
end
local r = answer(s, us, redis.call('GET', marker), 'denied', '', false, false)
r[13], r[14], r[15], r[16] = s.o, s.a, s.g, s.o == KEPT and 1 or 0
r[17] = table.concat(waiting)
return r
