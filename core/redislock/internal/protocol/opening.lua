-- What all scripts begin with. The hash is read once and the server's time once.
-- All times are the server's, in ms; us is the same moment in microseconds.
local key = KEYS[1]
local read = redis.call('HMGET', key, 'o', 'p', 't', 'x', 'l', 'z', 'h', 'n', 'c',
  'i' .. (ARGV[1] or ''), 'i' .. (ARGV[3] or ''), 's', 'u')
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local LINGER = 3600000 -- how long the hash stays after its last lease

local function text(n) return string.format('%.0f', n) end

-- Next comes a short way for the commonest case, if the script has one. It does
-- what the general way after it would, at half the cost: defining the general
-- way's functions is most of what that takes.
