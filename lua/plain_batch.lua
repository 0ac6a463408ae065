-- plain_batch: judge plain takes that came together, of one key or of many, first come first served.
-- KEYS[n]        state keys   strings, distinct: paid_us, as plain has it
-- ARGV[1]        now_us       integer; 0 asks the server's clock
-- ARGV[row]      cost_us      integer > 0; what each of some equal takes costs in time; row = 2, then row + 4
-- ARGV[row + 1]  room_us      integer >= 0; the most debt with which one fits
-- ARGV[row + 2]  takes        integer > 0; how many of them each key has, one after the other
-- ARGV[row + 3]  keys         integer; how many keys, the next ones, have such takes; 0: the last one has, too
-- Returns  for each key of each row debt_us, before the first of its takes; each take fits when what is
--          owed by then is no more than its room. -1 of a foreign value, and an error of a key that the
--          server does not write: such a key fails alone, and is left as it is
-- Writes   each key of which any fits, as plain does
-- Mirrors  src/algorithm/plain.rs
local call, floor, ceil = redis.call, math.floor, math.ceil
local unpack = table.unpack or unpack
local now = ARGV[1] + 0
if now == 0 then
  local clock = call("TIME")
  now = clock[1] * 1000000 + clock[2]
end

local texts = call("MGET", unpack(KEYS))
local debts, answers, at, row, left = {}, 0, 0, 2, nil

-- Numbers as commands take them. Who owes nothing is written alike, most of the time.
local texts_of = {}
local function text_of(number)
  local text = texts_of[number]
  if not text then
    text = string.format("%.0f", number)
    texts_of[number] = text
  end
  return text
end

-- Nobody owes so much: a reply has no room for much more.
local function is_foreign(text)
  return type(text) == "string" and (not string.find(text, "^[1-9]%d*$") or text - now >= 2 ^ 52)
end

-- Raises an error at a key that fails; called again, it goes on behind that.
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
          sum = cost * math.min(takes, floor((room - math.max(debt, 0)) / cost) + 1)
          sum_text = text_of(sum)
        end
        local paid
        if debt > 0 then
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
    debts[answers] = is_foreign(texts[at]) and -1 or type(why) == "table" and why or {err = why}
  end
until is_over
return debts
