-- ARGV[a + 1]  ID
-- Answers {} if there is none, or {state, sequence, attempts, items ahead, ended, parked}.
local function op()
  local old = known(ARGV[a + 1])
  if not old then
    return {}
  end
  local state, seq = string.sub(old, 1, 1), tonumber(string.match(old, '^.(%d+)'))
  if state == 'w' then
    local att = 0
    if seq == k.head then
      att = k.att
      if k.run == 1 then
        state = 'r'
      end
    end
    return {state, seq, att, seq - k.head, 0, 0}
  end
  local att, ended = string.match(old, ':(%d+):(%d+)$')
  att, ended = tonumber(att), tonumber(ended)
  local parked = 0
  if k.parked == 1 and seq == k.head then
    parked = 1
  elseif now - ended >= keepFor then
    return {}
  end
  return {state, seq, att, 0, ended, parked}
end
