-- An entry is a string: a header of decimal numbers of fixed length, then the value.
--   1..2    version and stage: '1l' loading, '1s' stored, '1i' invalidated
--   3..21   token of the last claim
--   22..35  end of the claim, in ms of the server's clock
--   36..49  end of the value, 0 if there is none
--   50..63  ttl of the value in ms
-- The key expires at the later end. Tokens exceed what a Lua number holds exactly, so
-- they are compared as strings.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local entry = redis.call('GETRANGE', KEYS[1], 0, 62)
local stage, token, claimed, ends, ttl = '', '', 0, 0, 0
if entry ~= '' then
  if #entry ~= 63 or not string.find(entry, '^1[lsi]%d+$') then
    return redis.error_reply('FOREIGN the key holds something else')
  end
  stage, token = string.sub(entry, 2, 2), string.sub(entry, 3, 21)
  claimed, ends, ttl = tonumber(string.sub(entry, 22, 35)), tonumber(string.sub(entry, 36, 49)), tonumber(string.sub(entry, 50))
end
local stands = claimed > now

local function header(stage, token, claimed, ends, ttl)
  return string.format('1%s%s%014d%014d%014d', stage, token, claimed, ends, ttl)
end
