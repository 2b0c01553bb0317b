-- begin adds an entry to a stream. One that is not there begins at half the microseconds of this ms: the
-- server may have lost one that has come less far in it.
local id = redis.call('XADD', KEYS[1], 'NOMKSTREAM', 'MAXLEN', '~', '1', '*', '', '')
if id then return id end
local time = redis.call('TIME')
local ms = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
return redis.call('XADD', KEYS[1], 'MAXLEN', '~', '1', ms .. '-' .. math.floor(time[2] % 1000 / 2), '', '')
