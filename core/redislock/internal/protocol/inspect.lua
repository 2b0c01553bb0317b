-- inspect
load()
settle()
local held = 0
if s.o ~= '' then held = 1 end
return {held, text(s.t), s.c, left()}
