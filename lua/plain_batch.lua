-- plain_batch: judge plain takes that came together, of one key or of many, first come first served.
-- KEYS[n]        state keys   strings, distinct: paid_us, as plain has it; or a pack, see states, with that under the
--                             empty field: of a limit that had further rates, or has them in other processes
-- ARGV[1]        now_us       integer; 0 asks the server's clock
-- ARGV[row]      cost_us      integer > 0; what each of some equal takes costs in time; row = 2, then row + 4
-- ARGV[row + 1]  room_us      integer >= 0; the most debt with which one fits
-- ARGV[row + 2]  takes        integer > 0; how many of them each key has, one after the other
-- ARGV[row + 3]  keys         integer; how many keys, the next ones, have such takes; 0: the last one has, too
-- Returns  for each key of each row debt_us, before the first of its takes; each take fits when what is
--          owed by then is no more than its room. -1 of a foreign value, and an error of a key that the
--          server does not write: such a key fails alone, and is left as it is
-- Writes   each key of which any fits, as plain does, or a pack as states does
-- Mirrors  src/algorithm/plain.rs
local call, floor, ceil, max = redis.call, math.floor, math.ceil, math.max
local unpack = table.unpack or unpack
local now = ARGV[1] + 0
if now == 0 then
  local clock = call("TIME")
  now = clock[1] * 1000000 + clock[2]
end

local texts = call("MGET", unpack(KEYS))
local debts, answers, at, row, left = {}, 0, 0, 2, nil

-- Numbers as texts for commands. Most keys without debt get the same text.
local texts_of = {}
local function text_of(number)
  local text = texts_of[number]
  if not text then
    text = string.format("%d", number)
    texts_of[number] = text
  end
  return text
end

-- No debt is this large: a reply has no room for much more.
local too_late = now + 2 ^ 52
local function is_foreign(text)
  return type(text) == "string" and (not string.find(text, "^[1-9]%d*$") or text + 0 >= too_late)
end

-- For each key whose state is in a pack, the function that writes it there.
local writers = {}

-- Raises an error at a key that fails; called again, it goes on after that key.
local function judge()
  while row < #ARGV do
    local cost_text, room, takes = ARGV[row], ARGV[row + 1] + 0, ARGV[row + 2] + 0
    local cost = cost_text + 0
    if not left then
      left = ARGV[row + 3] + 0
      if left == 0 then
        left, at = 1, at - 1
      end
    end
    while left > 0 do
      left, at, answers = left - 1, at + 1, answers + 1
      local key, text = KEYS[at], texts[at]
      local debt = (text or 0) - now
      -- INCRBY refuses what is no whole number by itself. Of "nan" no comparison is true.
      if not (debt > 0 and debt <= room) and is_foreign(text) then
        error("foreign value")
      end
      if debt <= room then
        local sum, sum_text = cost, cost_text
        if takes > 1 then
          sum = cost * math.min(takes, floor((room - max(debt, 0)) / cost) + 1)
          sum_text = text_of(sum)
        end
        local paid
        if writers[at] then
          debt = max(debt, 0)
          paid = now + debt + sum
          writers[at](paid)
        elseif debt > 0 then
          paid = call("INCRBY", key, sum_text)
          if (paid - 1) % 1000000 < sum then
            call("PEXPIREAT", key, text_of(ceil(paid / 1000000) * 1000))
          end
        else
          debt, paid = 0, now + sum
          -- MGET tells nothing of what is no string.
          local ends = text_of(ceil(paid / 1000000) * 1000)
          if not call("SET", key, text_of(paid), "PXAT", ends, text and "XX" or "NX") then
            texts[at] = "of another type"
            error("foreign value")
          end
        end
        texts[at] = paid
      end
      debts[answers] = debt
    end
    row, left = row + 4, nil
  end
end

repeat
  local is_over, why = pcall(judge)
  if not is_over then
    if not left then
      error(why)
    end
    -- Has the state of a pack stand in `texts` as if it stood alone. Most trips meet none, and to small ones it
    -- makes a difference whether they make this.
    local function open_pack()
      -- As in `states`.
      local grace_us = 3600000000
      local behind, pack = cmsgpack.unpack_one(texts[at])
      -- A pack of this crate is never empty and has nothing after it.
      if behind ~= -1 or next(pack) == nil then
        error("foreign value")
      end
      local state, latest, is_alone = pack[""] or 0, 0, true
      -- A state that is not a whole number is left to another script.
      if type(state) ~= "number" or state % 1 ~= 0 then
        error("another form")
      end
      for field, entry in pairs(pack) do
        local expires = type(entry) == "table" and entry[2] or entry
        if type(field) ~= "string" or type(expires) ~= "number" or not (expires < too_late) then
          error("foreign value")
        elseif expires + grace_us <= now then
          pack[field] = nil
        elseif field ~= "" then
          latest, is_alone = max(latest, expires), false
        end
      end
      local key = KEYS[at]
      texts[at] = state
      writers[at] = function(paid)
        pack[""] = paid
        local text = is_alone and text_of(paid) or cmsgpack.pack(pack)
        call("SET", key, text, "PXAT", text_of(ceil(max(latest, paid) / 1000000) * 1000))
      end
    end
    if is_foreign(texts[at]) and pcall(open_pack) then
      -- Judge it again, as if it stood alone.
      left, at, answers = left + 1, at - 1, answers - 1
    else
      debts[answers] = is_foreign(texts[at]) and -1 or type(why) == "table" and why or {err = why}
    end
  end
until is_over
return debts
