-- usual: the part of debts for the most usual questions. It comes first and needs no other functions: for a small batch,
-- defining those would take as long as evaluating.
-- Mirrors  src/algorithm/debt/fast_path.rs
-- `clock` comes before this script, `debts` after it.
local KEYS, ARGV, floor, min = KEYS, ARGV, math.floor, math.min
local byte, find, format = string.byte, string.find, string.format

-- No debt reaches this: a reply could not hold much more.
local too_late = now + 2 ^ 52
local texts = call("MGET", unpack(KEYS))
local answers, answered, at, row, left = {}, 0, 0, 3, nil

local function failure(why)
  return type(why) == "table" and why or { err = why }
end

-- Numbers as texts for commands. Keys without a debt mostly get the same value.
local texts_of = {}
local function text_of(number)
  local text = texts_of[number]
  if not text then
    text = format("%d", number)
    texts_of[number] = text
  end
  return text
end

-- The index of the first answer of the question that is being written.
local writing
-- Each function returns whether it has evaluated the whole row. It stops at an unusual question, or at one that fails
-- before anything is written; debts continues there.
local usual = {}

-- Questions about one key, with a debt and a cost in whole microseconds.
usual["1"] = function()
  if ARGV[row + 2] == "0" or ARGV[row + 5] ~= "0" or ARGV[row + 7] ~= "0" then
    return false
  end
  local times, cost_text, room = ARGV[row + 3] + 0, ARGV[row + 4], ARGV[row + 6] + 0
  local cost, last = cost_text + 0, at + ARGV[row + 2]
  left = last - at
  for s = at + 1, last do
    local text, sum, sum_text = texts[s], cost, cost_text
    local debt = (text or 0) - now
    if debt > 0 and debt <= room then
      if times > 1 then
        sum = cost * min(times, floor((room - debt) / cost) + 1)
        sum_text = format("%d", sum)
      end
      -- INCRBY itself refuses a value that is not a whole number.
      local paid = call("INCRBY", KEYS[s], sum_text)
      texts[s], at, left, writing = paid, s, last - s, s
      if (paid - 1) % 1000000 < sum then
        call("PEXPIREAT", KEYS[s], end_of(paid))
      end
      writing = nil
    elseif text and (debt >= 2 ^ 52 or not find(text, "^[1-9]%d*$")) then
      return false
    elseif debt <= 0 then
      debt = 0
      if times > 1 then
        sum = cost * min(times, floor(room / cost) + 1)
      end
      local paid = now + sum
      -- MGET returns nothing for a key that is no string.
      if not call("SET", KEYS[s], text_of(paid), "PXAT", end_of(paid), text and "XX" or "NX") then
        return false
      end
      texts[s] = paid
    end
    answers[s], at, left = debt, s, last - s
  end
  row = row + 9
  return true
end

-- Questions about a record that has exactly the requested entries, in their order, without fractions. Records without
-- a debt get the same value.
usual.g = function()
  local acquires = ARGV[row + 1] + 0
  if ARGV[row + 2] == "0" or ARGV[row + 3] ~= "1" then
    return false
  end
  local ids, form = ARGV[row + 4 + 5 * acquires], ">" .. string.rep("c8I8", acquires)
  local costs, highest, shadows, starts, new, new_ends, new_text = {}, {}, {}, {}, {}, 0, nil
  for acquire = 1, acquires do
    local arg = row + 5 * acquire - 1
    local cost = ARGV[arg] + 0
    if ARGV[arg + 1] ~= "0" then
      return false
    end
    costs[acquire], highest[acquire], shadows[acquire] = cost, now + ARGV[arg + 2], ARGV[arg + 4] == "1"
    starts[acquire] = string.sub(ids, 4 * acquire - 3, 4 * acquire) .. "\0\0\0\0"
    new[2 * acquire - 1], new[2 * acquire] = starts[acquire], now + cost
    new_ends = now + cost > new_ends and now + cost or new_ends
  end
  local last = at + ARGV[row + 2]
  left = last - at
  for s = at + 1, last do
    local text, latest, ends, do_all_fit, does_any_fit = texts[s], 0, 0, true, false
    if text and #text ~= 16 * acquires then
      return false
    end
    local entries = text and { struct.unpack(form, text) }
    for acquire = 1, text and acquires or 0 do
      local us = entries[2 * acquire]
      if entries[2 * acquire - 1] ~= starts[acquire] or us >= too_late then
        return false
      end
      if us > latest then
        latest = us
      end
      if us <= now then
        us, does_any_fit = now + costs[acquire], true
      elseif us <= highest[acquire] then
        us, does_any_fit = us + costs[acquire], true
      elseif not shadows[acquire] then
        do_all_fit = false
      end
      entries[2 * acquire] = us
      if us > ends then
        ends = us
      end
    end
    local value
    if latest <= now then
      new_text = new_text or struct.pack(form, unpack(new))
      value, ends = new_text, new_ends
    elseif do_all_fit and does_any_fit then
      value = struct.pack(form, unpack(entries, 1, 2 * acquires))
    end
    if value and latest > now and ceil(ends / 1000000) == ceil(latest / 1000000) then
      call("SETRANGE", KEYS[s], "0", value)
    elseif value and not call("SET", KEYS[s], value, "PXAT", end_of(ends), text and "XX" or "NX") then
      return false
    end
    answers[s], texts[s], at, left = latest > now and text or 0, value or text, s, last - s
  end
  row = row + 5 + 5 * acquires
  return true
