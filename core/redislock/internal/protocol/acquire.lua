-- acquire: owner, channel, length, E, create, wait, room
local owner, channel, length, e = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local create, wait, room = ARGV[5] == '1', ARGV[6] == '1', tonumber(ARGV[7])
local i = load()
settle()
local known = i or holding(owner) or not create
local status = seek(owner, channel, length, e, i, create, wait, room)
save(known)
if status == 'granted' then
  if s.c == 0 then return token(owner) end
  return {status, token(owner), s.c, 0, 0, more}
end
return {status, text(s.t), s.c, head(), left(), more}
