-- plain_queue: judge plain takes of one key that came together, first come first served.
-- KEYS[1]      state key      string: paid_us, as plain has it
-- ARGV[1]      now_us         integer; 0 asks the server's clock
-- ARGV[2]      tolerance_us   integer >= 0; the most that may be owed
-- ARGV[2n + 1] cost_us        integer > 0, no more than tolerance_us; what each of some takes costs in time
-- ARGV[2n + 2] takes          integer > 0; how many of this cost come one after the other
-- Returns  debt_us, before the first take; each fits when what is owed by then leaves room for it
-- Writes   KEYS[1] when any fits, as plain does
-- Mirrors  src/algorithm/plain.rs
local call, key, now = redis.call, KEYS[1], ARGV[1] + 0
if now == 0 then
  local clock = call("TIME")
  now = clock[1] * 1000000 + clock[2]
end

local text = call("GET", key)
if text and not string.find(text, "^%d+$") then
  error("foreign value")
end
local before = (text or 0) - now
local debt, tolerance = math.max(before, 0), ARGV[2] + 0
for run = 3, #ARGV, 2 do
  local cost = ARGV[run] + 0
  debt = debt + cost * math.max(math.min(ARGV[run + 1] + 0, math.floor((tolerance - debt) / cost)), 0)
end

local paid = now + debt
if before <= 0 then
  call("SET", key, paid, "PXAT", math.ceil(paid / 1000000) * 1000)
  return 0
elseif debt > before then
  call("INCRBY", key, string.format("%.0f", debt - before))
  call("PEXPIREAT", key, math.ceil(paid / 1000000) * 1000)
end
return before
