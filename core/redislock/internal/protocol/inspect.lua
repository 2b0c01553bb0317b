-- inspect. A place among the first that has ended, and nobody has cleared yet, does not count.
local all, waiting = {}, s.c
for n = s.h, math.min(s.n, s.h + SCAN) - 1 do
  local e = entry(n)
  if e and e.limit <= now then waiting = waiting - 1 end
end
for _, h in ipairs(holders) do
  local n = #all
  all[n + 1], all[n + 2], all[n + 3], all[n + 4] = h.room, text(since(h)), h.x - now, h.p == '' and 1 or 0
  all[n + 5], all[n + 6] = h.p, traced(s.d, h.owner)
end
return {#holders > 0 and 1 or 0, text(s.t), waiting, left(), all}
