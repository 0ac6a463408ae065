-- several: the part of debts for questions about several keys.
-- Mirrors  src/algorithm/debt/fast_path.rs
-- `debts` comes before this script.
-- The arguments of a row's acquires.
local function acquires_of(acquires)
  local costs, cost_fractions, rooms, room_fractions, shadows = {}, {}, {}, {}, {}
  for acquire = 1, acquires do
    local arg = row + 5 * acquire - 1
    -- Most are whole, and comparing texts is cheaper than converting them.
    local cost_fraction, room_fraction = ARGV[arg + 1], ARGV[arg + 3]
    costs[acquire], rooms[acquire], shadows[acquire] = ARGV[arg] + 0, ARGV[arg + 2] + 0, ARGV[arg + 4] == "1"
    cost_fractions[acquire] = cost_fraction == "0" and 0 or cost_fraction + 0
    room_fractions[acquire] = room_fraction == "0" and 0 or room_fraction + 0
  end
  return costs, cost_fractions, rooms, room_fractions, shadows
end

-- For each key of rows "s": the debt now, or false for a corrupt value; its fraction; and whether it is still to be
-- written.
local owed, owed_fractions, is_unwritten = nil, {}, {}
-- The first answer of each question about several keys that depends on a debt that is still to be written. It fails if
-- the write fails.
local dependent = {}
local place = 0
-- The keys of rows "s" are the last ones.
local function read_several()
  local missing = {}
  for s = at + 1, #KEYS do
    missing[#missing + 1] = not texts[s] and KEYS[s] or nil
  end
  -- MGET returns nothing for a value that is no string.
  local are_missing = #missing == 0 or call("EXISTS", unpack(missing)) == 0
  owed = {}
  for s = at + 1, #KEYS do
    if texts[s] then
      local is_debt, us, fraction = pcall(debt_of, texts[s])
      owed[s], owed_fractions[s] = is_debt and us, fraction or 0
    else
      owed[s], owed_fractions[s] = (are_missing or call("EXISTS", KEYS[s]) == 0) and 0, 0
    end
  end
end
local function several(acquires, times)
  local costs, cost_fractions, rooms, room_fractions, shadows = acquires_of(acquires)
  if not owed then
    read_several()
  end
  local places, states, fits = ARGV[2], {}, {}
  while left > 0 do
    local fit = times
    left = left - 1
    for acquire = 1, acquires do
      local s
      if places == "" then
        at = at + 1
        s = at
      else
        local high, low = string.byte(places, 2 * place + 1, 2 * place + 2)
        s, place = high * 256 + low, place + 1
      end
      local us, fraction, own = owed[s], owed_fractions[s], 0
      if us then
        own = fitting(times, us, fraction, costs[acquire], cost_fractions[acquire], rooms[acquire], room_fractions[acquire])
      end
      if own < fit and not shadows[acquire] then
        fit = own
      end
      states[acquire], fits[acquire] = s, own
      answers[answered + acquire] = us and text_of_both(us, fraction) or -1
    end
    local depends = false
    for acquire = 1, acquires do
      local s, own = states[acquire], min(fits[acquire], fit)
      if own > 0 then
        owed[s], owed_fractions[s] = plus(owed[s], owed_fractions[s], own, costs[acquire], cost_fractions[acquire])
        is_unwritten[s], depends = true, true
      elseif is_unwritten[s] and fits[acquire] == 0 and (fit > 0 or not shadows[acquire]) then
        -- It is denied, or not acquired in shadow, because of earlier acquires.
        depends = true
      end
    end
    if depends then
      dependent[#dependent + 1] = answered + 1
    end
    answered = answered + acquires
  end
end
local function write_several()
  for s in pairs(is_unwritten) do
    owe(s, owed[s], owed_fractions[s])
  end
end

-- Writes the pending debts, and returns the reply.
local function finish()
  local is_written, why = pcall(write_several)
  if not is_written then
    for _, answer in ipairs(dependent) do
      answers[answer] = failure(why)
    end
  end
  answers[answered + 1] = now
  return answers
end

kinds.s = several
evaluate_all()
if row > #ARGV then
  return finish()
end
