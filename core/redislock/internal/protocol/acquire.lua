-- acquire: owner, channel, length, how [, E, room] [, trace]. In how c stands for create and w for
-- wait; cw may have a number behind it, of places that there may be before a new one. E is 3 s, or less if
-- the length is, and the room 1, if they are not given.
local owner, channel, length, how = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local e, room = math.min(length, 3000), 1
if ARGV[6] then e, room = tonumber(ARGV[5]), tonumber(ARGV[6]) end
local trace = #ARGV % 2 == 1 and ARGV[#ARGV] or ''
local create, wait, most = how == 'c' or how == 'cw', how == 'w' or how == 'cw', nil
if #how > 2 then create, wait, most = true, true, tonumber(string.sub(how, 3)) end
frees = i or holding(owner) or not create
local status = seek(owner, channel, length, e, i, create, wait, room, trace, most)
local failed = save()
if failed then return failed end
if status == 'granted' then
  if s.c == 0 then return token(owner) end
  return {status, token(owner), s.c, 0, 0, more, '', ''}
end
return {status, token(owner), s.c, head(), left(), more, taker()}
