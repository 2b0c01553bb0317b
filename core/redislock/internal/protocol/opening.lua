-- What all scripts begin with: the server's time, read once. All times are the
-- server's, in ms; us is the same moment in microseconds, and stamp is us as text.
local key = KEYS[1]
local time = redis.call('TIME')
local stamp = #time[2] == 6 and time[1] .. time[2] or string.format('%s%06d', time[1], time[2])
local us = stamp + 0
local now = (us - us % 1000) / 1000

-- The hash stays for LINGER after its last lease. The server is told to keep it for
-- longer, so that most runs need no PEXPIRE: until two STEPs after the beginning of the
-- one that t is in. All code that writes t or x keeps the hash until then and until
-- x + LINGER, whichever is later.
local LINGER = 3600000
local STEP = 300000

-- WAITING follows the owner in o while anybody waits, so that the fast paths know it.
local WAITING = '*'

-- A field d keeps an owner and the trace of its request: one for who holds, and TRACES for
-- entries of the queue, by their index.
local TRACES = 32

-- Next comes a fast path for the commonest case, if the script has one. It does the same
-- as the general path after it, at a fraction of the cost: it reads only what it needs,
-- and the functions of the general path are not defined.
