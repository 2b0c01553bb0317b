-- Answers {0} if superseded, {1} if there was none and it is begun, or {2, ms that nobody may take it over, record}.
local claimed = tonumber(ARGV[2]) > 0
local function begin()
  redis.call('SET', KEYS[1], header('b', claimed and 0 or now + ARGV[4]), 'PX', ARGV[5])
end
if found == '' or stage == 'g' and run ~= ARGV[1] then
  begin()
  return {1}
end
if stage == 'g' or claimed and stage == 'b' and token > ARGV[2] then
  return {0}
end
local record = stage == 'd' and redis.call('GET', KEYS[1]) or found
local alone = math.max(free - now, 0)
if stage == 'b' and claimed and print == ARGV[3] and (run == ARGV[1] or alone == 0) then
  begin()
end
return {2, alone, record}
