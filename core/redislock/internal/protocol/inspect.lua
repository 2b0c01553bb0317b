-- inspect
local all = {}
for _, h in ipairs(holders) do
  local n = #all
  all[n + 1], all[n + 2], all[n + 3], all[n + 4] = h.room, text(since(h)), h.x - now, h.p == '' and 1 or 0
  all[n + 5], all[n + 6] = h.p, traced(s.d, h.owner)
end
return {#holders > 0 and 1 or 0, text(s.t), s.c, left(), all}
