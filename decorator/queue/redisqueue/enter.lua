-- Puts the key into the index of the shard, if that is a new one.
-- Answers 1, or 0 if the server has lost what the key is called.
local function op()
  if not was then
    whole()
    return 1
  end
  if k.index ~= index then
    save()
  end
  return k.index == index and 1 or 0
end
