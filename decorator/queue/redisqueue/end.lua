-- ARGV[a + 1]  token
-- ARGV[a + 5]  sequence
-- ARGV[a + 6]  attempt
-- ARGV[a + 7]  outcome: done, retry or dead
-- ARGV[a + 8]  pause before the next attempt
-- ARGV[a + 9]  how late the run has started
-- ARGV[a + 10] whether to begin the next: 1 or 0
-- Answers {0} if superseded, or as answer says.
local function op()
  if not was then
    whole()
    return {0}
  end
  local seq, att, nextToo = tonumber(ARGV[a + 5]), tonumber(ARGV[a + 6]), ARGV[a + 10] == '1'
  if ARGV[a + 1] ~= k.token then
    return {0}
  end
  local died, begun, more = 0, nil, 0
  if k.run == 1 and seq == k.head and att == k.att then
    local spacing = tonumber(ARGV[7])
    if spacing > 0 then
      k.next = k.begun + spacing + tonumber(ARGV[a + 9])
    end
    if not nextToo and (k.len > 1 or ARGV[a + 7] == 'retry') then
      publish(math.max(k.next, now)) -- or later, or there is nothing: a listener looks
    end
    if ARGV[a + 7] == 'done' then
      finish('d')
    elseif ARGV[a + 7] == 'dead' or k.att >= tonumber(ARGV[8]) then
      died = kill()
    else
      k.next = math.max(k.next, now + tonumber(ARGV[a + 8]))
    end
    k.run, k.over, k.lseq, k.latt = 0, 1, seq, att
  elseif seq ~= k.lseq or att ~= k.latt then
    return {0}
  else
    nextToo = nextToo or k.run == 1 -- its answer was lost, with the next item in it
  end
  if nextToo then
    begun, more = begin()
  else
    settle()
  end
  prune()
  save()
  return answer(begun, died + more)
end
