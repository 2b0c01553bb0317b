-- What all scripts begin with. KEYS: the lock's hash, its queue, the node's boot marker.
-- Times are the node's own, read once, in ms; us is the same moment in microseconds.
--
-- The hash: o whose vote it is, p its channel, x when the vote ends, l how long it was
-- given for, a the token accepted with it (0: a bare vote), g when, t the largest
-- token accepted ever, n the largest ticket seen, z the last owners that ended, u up to
-- which token leases were ousted, and e<owner> for each place in the queue:
-- "limit:length:channel". d is an owner and the trace of its request, and counts only while
-- that owner has the vote. p, a and g count only while o is not empty. b is when the node's data
-- began, as the marker has told, and leases that end by k need not ask again. The queue is a sorted
-- set of owners by ticket.
local key, queue, marker = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = (us - us % 1000) / 1000

local LINGER = 3600000 -- how long the hash stays after its last lease
local DAY = 86400000

-- The server is told to keep the hash for a STEP longer than it has to, and k is a STEP from then.
-- So a vote that ends by k need neither tell it again, nor look at the marker. Scripts without k
-- keep the hash for LINGER at least, so that k holds beside them, too. A k of more than a STEP from
-- now is of before the clock went back: it is not believed, and removed before the hash is kept for
-- a shorter time.
local STEP = 300000

-- Next comes a fast path for the commonest case, if the script has one. It does the same as the
-- general path after it, at a fraction of the cost: it reads only what it needs, and the functions
-- of the general path are not made.
