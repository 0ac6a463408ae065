-- plain_pack: judge plain takes of a subject whose states share a key; take all of them or none. Stands in
-- place of decide where it can, as plain does.
-- KEYS[1]  pack     a msgpack map, see states
-- ARGV[1]  now_us   integer; 0 asks the server's clock
-- ARGV[2]  takes    msgpack array: of each take its field, its cost_us and its room_us, as plain has them
-- Returns  debt_us of each take, before the permits are taken; each fits when it is no more than its room_us.
--          In place of them -1, when a state is no whole number, or stands alone, and decide is to be asked
-- Writes   KEYS[1] when all fit; it expires at the end of the second in which its last state does
-- Mirrors  src/algorithm/plain.rs
local call, max = redis.call, math.max
local now = ARGV[1] + 0
if now == 0 then
  local clock = call("TIME")
  now = clock[1] * 1000000 + clock[2]
end

-- Returns the debts and, if anything is to be written, that and when it expires.
local function judge(takes)
  local text, pack, behind = call("GET", KEYS[1]), {}, -1
  if text then
    behind, pack = cmsgpack.unpack_one(text)
    -- A pack of this crate is never empty and has nothing after it.
    if behind ~= -1 or next(pack) == nil then
      error("foreign value")
    end
  end
  local debts, count, all_fit = {}, 0, true
  for take = 1, #takes, 3 do
    local debt = max((pack[takes[take]] or 0) - now, 0)
    -- No debt is this large: a reply has no room for much more, and none for a fraction.
    if not (debt < 2 ^ 52 and debt % 1 == 0) then
      error("foreign value")
    end
    count = count + 1
    debts[count], all_fit = debt, all_fit and debt <= takes[take + 2]
  end
  if not all_fit then
    return debts
  end

  for take = 1, count do
    local at = take * 3 - 2
    pack[takes[at]] = now + debts[take] + takes[at + 1]
  end
  local latest, too_late = now, now + 2 ^ 52
  -- As in `states`.
  local grace_us = 3600000000
  for field, state in pairs(pack) do
    local expires = type(state) == "table" and state[2] or state
    if type(field) ~= "string" or type(expires) ~= "number" or not (expires < too_late) then
      error("foreign value")
    elseif expires > latest then
      latest = expires
    elseif expires + grace_us <= now then
      pack[field] = nil
    end
  end
  return debts, cmsgpack.pack(pack), math.ceil(latest / 1000000) * 1000
end

local is_readable, debts, after, ends = pcall(judge, cmsgpack.unpack(ARGV[2]))
if not is_readable then
  return -1
elseif after then
  call("SET", KEYS[1], after, "PXAT", ends)
end
return debts
