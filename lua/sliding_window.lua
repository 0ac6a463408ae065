-- sliding_window: judge a cost against the counts of the slices of the last window, and add to one.
-- state         string           expires_us, then ends_us:used of each slice, oldest first, all
--                                with a colon between
-- ARGV[at + 1]  verb             take | charge | credit
-- ARGV[at + 2]  cost             integer >= 0; 0 only looks
-- ARGV[at + 3]  limit            integer > 0
-- ARGV[at + 4]  window_us        integer > 0
-- ARGV[at + 5]  taken_us         integer >= 0; credit: when the permits were taken, 0 when not known
-- ARGV[at + 6]  slice_us         integer > 0
-- Returns       fits, wait_us, used, empty_in_us; the state to keep, if any, which expires when the newest
--                slice lapses; without that when it is when it was
-- Mirrors       src/algorithm/sliding_window.rs
local function sliding_window(state, at, now)
  local verb, cost, limit = ARGV[at + 1], ARGV[at + 2] + 0, ARGV[at + 3] + 0
  local window_us, slice_us = ARGV[at + 4] + 0, ARGV[at + 6] + 0

  -- All slices: their ends, their counts (both as texts of the state unless they have changed), and
  -- how many there are. Those up to `lapsed` no longer count.
  local ends, counts, texts, last, lapsed, used = {}, {}, {}, 0, 0, 0
  local charged_us, charged_expires = window_us, 0
  if state then
    local expires, slices = string.match(state, "^(%d+)(:[%d:]+)$")
    charged_expires = tonumber(expires)
    -- No clock reaches this before the year 2223.
    if not charged_expires or charged_expires >= 8000000000000000 then
      error("foreign value")
    end
    for text, slice, count in string.gmatch(now < charged_expires and slices or "", ":((%d+):?(%d*))") do
      last = last + 1
      -- No limit is higher, and everything a slice was charged with is over by then.
      if count == "" or count + 0 > 4294967295 or slice + 0 > charged_expires then
        error("foreign value")
      end
      ends[last], counts[last], texts[last] = slice + 0, count + 0, text
      if ends[last] + window_us > now then
        used = used + counts[last]
      else
        lapsed = last
      end
    end
    if last > 0 then
      charged_us = charged_expires - ends[last]
    end
    -- No window is longer than 366 days.
    if charged_us > 31622400000000 then
      error("foreign value")
    end
  end
  local function end_of_slice(instant)
    return instant - instant % slice_us + slice_us
  end
  local function keep(first, within_us)
    local expires = ends[last] + within_us
    local text = {string.format("%d", expires)}
    for slice = first, last do
      if counts[slice] > 0 then
        text[#text + 1] = texts[slice] or string.format("%d:%d", ends[slice], counts[slice])
      end
    end
    return table.concat(text, ":"), expires
  end
  -- By this window, and together with the whole state, which is forgotten by the window it was
  -- charged with.
  local function lapses_in(slice)
    return math.min(ends[slice] + window_us, ends[last] + charged_us) - now
  end
  local empty_in = last > lapsed and lapses_in(last) or 0

  if verb == "credit" then
    -- Others may have taken permits under other rules since: what has lapsed only by this window
    -- stays, and the state keeps the window it was charged with.
    local taken_us, back = ARGV[at + 5] + 0, math.min(used, cost)
    local shorter_us = math.min(window_us, charged_us)
    if back == 0 or (taken_us > 0 and end_of_slice(taken_us) + shorter_us <= now) then
      return true, 0, used, empty_in
    end
    -- Permits of the slice in which they were taken, and then of those before it. If that is
    -- unknown, the oldest, as those that remain lapse no earlier than the ones given back would
    -- have.
    local from, to, step = lapsed, lapsed + 1, -1
    while taken_us > 0 and from < last and ends[from + 1] <= end_of_slice(taken_us) do
      from = from + 1
    end
    if from == lapsed then
      from, to, step = lapsed + 1, last, 1
    end
    local rest = back
    for slice = from, to, step do
      local given = math.min(rest, counts[slice])
      counts[slice], texts[slice], rest = counts[slice] - given, nil, rest - given
    end
    while last > 0 and counts[last] == 0 do
      last = last - 1
    end
    if last == 0 or ends[last] + charged_us <= now then
      return true, 0, 0, 0, false
    end
    empty_in = last > lapsed and lapses_in(last) or 0
    return true, 0, used - back + rest, empty_in, keep(1, charged_us)
  end
  if verb == "take" and cost > 0 and used + cost > limit then
    local freed, wait_us = 0, window_us
    for slice = lapsed + 1, last do
      freed = freed + counts[slice]
      if freed >= used + cost - limit then
        wait_us = lapses_in(slice)
        break
      end
    end
    return false, wait_us, used, empty_in
  end

  if cost > 0 and last > lapsed then
    -- Once permits are taken, the state is not forgotten before it lapses by this window.
    empty_in = ends[last] + window_us - now
  end
  local added = math.min(used + cost, 4294967295) - used
  if added <= 0 then
    return true, 0, used, empty_in
  end
  -- Into the newest slice also if the clock stepped back, or slices were made shorter.
  if last > lapsed and ends[last] >= end_of_slice(now) then
    counts[last], texts[last] = counts[last] + added, nil
  else
    last = last + 1
    ends[last], counts[last] = end_of_slice(now), added
  end
  local kept, expires = keep(lapsed + 1, window_us)
  return true, 0, used, empty_in, kept, expires ~= charged_expires and expires or nil
end
