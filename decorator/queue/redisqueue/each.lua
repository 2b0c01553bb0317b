-- Runs op for each of the keys, and stores what was gathered. Answers what op has returned, or the
-- error that it has raised, for each of them.
local function one(n)
  load(n)
  return op()
end

local answers = {}
for n = 0, (#KEYS - 4) / 3 - 1 do
  local ok, result = pcall(one, n)
  if not ok and type(result) ~= 'table' then
    result = redis.error_reply('ERR ' .. tostring(result))
  end
  answers[n + 1] = result
end

-- sorted returns what is to be stored, and what is to be removed.
local function sorted(gathered, scored)
  local new, old = {}, {}
  for name, value in pairs(gathered) do
    if value == false then
      old[#old + 1] = name
    else
      new[#new + 1] = scored and value or name
      new[#new + 1] = scored and name or value
    end
  end
  return new, old
end

if changed then
  put(D, sorted(due, true))
  put(O, sorted(since, true))
  put(P, sorted(held, true))
  local new, old = sorted(set, false)
  if #new > 0 then
    redis.call('HSET', H, unpack(new))
  end
  if #old > 0 then
    redis.call('HDEL', H, unpack(old))
  end
  tick()
end
return answers
