-- end of a lease that is held alone and live, without keep. heir is the next owner, if any.
-- First case: nobody waits. The key becomes free, or the heir's.
if ARGV[2] == '0' then
  local owner, heir = ARGV[1], ARGV[3]
  local read = redis.call('HMGET', key, 'o', 'x', 'z')
  local o, left = read[1] or '', (read[2] or 0) - now
  -- A server out of memory refuses the writes here; the general path copes with that.
  if left <= 0 or left > LINGER or heir and ARGV[7] ~= '1' then
    o = ''
  elseif o == owner then
    local z = owner .. string.sub(read[3] or '', 1, 48)
    if not heir then
      if type(redis.pcall('HSET', key, 'o', '', 'p', '', 'z', z)) == 'number' then return 1 end
    elseif not string.find(z, heir, 1, true) then
      local old, t, length = redis.call('HGET', key, 't') + 0, us, ARGV[5] + 0
      if old >= us then
        t = old + 1
        stamp = string.format('%.0f', t)
      end
      local step = t - t % (STEP * 1000)
      if length > STEP or old < step then
        redis.call('PEXPIRE', key, math.max(length, step / 1000 + 2 * STEP - now) + LINGER)
      end
      local done = redis.pcall('HSET', key, 'o', heir, 'p', ARGV[4], 't', stamp, 'x', now + length, 'l', ARGV[5], 'z', z)
      if type(done) == 'number' then
        if ARGV[8] then redis.pcall('HSET', key, 'd', heir .. ARGV[8]) end
        return {'ended', stamp, 0, 0, 'granted', 0, length, '0', '', ''}
      end
    end
  end

  -- Second case: others wait, and the place of the first of them is live and exclusive. The
  -- first gets the key, and the heir the last place.
  if o == owner .. WAITING then
    local q = redis.call('HMGET', key, 't', 'h', 'n', 'c', 'i' .. (heir or ''))
    local z = owner .. string.sub(read[3] or '', 1, 48)
    local h, n, c = (q[2] or 0) + 0, q[3], q[4] - 1
    local found = redis.call('HMGET', key, 'w' .. h, 'd' .. h % TRACES)
    local w = found[1]
    if w and not q[5] and not (heir and string.find(z, heir, 1, true))
      and (c == 0 or redis.call('HEXISTS', key, 'w' .. h + 1) == 1) then
      local first = string.sub(w, 1, 16)
      local e, limit, room, channel = string.match(w, '^(%d+):(%d+):(%d+):(.*)$', 17)
      left = math.min(limit - now, e + 0)
      if left > 0 and room == '1' then
        local old, t = q[1] + 0, us
        if old >= us then
          t = old + 1
          stamp = string.format('%.0f', t)
        end
        left = math.max(left, math.floor(e / 3))
        local step = t - t % (STEP * 1000)
        if left > STEP or old < step then
          redis.call('PEXPIRE', key, math.max(left, step / 1000 + 2 * STEP - now) + LINGER)
        end
        local next = c == 0 and n or h + 1
        local done
        if heir then
          local entry = heir .. ARGV[6] .. ':' .. string.format('%.0f', now + ARGV[6]) .. ':1:' .. ARGV[4]
          c = c + 1
          done = redis.pcall('HSET', key, 'o', first .. WAITING, 'p', channel, 't', stamp, 'x', now + left, 'l', e,
            'z', z, 'h', next, 'c', c, 'w' .. n, entry, 'i' .. heir, n, 'n', n + 1)
        else
          done = redis.pcall('HSET', key, 'o', c > 0 and first .. WAITING or first, 'p', channel, 't', stamp,
            'x', now + left, 'l', e, 'z', z, 'h', next, 'c', c)
        end
        if type(done) == 'number' then
          local trace, d = '', found[2]
          if d and string.sub(d, 1, 16) == first then
            trace = string.sub(d, 17)
            redis.pcall('HSET', key, 'd', d)
          end
          if heir and ARGV[8] then redis.pcall('HSET', key, 'd' .. n % TRACES, heir .. ARGV[8]) end
          redis.call('HDEL', key, 'w' .. h, 'i' .. first)
          redis.pcall('PUBLISH', channel, 'g' .. first .. stamp .. ':' .. c .. ':' .. key)
          if heir then return {'ended', stamp, c, 0, 'queued', c == 1 and 1 or 0, left, '0', channel, trace} end
          return {'ended', stamp, c, 0, '', 0, left, '0', '', ''}
        end
      end
    end
  end
end
