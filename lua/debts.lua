-- debts: evaluate the fast-path questions of a batch in order: questions about one key, about several keys (acquired
-- all or none), and about the debts of a group.
-- KEYS[n]          state keys     distinct; string: us or us:fraction, the instant at which the debt is paid back; for
--                                 a group a record
-- ARGV[1]          now_us         integer; 0 asks the server's clock
-- ARGV[2]          places         for each acquire of each question of rows "s" the number of its key, in two
--                                 bytes; empty: each has the next key
-- ARGV[row]        kind           "1": one key; "s": a key for each acquire; "g": one key, a group's; the first row is
--                                 3, and each row follows the one before
-- ARGV[row + 1]    acquires       integer > 0; of each question; 1 for "1"
-- ARGV[row + 2]    questions      integer; the number of equal questions about the next keys; 0: one more about the
--                                 key of the question before ("1" and "g")
-- ARGV[row + 3]    repeat         integer > 0; how often each question is asked in succession
-- ARGV[at]         cost_us        integer >= 0; the cost of acquire n in time; at = row + 5n - 1
-- ARGV[at + 1]     cost_fraction  integer >= 0, < 2^32
-- ARGV[at + 2]     room_us        integer >= 0; the largest debt with which it fits
-- ARGV[at + 3]     room_fraction  integer >= 0, < 2^32
-- ARGV[at + 4]     shadow         0|1; whether no other acquire of its question depends on it
-- ARGV[at + 5]     ids            "g" only, after the last acquire: the id of each debt, 4 bytes each
-- Returns  for each question the debts before its first repeat: for "1" the debt, for "s" that of each acquire, as us,
--          or us:fraction as a text; for "g" the entry of each, or 0 if there is no debt. -1 instead of a debt for a
--          corrupt value in row "s"; an error instead of the first answer for a question that fails alone
-- Writes   each key that permits are acquired from; it expires at the end of the second in which the debt is paid back
-- Mirrors  src/algorithm/debt/fast_path.rs
-- `clock` and `usual` come before this script, `several`, `record` and `group` after it.
local function text_of_both(us, fraction)
  return fraction > 0 and format("%d:%d", us, fraction) or us
end

-- A debt from a key's text.
local function debt_of(text)
  local paid, fraction = tonumber(text), 0
  if type(text) == "string" then
    if paid then
      paid = find(text, "^[1-9]%d*$") and paid
    else
      paid, fraction = string.match(text, "^([1-9]%d*):([1-9]%d*)$")
      paid, fraction = tonumber(paid), tonumber(fraction)
    end
    if not paid or paid >= too_late or fraction >= 4294967296 then
      error("corrupt value")
    end
  end
  if paid < now then
    return 0, 0
  end
  return paid - now, fraction
end

-- How many of `times` equal acquires fit in succession; 0 if the first does not.
local function fitting(times, us, fraction, cost, cost_fraction, room, room_fraction)
  room, room_fraction = room - us, room_fraction - fraction
  if room_fraction < 0 then
    room, room_fraction = room - 1, room_fraction + 4294967296
  end
  if room < 0 then
    return 0
  elseif times == 1 then
    return 1
  end
  -- Perhaps one too many or too few, since a double cannot hold all digits.
  local more = min(times - 1, floor((room + room_fraction / 4294967296) / (cost + cost_fraction / 4294967296)))
  local function fits(more)
    local part = more * cost_fraction
    local carry = floor(part / 4294967296)
    local us = more * cost + carry
    return us < room or (us == room and part - carry * 4294967296 <= room_fraction)
  end
  if not fits(more) then
    return more
  elseif more < times - 1 and fits(more + 1) then
    return more + 2
  end
  return more + 1
end

-- The debt after `times` more equal acquires.
local function plus(us, fraction, times, cost, cost_fraction)
  if cost_fraction == 0 then
    return us + times * cost, fraction
  end
  us, fraction = us + times * cost, fraction + times * cost_fraction
  if fraction >= 4294967296 then
    local carry = floor(fraction / 4294967296)
    us, fraction = us + carry, fraction - carry * 4294967296
  end
  return us, fraction
end

-- Writes the new debt of a key.
local function owe(at, us, fraction)
  local paid, text = now + us, texts[at]
  local value = format(fraction > 0 and "%d:%d" or "%d", paid, fraction)
  -- MGET returns nothing for a value that is no string.
  if not call("SET", KEYS[at], value, "PXAT", end_of(fraction > 0 and paid + 1 or paid), text and "XX" or "NX") then
    error("corrupt value")
  end
  texts[at] = fraction > 0 and value or paid
end

local function one(_, times)
  local cost, cost_fraction = ARGV[row + 4] + 0, ARGV[row + 5] + 0
  local room, room_fraction = ARGV[row + 6] + 0, ARGV[row + 7] + 0
  while left > 0 do
    left, at, answered = left - 1, at + 1, answered + 1
    local us, fraction = 0, 0
    if texts[at] then
      us, fraction = debt_of(texts[at])
    end
    local fit = fitting(times, us, fraction, cost, cost_fraction, room, room_fraction)
    if fit > 0 then
      owe(at, plus(us, fraction, fit, cost, cost_fraction))
    end
    answers[answered] = text_of_both(us, fraction)
  end
end

local kinds = { ["1"] = one }
-- Raises an error at a question that fails; when called again, it continues after that question.
local function evaluate()
  while row <= #ARGV and kinds[ARGV[row]] do
    local kind, acquires = ARGV[row], ARGV[row + 1] + 0
    if not left then
      left = ARGV[row + 2] + 0
      if left == 0 then
        left, at = 1, at - 1
      end
    end
    kinds[kind](acquires, ARGV[row + 3] + 0)
    row, left = row + 4 + 5 * acquires + (kind == "g" and 1 or 0), nil
  end
end
-- Evaluates rows, up to the first one whose kind is not yet defined.
local function evaluate_all()
  repeat
    local is_done, why = pcall(evaluate)
    if not is_done then
      if not left then
        error(why)
      end
      answers[answered] = failure(why)
    end
  until is_done
end

evaluate_all()
if row > #ARGV then
  answers[answered + 1] = now
  return answers
end
