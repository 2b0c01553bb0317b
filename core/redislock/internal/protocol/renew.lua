-- renew: owner, ttl, share
local owner = ARGV[1]
local status, mark = 'lost', text(s.t)
local h = holding(owner)
if h then
  status, mark = 'ok', text(h.t)
  extend(h, tonumber(ARGV[2]))
  if ARGV[3] == '1' and h == s then
    -- From here on others may share. Who holds alone holds the latest token.
    holders[1] = {owner = owner, p = s.p, room = 0, t = s.t, x = s.x, l = s.l}
    share()
  end
end
if h ~= s or s.o ~= owner then promote('') end
save(true)
if status == 'ok' and s.c == 0 then return mark end
return {status, mark, s.c}
