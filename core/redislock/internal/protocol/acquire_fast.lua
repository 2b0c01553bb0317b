-- acquire for a new owner, of the usual E and with room 1. First case: the key is free.
if (ARGV[4] == 'cw' or ARGV[4] == 'c') and not ARGV[6] then
  local owner, channel, trace = ARGV[1], ARGV[2], ARGV[5]
  local read = redis.call('HMGET', key, 'o', 't', 'z')
  local o, length = read[1] or '', ARGV[3] + 0
  local ended = read[3] and string.find(read[3], owner, 1, true)
  if o == '' and not ended then
    local old, t = (read[2] or 0) + 0, us
    if old >= us then
      t = old + 1
      stamp = string.format('%.0f', t)
    end
    if trace then
      redis.call('HSET', key, 'o', owner, 'p', channel, 't', stamp, 'x', now + length, 'l', ARGV[3], 'd', owner .. trace)
    else
      redis.call('HSET', key, 'o', owner, 'p', channel, 't', stamp, 'x', now + length, 'l', ARGV[3])
    end
    local step = t - t % (STEP * 1000)
    if length > STEP or old < step then
      redis.call('PEXPIRE', key, math.max(length, step / 1000 + 2 * STEP - now) + LINGER)
    end
    return stamp
  end

  -- Second case: another owner holds the key alone, its lease is live, and this owner has no
  -- place yet. It gets the last place. The time for which the hash is kept does not change.
  if #o >= 16 and not ended and ARGV[4] == 'cw' and string.sub(o, 1, 16) ~= owner then
    local index = 'i' .. owner
    local q = redis.call('HMGET', key, 'x', 'l', 'n', 'c', 'p', index, 'd')
    local left = q[1] - now
    if left > 0 and left <= q[2] + 0 and not q[6] then
      local e, n, c = length < 3000 and ARGV[3] or '3000', q[3] or '0', (q[4] or 0) + 1
      local entry = owner .. e .. ':' .. string.format('%.0f', now + e) .. ':1:' .. channel
      local head = c == 1 and 1 or 0
      if head == 0 then
        redis.call('HSET', key, 'w' .. n, entry, index, n, 'n', n + 1, 'c', c)
      else
        redis.call('HSET', key, 'w' .. n, entry, index, n, 'n', n + 1, 'c', c, 'o', o .. WAITING)
      end
      if trace then redis.call('HSET', key, 'd' .. n % TRACES, owner .. trace) end
      if head == 1 then redis.pcall('PUBLISH', q[5], 'w' .. o .. read[2] .. ':1:' .. key) end
      local d = q[7]
      d = d and string.sub(d, 1, 16) == string.sub(o, 1, 16) and string.sub(d, 17) or ''
      return {'queued', read[2], c, head, left, 0, q[5], d}
    end
  end
end
