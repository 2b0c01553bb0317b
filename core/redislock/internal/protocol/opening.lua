-- What the general path of all scripts begins with: the server's time, read once. All times are
-- the server's, in ms.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- How long the hash stays after a lease that nobody has ended, and how long it remembers owners
-- that were given up.
local LINGER = 600000

-- The length of what the names of a shard's keys begin with, which is the name of its stream.
local SHARD = 8

-- A field d keeps an owner and the trace of its request: one for who holds, and TRACES for
-- entries of the queue, by their index.
local TRACES = 32
