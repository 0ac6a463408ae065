-- debts: evaluate fast-path questions about debts that came together, first come first served: questions about
-- one key, about several keys of which all or none are acquired from, and about the debts of a group.
-- KEYS[n]          state keys     distinct; strings: us or us:fraction, when nothing is owed any more; of groups a
--                                 record
-- ARGV[1]          now_us         integer; 0 asks the server's clock
-- ARGV[2]          places         for each acquire of each question of rows "s" the number of its key, in two
--                                 bytes; empty: each has the next key
-- ARGV[row]        kind           "1": one key; "s": a key for each acquire; "g": one key, a group's; row = 3, then
--                                 behind the row before
-- ARGV[row + 1]    acquires       integer > 0; of each question; of "1" it is 1
-- ARGV[row + 2]    questions      integer; the number of questions that are alike, about the next keys; 0: one more
--                                 about the key of the question before ("1" and "g")
-- ARGV[row + 3]    repeat         integer > 0; how often each of them is asked, one time after the other
-- ARGV[at]         cost_us        integer >= 0; of acquire n what it costs in time; at = row + 5n - 1
-- ARGV[at + 1]     cost_fraction  integer >= 0, < 2^32
-- ARGV[at + 2]     room_us        integer >= 0; the largest debt with which it fits
-- ARGV[at + 3]     room_fraction  integer >= 0, < 2^32
-- ARGV[at + 4]     shadow         0|1; whether no other acquire of its question depends on it
-- ARGV[at + 5]     ids            of "g", behind its last acquire: the id of each debt, in 4 bytes each
-- Returns  for each question before its first time: of "1" the debt, of "s" that of each acquire: us, or
--          us:fraction as a text; of "g" 0 when nothing is owed, or the entry of each. In place of a debt -1 of a
--          corrupt value in row "s"; an error in place of the first answer of a question that fails: it fails alone
-- Writes   each key that something is acquired from; it expires at the end of the second in which nothing is owed
--          any more
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

-- How many of some equal acquires fit, one after the other; 0 when the first does not.
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
  -- Perhaps one too many or too few, as a number has no room for all digits of both.
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

-- What is owed after some more equal acquires.
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

-- Writes what is owed from now on.
local function owe(at, us, fraction)
  local paid, text = now + us, texts[at]
  local value = format(fraction > 0 and "%d:%d" or "%d", paid, fraction)
  -- MGET tells nothing of what is no string.
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
-- Raises an error at a question that fails; called again, it goes on after that question.
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
-- Evaluates rows, up to the first of a kind that is not known yet.
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
