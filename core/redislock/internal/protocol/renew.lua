-- renew: owner, ttl, share, token
local status, mark = 'lost', text(s.t)
local h = holding(ARGV[1])
if h then
  if h.t == 0 then h.t = tonumber(ARGV[4]) end
  s.t = math.max(s.t, h.t)
  status, mark = 'ok', text(h.t)
  extend(h, tonumber(ARGV[2]))
  if ARGV[3] == '1' and h.room == 1 then h.room = 0 end -- from here on others may share
end
promote('')
local failed = save()
if failed then return failed end
if status == 'ok' and s.c == 0 then return mark end
return {status, mark, s.c}
