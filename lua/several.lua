-- several: what debts does of questions about several keys, and about the debts of a group.
-- Mirrors  src/algorithm/debt/fast_path.rs
-- `debts` and `record` come before this script.
-- The arguments of a row's acquires.
local function acquires_of(acquires)
  local costs, cost_fractions, rooms, room_fractions, shadows = {}, {}, {}, {}, {}
  for take = 1, acquires do
    local arg = row + 5 * take - 1
    -- Most are whole, and comparing texts is cheaper than converting them.
    local cost_fraction, room_fraction = ARGV[arg + 1], ARGV[arg + 3]
    costs[take], rooms[take], shadows[take] = ARGV[arg] + 0, ARGV[arg + 2] + 0, ARGV[arg + 4] == "1"
    cost_fractions[take] = cost_fraction == "0" and 0 or cost_fraction + 0
    room_fractions[take] = room_fraction == "0" and 0 or room_fraction + 0
  end
  return costs, cost_fractions, rooms, room_fractions, shadows
end

-- Of each key of several: what is owed now, false of a corrupt value; its fraction, if it has or had one; what was
-- added; and whether that is not just added to a whole number that is stored.
local owed, owed_fractions, added, is_set = {}, {}, {}, {}
-- The first answer of each question about several keys that depends on what is still to be written: it fails when
-- that cannot be.
local unwritten = {}
local missing, place = nil, 0
local function read_one_of_several(s)
  local text, us, fraction = texts[s], 0, 0
  if text then
    local paid = find(text, "^[1-9]%d*$") and text + 0
    if paid and paid < too_late then
      us = paid > now and paid - now or 0
    else
      local is_debt
      is_debt, us, fraction = pcall(debt_of, text)
      us = is_debt and us
    end
  else
    if not missing then
      missing = {}
      for key = 1, #KEYS do
        missing[#missing + 1] = not texts[key] and KEYS[key] or nil
      end
      -- MGET tells nothing of what is no string.
      missing = call("EXISTS", unpack(missing)) == 0 and "all" or "some"
    end
    us = (missing == "all" or call("EXISTS", KEYS[s]) == 0) and 0
  end
  owed[s] = us
  if us == 0 or (us and fraction > 0) then
    owed_fractions[s], is_set[s] = fraction, true
  end
  return us, fraction
end
local function several(acquires, times)
  local costs, cost_fractions, rooms, room_fractions, shadows = acquires_of(acquires)
  local places, states, fits = ARGV[2], {}, {}
  while left > 0 do
    left = left - 1
    local fit = times
    for take = 1, acquires do
      local s
      if places == "" then
        at = at + 1
        s = at
      else
        local high, low = string.byte(places, 2 * place + 1, 2 * place + 2)
        s, place = high * 256 + low, place + 1
      end
      local us, fraction, own = owed[s], owed_fractions[s] or 0, 0
      if us == nil then
        us, fraction = read_one_of_several(s)
      end
      if us and times == 1 then
        local room = rooms[take]
        own = (us < room or (us == room and fraction <= room_fractions[take])) and 1 or 0
      elseif us then
        own = fitting(times, us, fraction, costs[take], cost_fractions[take], rooms[take], room_fractions[take])
      end
      if own < fit and not shadows[take] then
        fit = own
      end
      states[take], fits[take] = s, own
      answers[answered + take] = us and (fraction > 0 and text_of_both(us, fraction) or us) or -1
    end
    local needs_write = false
    for take = 1, fit > 0 and acquires or 0 do
      local s, own, cost, cost_fraction = states[take], fits[take], costs[take], cost_fractions[take]
      own = own < fit and own or fit
      if own > 0 then
        needs_write, added[s] = true, (added[s] or 0) + own * cost
        if cost_fraction > 0 or owed_fractions[s] then
          owed[s], owed_fractions[s] = plus(owed[s], owed_fractions[s] or 0, own, cost, cost_fraction)
          is_set[s] = true
        else
          owed[s] = owed[s] + own * cost
        end
      end
    end
    for take = 1, needs_write and 0 or acquires do
      -- It is denied, or not acquired in shadow, for what others before it acquire.
      if fits[take] == 0 and (fit > 0 or not shadows[take]) then
        needs_write = needs_write or added[states[take]] ~= nil
      end
    end
    if needs_write then
      unwritten[#unwritten + 1] = answered + 1
    end
    answered = answered + acquires
  end
end
local function write_several()
  for s, sum in pairs(added) do
    if is_set[s] then
      owe(s, owed[s], owed_fractions[s])
    else
      owe_more(s, sum, text_of(sum))
    end
  end
end

-- A group's debts. Most records have just the entries that are asked for, in their order.
local function group(acquires, times)
  local costs, cost_fractions, rooms, room_fractions, shadows = acquires_of(acquires)
  local form, ids, in_order = record_form(acquires), ids_of(ARGV[row + 4 + 5 * acquires]), {}
  for take = 1, acquires do
    in_order[take] = 3 * take
  end
  local function read(text)
    if #text == 16 * acquires then
      local entries = { struct.unpack(form, text) }
      local take = 1
      while take <= acquires and entries[3 * take - 2] == ids[take] do
        take = take + 1
      end
      if take > acquires then
        return entries, in_order
      end
    end
    return read_record(text, ids)
  end

  while left > 0 do
    left, at, answered = left - 1, at + 1, answered + 1
    local text, most = texts[at] or "", times
    local entries, places, latest, ends, fit, highest
    -- Each is acquired as often as it fits. Where others fit less often, that is not written, but as often as all fit.
    repeat
      entries, places = read(text)
      answers[answered] = places == in_order and text or entries_as_asked(entries, places)
      latest, ends, fit, highest = 0, 0, most, 0
      for take = 1, acquires do
        local place, room = places[take], rooms[take]
        local us, fraction, own = entries[place], entries[place - 1], 0
        if us > latest then
          latest = us
        end
        if us < now then
          us, fraction = now, 0
        end
        local debt = us - now
        if most == 1 then
          own = (debt < room or (debt == room and fraction <= room_fractions[take])) and 1 or 0
        else
          own = fitting(most, debt, fraction, costs[take], cost_fractions[take], room, room_fractions[take])
        end
        if own > 0 then
          us = us + own * costs[take]
          if cost_fractions[take] > 0 then
            us, fraction = plus(us, fraction, own, 0, cost_fractions[take])
          end
          entries[place], entries[place - 1] = us, fraction
          highest = own > highest and own or highest
        end
        if own < fit and not shadows[take] then
          fit = own
        end
        us = fraction > 0 and us + 1 or us
        ends = us > ends and us or ends
      end
      most = fit
    until highest <= fit or fit == 0
    if latest >= too_late then
      error("foreign value")
    elseif latest < now then
      answers[answered] = 0
    end
    if highest > 0 and fit > 0 then
      local value
      if places == in_order then
        value = struct.pack(form, unpack(entries, 1, 3 * acquires))
      else
        value, ends = write_record(entries)
      end
      local second = ceil(ends / 1000000)
      if places == in_order and latest > now and second == ceil(latest / 1000000) then
        call("SETRANGE", KEYS[at], "0", value)
      elseif not call("SET", KEYS[at], value, "PXAT", text_of(second * 1000), texts[at] and "XX" or "NX") then
        error("foreign value")
      end
      texts[at] = value
    end
  end
end

kinds.s, kinds.g = several, group
evaluate_all()
local is_written, why = pcall(write_several)
if not is_written then
  for _, answer in ipairs(unwritten) do
    answers[answer] = failure(why)
  end
end
answers[answered + 1] = now
return answers
