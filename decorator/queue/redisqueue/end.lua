-- ARGV[13] sequence
-- ARGV[14] attempt
-- ARGV[15] outcome: done, retry or dead
-- ARGV[16] pause before the next attempt
-- ARGV[17] how late the run has started
-- ARGV[18] whether to begin the next: 1 or 0
-- Answers {0} if superseded, or as answer says.
if damaged() then
  return redis.error_reply(lost)
end
local seq, att, nextToo = tonumber(ARGV[13]), tonumber(ARGV[14]), ARGV[18] == '1'
if not known or ARGV[6] ~= k.token then
  return {0}
end
local r, died, begun, more = rules(), 0, nil, 0
if k.run == 1 and seq == k.head and att == k.att then
  if r.spacing > 0 then
    k.next = k.begun + r.spacing + tonumber(ARGV[17])
  end
  if not nextToo and (k.len > 1 or ARGV[15] == 'retry') then
    publish(math.max(k.next, now)) -- or later, or there is nothing: a listener looks
  end
  tick()
  if ARGV[15] == 'done' then
    finish('d')
  elseif ARGV[15] == 'dead' or k.att >= r.attempts then
    died = kill(r.onDead)
  else
    k.next = math.max(k.next, now + tonumber(ARGV[16]))
  end
  k.run, k.over, k.lseq, k.latt = 0, 1, seq, att
elseif seq ~= k.lseq or att ~= k.latt then
  return {0}
else
  tick()
  nextToo = nextToo or k.run == 1 -- its answer was lost, with the next item in it
end
if nextToo then
  begun, more = begin(r)
else
  settle()
end
prune()
save()
return answer(begun, died + more)
