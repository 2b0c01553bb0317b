-- Answers {0} if superseded, or as answer says.
if damaged() then
  return redis.error_reply(lost)
end
local token = ARGV[6]
if not known then
  return answer(nil, 0)
end
if token < k.token or token == k.token and k.over == 1 and k.lseq > 0 then
  return {0}
end
if token == k.token and k.over == 1 then
  return answer(nil, 0) -- it has found nothing
end
tick()
if token > k.token then
  k.token, k.over, k.run, k.lseq, k.latt = token, 0, 0, 0, 0
end
local begun, died = begin(rules())
if not begun then
  k.over = 1
end
prune()
save()
return answer(begun, died)
