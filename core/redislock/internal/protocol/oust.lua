-- oust: up to. It ends every lease whose token is at most up to, so that repetitions do not end
-- later leases. The token rises, so that guards can refuse the old ones.
local upto = tonumber(ARGV[1])
local over = remove(function(h) return since(h) <= upto end)
if #over > 0 then
  s.t = draw()
  if s.t == 0 then return redis.error_reply('TRYAGAIN the slot moves') end
  s.u = math.max(s.u, upto)
end
for _, h in ipairs(over) do
  if h.p ~= '' then
    bury(h.owner)
    tell(h.p, 'l', h.owner, s.t)
  end
end
promote('')
local failed = save()
if failed then return failed end
return {#over, text(s.t), s.c, more}
