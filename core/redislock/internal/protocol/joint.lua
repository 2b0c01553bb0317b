-- joint runs several of the scripts, each on one of KEYS, in one call. The arguments of
-- each follow its letter and their number. If one fails, for example for lack of memory,
-- the others still run. Its reply is a list with nothing but the error's text: an error
-- inside a reply makes some clients give up the rest of it.
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
