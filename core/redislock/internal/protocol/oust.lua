-- oust ends every lease. The token rises, so that the ousted holders' writes fail
-- from here on, whoever is next.
load()
settle()
local n = #holders
if s.o ~= '' then
  s.t = math.max(s.t + 1, us)
  if s.o ~= SHARED then
    n = 1
    if s.o ~= KEPT then
      bury(s.o)
      tell(s.p, 'l', s.o, s.t)
    end
  end
  for _, h in ipairs(holders) do
    if h.p ~= '' then
      bury(h.owner)
      tell(h.p, 'l', h.owner, s.t)
    end
  end
  holders = {}
  s.o, s.p = '', ''
end
promote('')
save(true)
return {n, text(s.t), s.c, more}
