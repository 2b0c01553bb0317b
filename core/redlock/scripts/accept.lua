-- accept: owner, channel, length, token, create. A token counts only if it is larger
-- than every one that the node has accepted, and the owner has the node's vote. With
-- create, of an owner that has a majority already, a free vote is taken for it.
local owner, channel, length, token, create = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
local status = 'denied'
more(s)
if ended(s, owner) then
  status = 'over'
elseif create and s.o == '' and token > s.t then
  s.o, s.p = owner, channel
end
if status ~= 'over' and s.o == owner and (token > s.t or token == s.a) then
  status = 'granted'
  accept(s, token)
  extend(s, length)
end
if status ~= 'denied' or create then drop(s, owner) end -- else it goes on waiting
save(s, was, false)
return answer(s, us, redis.call('GET', marker), status, owner, false, false)
