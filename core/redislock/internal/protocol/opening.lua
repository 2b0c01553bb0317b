-- What all scripts begin with: the server's time, read once. All times are the
-- server's, in ms; us is the same moment in microseconds, and stamp is us as text.
local key = KEYS[1]
local time = redis.call('TIME')
local stamp = #time[2] == 6 and time[1] .. time[2] or string.format('%s%06d', time[1], time[2])
local us = stamp + 0
local now = (us - us % 1000) / 1000

-- The hash stays for LINGER after the end of its last lease, and up to STEP longer:
-- until a moment that stands still while x moves within one STEP. Whatever writes x
-- sees to it that the server keeps the hash until stays(x), so that a new x within
-- the STEP of the old needs no PEXPIRE.
local LINGER = 3600000
local STEP = 300000

-- Next comes a short way for the commonest case. It does what the general way
-- after it would, at a fraction of the cost: defining the general way's functions
-- is much of what that takes. It reads what it needs of the hash, and o, t and x in
-- any case.
