-- inspect
local held = 0
local all = {}
local function note(room, t, x, kept)
  local n = #all
  all[n + 1], all[n + 2], all[n + 3], all[n + 4] = room, text(t), x - now, kept
end
if s.o == KEPT then
  note(1, s.t, s.x, 1)
elseif s.o ~= '' and s.o ~= SHARED then
  note(1, s.t, s.x, 0)
end
for _, h in ipairs(holders) do
  note(h.room, h.t, h.x, h.p == '' and 1 or 0)
end
if s.o ~= '' then held = 1 end
return {held, text(s.t), s.c, left(), all}
