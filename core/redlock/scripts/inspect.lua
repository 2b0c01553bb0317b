-- inspect writes nothing. After the usual answer: whose vote it is, its token, since
-- when, whether the key is kept for nobody, and the owners that wait.
local waiting = {}
for _, owner in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
  local limit = place(owner)
  if limit and limit > now and owner ~= s.o then waiting[#waiting + 1] = owner end
end
local r = answer('denied', '', false, false)
r[14], r[15], r[16], r[17] = s.o, s.a, s.g, s.o == KEPT and 1 or 0
r[18] = table.concat(waiting)
return r
