-- acquire: owner, channel, length, E, create, wait
local owner, channel, length, e = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local create, wait = ARGV[5] == '1', ARGV[6] == '1'
local i = load()
settle()
local known = i or s.o == owner or not create
local status = seek(owner, channel, length, e, i, create, wait)
save(known)
return {status, text(s.t), s.c, head(), left(), more}
