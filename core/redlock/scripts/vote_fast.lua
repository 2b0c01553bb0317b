-- vote for a free key at which nobody waits, with a token that is accepted, by which no other
-- owner ends, at a node that does not stay out. What the short answer leaves out follows from the
-- request, or is 0.
if ARGV[5] == '0' and ARGV[7] == '' then
  local owner, channel, length, rest, token = ARGV[1], ARGV[2], ARGV[3], ARGV[8], ARGV[9]
  local read = redis.call('HMGET', key, 'o', 't', 'n', 'z', 'k', 'b')
  if (read[1] or '') == '' and ((read[3] or '0') == '0' or redis.call('ZCARD', queue) == 0)
    and not (read[4] and string.find(read[4], owner, 1, true)) then
    local x, boot = now + length, read[6]
    local told = boot and read[5] and x <= read[5] + 0 and read[5] - STEP <= now
    if not told then
      boot = redis.call('GET', marker)
      local left = boot and redis.call('PTTL', marker)
      if left ~= -1 and (rest ~= '0' or (left or 0) < DAY) then boot = nil end -- the marker is to be written
    end
    if boot and token + 0 > math.max(read[2] or 0, boot, us - LINGER * 500) and (rest == '0' or boot / 1000 + rest <= now) then
      local ends = string.format('%.0f', x)
      if told then
        redis.call('HSET', key, 'o', owner, 'p', channel, 'x', ends, 'l', length, 'a', token, 'g', now + 1, 't', token)
      else
        redis.call('HSET', key, 'o', owner, 'p', channel, 'x', ends, 'l', length, 'a', token, 'g', now + 1, 't', token,
          'b', boot, 'k', now + STEP)
        redis.call('PEXPIRE', key, length + LINGER + STEP)
      end
      if ARGV[10] then redis.call('HSET', key, 'd', owner .. ARGV[10]) end
      return {us, (read[3] or 0) + 0, boot + 0}
    end
  end
end
