-- plain: evaluate one fast-path question about one key, and acquire its permits. It does what debts does for a single
-- row, with a smaller script that pays while nothing else is in flight.
-- KEYS[1]  state key      string: us or us:fraction, the instant at which the debt is paid back
-- ARGV[1]  now_us         integer; 0 asks the server's clock
-- ARGV[2]  cost_us        integer >= 0; the cost in time
-- ARGV[3]  room_us        integer >= 0; the largest debt with which they fit
-- ARGV[4]  cost_fraction  integer >= 0, < 2^32; absent when both fractions are 0
-- ARGV[5]  room_fraction  integer >= 0, < 2^32; absent when both fractions are 0
-- Returns  the debt before the permits are acquired: us, or us:fraction as a text; they fit if it does not exceed
--          the room
-- Writes   KEYS[1] if they fit; it expires at the end of the second in which the debt is paid back, so that within
--          that second one INCRBY is the only write
-- Mirrors  src/algorithm/debt/fast_path.rs
-- `clock` comes before this script.
local format, key = string.format, KEYS[1]

-- Numbers stay texts where possible: an argument that is passed on unchanged needs no conversion, and Lua formats a
-- number faster than the server does.
local text = call("GET", key)
local paid = tonumber(text or 0)
if paid and not ARGV[4] then
  local debt, room = paid - now, ARGV[3] + 0
  if debt > 0 and debt <= room then
    local cost = ARGV[2]
    -- INCRBY itself refuses a value that is not a whole number.
    local paid = call("INCRBY", key, cost)
    if (paid - 1) % 1000000 < cost + 0 then
      call("PEXPIREAT", key, end_of(paid))
    end
    return debt
  elseif text and (debt >= 2 ^ 52 or not string.find(text, "^[1-9]%d*$")) then
    -- No debt is this large, and a reply has no room for much more.
    error("corrupt value")
  elseif debt <= 0 then
    local paid = now + ARGV[2]
    call("SET", key, format("%d", paid), "PXAT", end_of(paid))
    return 0
  end
  return debt
end

local us, fraction = 0, 0
if text then
  us, fraction = string.match(text, "^([1-9]%d*):?(%d*)$")
  if not us or (fraction == "") ~= (paid ~= nil) or string.find(fraction, "^0") then
    error("corrupt value")
  end
  us, fraction = us + 0, fraction == "" and 0 or fraction + 0
  if us - now >= 2 ^ 52 or fraction >= 4294967296 then
    error("corrupt value")
  end
end
local debt, room = us - now, ARGV[3] + 0
if debt < 0 then
  debt, fraction = 0, 0
end
if debt < room or (debt == room and fraction <= (ARGV[5] or 0) + 0) then
  local paid, part = now + debt + ARGV[2], fraction + (ARGV[4] or 0)
  if part >= 4294967296 then
    paid, part = paid + 1, part - 4294967296
  end
  local value = format(part > 0 and "%d:%d" or "%d", paid, part)
  call("SET", key, value, "PXAT", end_of(part > 0 and paid + 1 or paid))
end
return fraction > 0 and format("%d:%d", debt, fraction) or debt
