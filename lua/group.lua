-- group: the part of debts for questions about the debts of a group.
-- Mirrors  src/algorithm/debt/fast_path.rs
-- `debts`, `several` and `record` come before this script.
local function group(acquires, times)
  local costs, cost_fractions, rooms, room_fractions, shadows = acquires_of(acquires)
  local ids = ids_of(ARGV[row + 4 + 5 * acquires])
  while left > 0 do
    left, at, answered = left - 1, at + 1, answered + 1
    local most, entries, places, latest, fit, highest = times, nil, nil, nil, nil, nil
    -- Acquires each as often as it fits. If others fit less often, repeats that with the number of times that all fit.
    repeat
      entries, places = read_record(texts[at] or "", ids)
      answers[answered] = entries_as_asked(entries, places)
      latest, fit, highest = 0, most, 0
      for acquire = 1, acquires do
        local place = places[acquire]
        local us, fraction, own = entries[place], entries[place - 1], 0
        if us > latest then
          latest = us
        end
        if us < now then
          us, fraction = now, 0
        end
        own = fitting(most, us - now, fraction, costs[acquire], cost_fractions[acquire], rooms[acquire], room_fractions[acquire])
        if own > 0 then
          us, fraction = plus(us, fraction, own, costs[acquire], cost_fractions[acquire])
          entries[place], entries[place - 1] = us, fraction
          highest = own > highest and own or highest
        end
        if own < fit and not shadows[acquire] then
          fit = own
        end
      end
      most = fit
    until highest <= fit or fit == 0
    if latest >= too_late then
      error("corrupt value")
    elseif latest < now then
      answers[answered] = 0
    end
    if highest > 0 and fit > 0 then
      local value, ends = write_record(entries)
      if not call("SET", KEYS[at], value, "PXAT", end_of(ends), texts[at] and "XX" or "NX") then
        error("corrupt value")
      end
      texts[at] = value
    end
  end
end

kinds.g = group
evaluate_all()
return finish()
