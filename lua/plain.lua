-- plain: judge one plain take of one key, and take it. Stands in place of decide where it can: gcra,
-- token bucket and leaky bucket without delay, at rates that need no fraction of a microsecond.
-- KEYS[1]  state key    string: paid_us, the instant at which nothing is owed any more; any other form
--                       raises an error before anything is written, and decide is asked
-- ARGV[1]  cost_us      integer > 0; what the permits take in time
-- ARGV[2]  room_us      integer >= 0; the most debt with which they fit
-- ARGV[3]  now_us       integer; absent asks the server's clock
-- Returns  debt_us, before the permits are taken; they fit when it is no more than room_us
-- Writes   KEYS[1] when they fit; it expires at the end of the second in which nothing is owed any more,
--          so that within that second one INCRBY is all there is to write
-- Mirrors  src/algorithm/plain.rs
local call, format, key, now = redis.call, string.format, KEYS[1], ARGV[3]
if not now then
  local clock = call("TIME")
  now = clock[1] * 1000000 + clock[2]
end

-- Numbers stay texts here: passing an argument on unchanged is cheaper than converting a number,
-- and a text made in Lua is cheaper than one made by the server.
local text = call("GET", key)
local debt = (text or 0) - now
if debt > 0 and debt <= ARGV[2] + 0 then
  local cost = ARGV[1]
  -- INCRBY itself refuses a value that is not a whole number.
  local paid = call("INCRBY", key, cost)
  if (paid - 1) % 1000000 < cost + 0 then
    call("PEXPIREAT", key, format("%d", math.ceil(paid / 1000000) * 1000))
  end
  return debt
elseif text and (debt >= 2 ^ 52 or not string.find(text, "^%d+$")) then
  -- No debt is this large, and a reply has no room for much more.
  error("foreign value")
elseif debt <= 0 then
  local paid = now + ARGV[1]
  call("SET", key, format("%d", paid), "PXAT", format("%d", math.ceil(paid / 1000000) * 1000))
  return 0
end
return debt
