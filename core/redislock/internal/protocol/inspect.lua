-- inspect
local held = 0
local all = {}
local function note(owner, h, room)
  local n = #all
  all[n + 1], all[n + 2], all[n + 3], all[n + 4] = room, text(h.t), h.x - now, h.p == '' and 1 or 0
  all[n + 5], all[n + 6] = h.p, traced(s.d, owner)
end
if s.o ~= '' and s.o ~= SHARED then note(s.o, s, 1) end
for _, h in ipairs(holders) do
  note(h.owner, h, h.room)
end
if s.o ~= '' then held = 1 end
return {held, text(s.t), s.c, left(), all}
