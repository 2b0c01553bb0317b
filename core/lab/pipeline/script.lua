-- About what granting a free lock does: what is there, when, who has it, how long.
local before = redis.call('HMGET', KEYS[1], 'owner', 'token', 'until')
local now = redis.call('TIME')
local token = now[1] .. string.format('%06d', now[2])
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', token)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {ARGV[1], token, before[1]}
