-- ARGV[a + 1]  token
-- Answers {0} if superseded, or as answer says.
local function op()
  if not was then
    whole()
    return answer(nil, 0)
  end
  if k.len > 0 then
    first()
  end
  local token = ARGV[a + 1]
  if token < k.token or token == k.token and k.over == 1 and k.lseq > 0 then
    return {0}
  end
  if token == k.token and k.over == 1 then
    return answer(nil, 0) -- it has found nothing
  end
  if token > k.token then
    k.token, k.over, k.run, k.lseq, k.latt = token, 0, 0, 0, 0
  end
  local begun, died = begin()
  if not begun then
    k.over = 1
  end
  prune()
  save()
  return answer(begun, died)
end
