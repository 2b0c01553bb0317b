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

local function store(gathered, key, add, remove, scored)
  local new, old = {}, {}
  for name, value in pairs(gathered) do
    if value == false then
      old[#old + 1] = name
    else
      new[#new + 1] = scored and value or name
      new[#new + 1] = scored and name or value
    end
  end
  if #new > 0 then
    redis.call(add, key, unpack(new))
  end
  if #old > 0 then
    redis.call(remove, key, unpack(old))
  end
end

if changed then
  set.c = cmsgpack.pack(now, off, queued)
  store(set, H, 'HSET', 'HDEL', false)
  store(due, D, 'ZADD', 'ZREM', true)
  store(since, O, 'ZADD', 'ZREM', true)
end
return answers
