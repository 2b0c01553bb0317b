-- An entry is a string: a header of decimal numbers of fixed length, then the value.
--   1..2    version and stage: '1l' loading, '1s' stored, '1i' invalidated
--   3..21   token of the last claim
--   22..35  end of the claim, in ms of the server's clock
--   36..49  end of the value, 0 if there is none
-- The key expires at the later end. Tokens exceed what a Lua number holds exactly, so
-- they are compared as strings.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local entry = redis.call('GETRANGE', KEYS[1], 0, 48)
local known, stage, token, claimed, ends = entry ~= '', '', '', 0, 0
if known then
  local s, t, c, e = string.match(entry, '^1([lsi])(%d+)$'), string.sub(entry, 3, 21), string.sub(entry, 22, 35), string.sub(entry, 36)
  if not s or #entry ~= 49 then
    return redis.error_reply('FOREIGN the key holds something else')
  end
  stage, token, claimed, ends = s, t, tonumber(c), tonumber(e)
end
local stands = claimed > now

local function header(stage, token, claimed, ends)
  return string.format('1%s%s%014d%014d', stage, token, claimed, ends)
end
