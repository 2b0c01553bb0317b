-- yield: owner. Gives back a vote with which no token was accepted. The owner may come
-- again, and keeps its place in the queue.
local owner = ARGV[1]
if s.o == owner and s.a == 0 then
  clear()
  save(true)
  free(owner)
end
return answer('denied', owner, false, false)
