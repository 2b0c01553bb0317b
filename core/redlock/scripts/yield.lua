-- yield: owner, token. Gives back a vote with which no token was accepted, or that one, which
-- nobody was granted. The owner may come again, and keeps its place in the queue.
local owner, token = ARGV[1], tonumber(ARGV[2])
more(s)
if s.o == owner and (s.a == 0 or s.a == token) then
  clear(s)
  save(s, was, true)
  free(s, owner)
end
return answer(s, us, redis.call('GET', marker), 'denied', owner, false, false)
