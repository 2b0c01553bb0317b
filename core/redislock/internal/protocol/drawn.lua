-- drawn adds an entry to a stream, by redis.call or redis.pcall, and returns the answer: its ID. A stream
-- that is not there begins at half the microseconds of this ms: the server may have lost one that has
-- come less far in it.
local function drawn(call, stream)
  local id = call('XADD', stream, 'NOMKSTREAM', 'MAXLEN', '~', '1', '*', '', '')
  if id then return id end
  local time = redis.call('TIME')
  local ms = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  return call('XADD', stream, 'MAXLEN', '~', '1', ms .. '-' .. math.floor(time[2] % 1000 / 2), '', '')
end
