-- end of a lease that nobody waits for, if no late copy of its request has to be refused.
if ARGV[2] == '' and ARGV[3] == '0' and not ARGV[4] then
  local value = redis.pcall('GET', KEYS[1])
  if type(value) == 'string' and string.sub(value, 1, 16) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
  end
end
