-- joint runs several of the scripts, each on one of KEYS, at the price of one. Before
-- the arguments of each stand its letter and their number. One that fails, as for lack
-- of memory, leaves the others alone, and is answered by a list of the error's text
-- alone: an error inside of a reply makes some clients give up the rest of it.
local all, at = {}, 0
for n = 1, #KEYS do
  local count = ARGV[at + 2] + 0
  local done, reply = pcall(run[ARGV[at + 1]], KEYS[n], {unpack(ARGV, at + 3, at + 2 + count)})
  if not done then
    if type(reply) == 'table' then reply = reply.err end
    reply = {(string.gsub(tostring(reply), '^-', ''))}
  end
  all[n] = reply
  at = at + 2 + count
end
return all
