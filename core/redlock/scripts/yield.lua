-- yield: owner, token. Gives back a vote with which no token was accepted, or that one, which
-- nobody was granted. The owner may come again, and keeps its place in the queue.
local owner, token = ARGV[1], tonumber(ARGV[2])
if s.o == owner and (s.a == 0 or s.a == token) then
  clear()
  save(true)
  free(owner)
end
return answer('denied', owner, false, false)
