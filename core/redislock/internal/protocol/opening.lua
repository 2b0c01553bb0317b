-- What all scripts begin with: the server's time, read once. All times are the
-- server's, in ms; us is the same moment in microseconds, and stamp is us as text.
local key = KEYS[1]
local time = redis.call('TIME')
local stamp = #time[2] == 6 and time[1] .. time[2] or string.format('%s%06d', time[1], time[2])
local us = stamp + 0
local now = (us - us % 1000) / 1000

-- The hash stays for LINGER after its last lease. So that this needs no PEXPIRE each
-- time, the server is told to keep it for longer: until two STEPs after the one that
-- t is in has begun. Whatever writes t or x sees to it that the
-- hash is kept until then and until x + LINGER, whichever is later.
local LINGER = 3600000
local STEP = 300000

-- WAITING follows the owner in o while anybody waits: the short ways must not take
-- the key for one that nobody waits for.
local WAITING = '*'

-- Next comes a short way for the commonest case, if the script has one. It does
-- what the general way after it would, at a fraction of the cost: defining the
-- general way's functions is much of what that takes. It reads only what it needs.
