-- clock: the time of a script call, and when keys expire.
-- ARGV[1]     now_us  integer; 0 asks the server's clock
-- end_of(us)  the end of the second of this instant, in ms, as a text for commands
local call, ceil, unpack = redis.call, math.ceil, table.unpack or unpack
local KEYS, ARGV = KEYS, ARGV
local now = ARGV[1] + 0
if now == 0 then
  local clock = call("TIME")
  now = clock[1] * 1000000 + clock[2]
end
-- Many keys of a batch expire with the same second.
local second, second_text
local function end_of(us)
  if second ~= ceil(us / 1000000) then
    second = ceil(us / 1000000)
    second_text = string.format("%d", second * 1000)
  end
  return second_text
end
