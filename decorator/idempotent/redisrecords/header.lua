-- A record is a string: a header of fixed length, then the answer.
--   1..2    version and stage: '1b' begun, '1d' done, '1g' given up
--   3..18   the run
--   19..37  the largest token that it was claimed with
--   38..51  until when it cannot be taken over, in ms of the server's clock
--   52..83  the fingerprint
-- Tokens exceed what a Lua number holds exactly, so they are compared as strings.
-- ARGV: run, token, fingerprint, alone and keep in ms.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local found = redis.call('GETRANGE', KEYS[1], 0, 82)
if found ~= '' and (#found ~= 83 or not string.find(found, '^1[bdg]')) then
  return redis.error_reply('FOREIGN the key holds something else')
end
local stage, run, token = string.sub(found, 2, 2), string.sub(found, 3, 18), string.sub(found, 19, 37)
local free, print = tonumber(string.sub(found, 38, 51)) or 0, string.sub(found, 52, 83)

local function header(stage, free)
  return '1' .. stage .. ARGV[1] .. ARGV[2] .. string.format('%014d', free) .. ARGV[3]
end