end

-- Questions about several keys, in all remaining rows, with debts and costs in whole microseconds. All debts are written
-- at the end.
usual.s = function()
  local behind = row
  while behind <= #ARGV do
    local acquires = ARGV[behind + 1] + 0
    for acquire = 1, acquires do
      if ARGV[behind] ~= "s" or ARGV[behind + 5 * acquire] ~= "0" then
        return false
      end
    end
    behind = behind + 4 + 5 * acquires
  end
  local found, missing = {}, {}
  for s = at + 1, #KEYS do
    local list = texts[s] and found or missing
    list[#list + 1] = texts[s] or KEYS[s]
  end
  -- MGET returns nothing for a key that is no string.
  if not find(table.concat(found), "^%d*$") or (#missing > 0 and call("EXISTS", unpack(missing)) > 0) then
    return false
  end
  local owed, added = {}, {}
  for s = at + 1, #KEYS do
    local text = texts[s]
    local debt = (text or 0) - now
    -- INCRBY would refuse a leading zero.
    if debt >= 2 ^ 52 or (text and byte(text) == 48) then
      return false
    end
    owed[s] = debt > 0 and debt or 0
  end

  local places, place, told, dependent = ARGV[2] ~= "" and ARGV[2], 1, at, {}
  while row <= #ARGV do
    local acquires, times, costs, rooms, shadows = ARGV[row + 1] + 0, ARGV[row + 3] + 0, {}, {}, {}
    for acquire = 1, acquires do
      local arg = row + 5 * acquire - 1
      costs[acquire], rooms[acquire], shadows[acquire] = ARGV[arg] + 0, ARGV[arg + 2] + 0, ARGV[arg + 4] == "1"
    end
    local states, fits, answers = {}, {}, answers
    for _ = 1, ARGV[row + 2] + 0 do
      local fit, depends = times, false
      for acquire = 1, acquires do
        local s = told + acquire
        if places then
          local high, low = byte(places, place, place + 1)
          s, place = high * 256 + low, place + 2
        end
        local debt, own = owed[s], 0
        if debt <= rooms[acquire] then
          own = times == 1 and 1 or min(times, floor((rooms[acquire] - debt) / costs[acquire]) + 1)
        end
        if own < fit and not shadows[acquire] then
          fit = own
        end
        states[acquire], fits[acquire], answers[told + acquire] = s, own, debt
      end
      for acquire = 1, acquires do
        local s, own = states[acquire], fits[acquire]
        own = own < fit and own or fit
        if own > 0 then
          local sum = own * costs[acquire]
          owed[s], added[s], depends = owed[s] + sum, (added[s] or 0) + sum, true
        elseif added[s] and fits[acquire] == 0 and (fit > 0 or not shadows[acquire]) then
          -- It is denied, or not acquired in shadow, because of earlier acquires.
          depends = true
        end
      end
      if depends then
        dependent[#dependent + 1] = told + 1
      end
      told = told + acquires
    end
    row = row + 4 + 5 * acquires
  end

  -- A server that accepts no writes refuses the first one, so nothing is written.
  local is_written, why = pcall(function()
    for s = at + 1, #KEYS do
      local sum = added[s]
      if sum and sum < owed[s] then
        local paid = call("INCRBY", KEYS[s], text_of(sum))
        if (paid - 1) % 1000000 < sum then
          call("PEXPIREAT", KEYS[s], end_of(paid))
        end
      elseif sum then
        call("SET", KEYS[s], text_of(now + sum), "PXAT", end_of(now + sum))
      end
    end
  end)
  if not is_written then
    for _, first in ipairs(dependent) do
      answers[first] = failure(why)
    end
  end
  return true
end

local _, why = pcall(function()
  while usual[ARGV[row]] and usual[ARGV[row]]() do
    left = nil
  end
end)
if writing then
  answers[writing] = failure(why)
end
answered = #answers
if row > #ARGV then
  answers[answered + 1] = now
  return answers
end
