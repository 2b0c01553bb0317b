-- oust ends every lease whose token is at most ARGV[1], so that a repetition does not end
-- later leases. The token rises, so that guards can refuse the old ones.
local upto = tonumber(ARGV[1])
local over = {}
if s.o == SHARED then
  for i = #holders, 1, -1 do
    if holders[i].t <= upto then table.insert(over, 1, table.remove(holders, i)) end
  end
  share()
elseif s.o ~= '' and s.t <= upto then
  over[1] = {owner = s.o, p = s.p}
  s.o, s.p = '', ''
end
if #over > 0 then s.t, s.u = math.max(s.t + 1, us), math.max(s.u, upto) end
for _, h in ipairs(over) do
  if h.p ~= '' then
    bury(h.owner)
    tell(h.p, 'l', h.owner, s.t)
  end
end
promote('')
save(true)
return {#over, text(s.t), s.c, more}
