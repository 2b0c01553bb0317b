-- vote: owner, channel, length, place's length, ticket (0: none), wait, the owner that
-- ends (or ''), how long a node stays out that has lost its data, token [, trace]. A free
-- vote is given with the token, as by accept, unless that is of a time when others may have
-- had larger ones that the node has forgotten: before its data began, or long ago.
local owner, channel, length = ARGV[1], ARGV[2], tonumber(ARGV[3])
local ticket, wait, old, rest, token = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])

-- The marker stays for ever only if nodes are to stay out, for which it is needed after
-- the longest silence.
local boot = redis.call('GET', marker)
local left = boot and redis.call('PTTL', marker) or 0
boot = tonumber(boot) or us
if left >= 0 and rest > 0 then
  redis.call('SET', marker, boot)
elseif left >= 0 and left < DAY then
  redis.call('SET', marker, boot, 'PX', 2 * DAY)
end
local out = rest > 0 and boot / 1000 + rest > now

local freed = false
if old ~= '' then
  if s.o == old then
    clear(s)
    freed = true
  end
  drop(s, old)
  bury(s, old)
end

local status, head, firm = 'denied', false, false
local holder = ''
if ended(s, owner) then
  status = 'over'
  drop(s, owner)
elseif s.o == owner then
  status = 'granted'
  more(s)
  extend(s, length)
elseif out then
  status = 'out'
else
  if ticket > 0 then
    s.queued = true
    redis.call('ZADD', queue, 'NX', ticket, owner)
    redis.call('HSET', key, 'e' .. owner, now + ARGV[4] .. ':' .. ARGV[4] .. ':' .. channel)
    redis.call('PEXPIRE', queue, LINGER)
    if ticket > s.n then
      s.n = ticket
      redis.call('HSET', key, 'n', ticket)
    end
  end
  local one = first(s)
  head = one == owner
  if s.o == '' and (head or not one) then
    status = 'granted'
    s.o, s.p, s.a, s.g = owner, channel, 0, now
    if token > math.max(s.t, boot, us - LINGER * 500) then accept(s, token) end
    if ARGV[10] then redis.call('HSET', key, 'd', owner .. ARGV[10]) end
    extend(s, length)
  else
    more(s)
    firm = s.o == KEPT or s.a > 0 or (one and not head)
    if head or not wait then holder = s.o end
  end
end
save(s, was, false)
if freed and s.o == '' then free(s, owner) end
if holder ~= '' then tell(s.p, 'w', holder) end
return answer(s, us, boot, status, owner, head, firm)
