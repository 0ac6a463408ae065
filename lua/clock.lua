-- clock: the instant at which a script evaluates.
-- ARGV[1]  now_us  integer; 0 asks the server's clock
local call, ceil, unpack = redis.call, math.ceil, table.unpack or unpack
local now = ARGV[1] + 0
if now == 0 then
  local clock = call("TIME")
  now = clock[1] * 1000000 + clock[2]
end
