-- ARGV[6]: the answer. Answers whether it is stored.
if found ~= '' and (stage == 'g' or run ~= ARGV[1]) then
  return 0
end
if stage ~= 'd' then
  redis.call('SET', KEYS[1], header('d', 0) .. ARGV[6], 'PX', ARGV[5])
end
return 1
