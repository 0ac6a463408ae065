-- sliding_window: check a cost against the counts of the slices of the last window, and add to one.
-- state         string           expires_us:total, then :ends_us:used of each slice, newest first; total is
--                                the sum of all slices. So an acquire reads and writes only the beginning, and the
--                                lapsed slices at the end, however many slices there are
-- ARGV[at + 1]  verb             acquire | charge | credit
-- ARGV[at + 2]  cost             integer >= 0; 0 only looks
-- ARGV[at + 3]  limit            integer > 0
-- ARGV[at + 4]  window_us        integer > 0
-- ARGV[at + 5]  taken_us         integer >= 0; credit: when the permits were acquired, 0 if not known
-- ARGV[at + 6]  slice_us         integer > 0
-- Returns       fits, wait_us, used, empty_in_us, next_us; the new state, if any; and the instant at which it expires,
--                which is when the newest slice lapses, unless that has not changed. A cost that does not fit has a
--                new state if it repairs one
-- Mirrors       src/algorithm/sliding_window.rs
local function checked_slice(ends, count, expires)
  ends, count = tonumber(ends), tonumber(count)
  -- No limit is higher, and no slice ends after the state expires.
  if not ends or count > 999999999999999 or ends > expires then
    error("corrupt value")
  end
  return ends, count
end
-- The slice that begins at this index of the text: its end, its count, and the index after it.
local function slice_from(text, first, expires)
  local ends, count, behind = string.match(text, "^:(%d+):(%d+)()", first)
  ends, count = checked_slice(ends, count, expires)
  return ends, count, behind
end
-- The slice whose text ends at this index: its end, its count, and where its text begins.
local function slice_up_to(text, last, expires)
  -- None is longer.
  local before = math.max(last - 33, 0)
  local first, ends, count = string.match(string.sub(text, before + 1, last), "():(%d+):(%d+)$")
  ends, count = checked_slice(ends, count, expires)
  return ends, count, before + first
end
-- The end of the last slice that has to lapse until so many permits are back, beginning with the slice whose text ends
-- at this index.
local function ends_with(text, last, expires, permits)
  local ends, freed = nil, 0
  while freed < permits do
    local count, begins
    ends, count, begins = slice_up_to(text, last, expires)
    freed, last = freed + count, begins - 1
  end
  return ends
end

-- The end of the slice in which this instant is.
local function end_of_slice(instant, slice_us)
  return instant - instant % slice_us + slice_us
end
-- When a slice lapses: by this window, or with the whole state, which expires by the window it was charged with.
local function lapse_of(ends, window_us, newest, charged_us)
  return math.min(ends + window_us, newest + charged_us)
end
local function sliding_window(state, at, now)
  local verb, cost, limit = ARGV[at + 1], ARGV[at + 2] + 0, ARGV[at + 3] + 0
  local window_us, slice_us = ARGV[at + 4] + 0, ARGV[at + 6] + 0
  local format, sub = string.format, string.sub

  -- The sum of all slices; the end and the count of the newest; where its text and that of the others begin.
  local total, newest, newest_count, first, others = 0, 0, 0, 1, 1
  local expires, charged_us = 0, window_us
  if state then
    local ends, count
    expires, total, first, ends, count, others = string.match(state, "^(%d+):(%d+)():(%d+):(%d+)()")
    expires, total = tonumber(expires), tonumber(total)
    -- No clock reaches this before the year 2223.
    if not total or expires >= 8000000000000000 then
      error("corrupt value")
    end
    newest, newest_count = checked_slice(ends, count, expires)
    charged_us = expires - newest
    -- No window is longer than 366 days.
    if charged_us > 31622400000000 then
      error("corrupt value")
    end
  end
  state = state or ""
  -- The sum of the slices that still count, and where their text ends.
  local used, stop = 0, first - 1
  if now < expires then
    used, stop = total, #state
    while stop >= first do
      local ends, count, begins = newest, newest_count, first
      if stop >= others then
        ends, count, begins = slice_up_to(state, stop, expires)
      end
      if ends + window_us > now then
        break
      end
      used, stop = used - count, begins - 1
    end
    if used < 0 or used > 999999999999999 or (used > 0) ~= (stop >= first) then
      error("corrupt value")
    end
  end
  local empty_in = used > 0 and lapse_of(newest, window_us, newest, charged_us) - now or 0

  if verb == "credit" then
    -- Others may have acquired permits under other rules. So what has lapsed only by this window stays, and the state
    -- keeps the window it was charged with.
    local taken_us, back = ARGV[at + 5] + 0, math.min(used, cost)
    local shorter_us = math.min(window_us, charged_us)
    if back == 0 or (taken_us > 0 and end_of_slice(taken_us, slice_us) + shorter_us <= now) then
      return true, 0, used, empty_in, 0
    end
    -- Gives back permits of the slice in which they were acquired, and then of those before it. If the instant is
    -- unknown, gives back the oldest, so that those that remain lapse no earlier.
    local from = taken_us > 0 and first or stop + 1
    while from <= stop do
      local ends, _, behind = slice_from(state, from, expires)
      if ends <= end_of_slice(taken_us, slice_us) then
        break
      end
      from = behind
    end
    -- The text from `from` to `last` is replaced by `left`: the rest of a slice that is not empty afterwards.
    local last, rest, left = from - 1, back, ""
    local function give_back(ends, count)
      local given = math.min(rest, count)
      rest, left = rest - given, given < count and format(":%d:%d", ends, count - given) or ""
    end
    if from > stop then
      while rest > 0 do
        local ends, count
        ends, count, from = slice_up_to(state, from - 1, expires)
        give_back(ends, count)
      end
    else
      while rest > 0 and last < stop do
        local ends, count, behind = slice_from(state, last + 1, expires)
        last = behind - 1
        give_back(ends, count)
      end
    end
    local slices = sub(state, first, from - 1) .. left .. sub(state, last + 1)
    used, total = used - back + rest, total - back + rest
    newest = slices ~= "" and slice_from(slices, 1, expires)
    if not newest or newest + charged_us <= now then
      return true, 0, 0, 0, 0, false
    end
    local kept = format("%d:%d", newest + charged_us, total) .. slices
    empty_in = used > 0 and lapse_of(newest, window_us, newest, charged_us) - now or 0
    return true, 0, used, empty_in, 0, kept, newest + charged_us
  end
  local is_denied = verb == "acquire" and cost > 0 and used + cost > limit
  -- No slice is longer than its window. A slice of a longer window need not come from a clock that was ahead, and stays
  -- until permits are acquired by this window.
  local repaired, repaired_expires
  if newest > now + math.max(window_us, (is_denied or cost == 0) and charged_us or 0) then
    -- Permits of later slices count in the slice of now.
    newest, newest_count = end_of_slice(now, slice_us), 0
    local from = first
    while from <= #state do
      local ends, count, behind = slice_from(state, from, expires)
      if ends < newest then
        break
      end
      newest_count, from = newest_count + count, behind
    end
    local own = format(":%d:%d", newest, newest_count)
    state, stop = own .. sub(state, from), stop - from + 1 + #own
    first, others = 1, #own + 1
    charged_us, expires = window_us, newest + window_us
    empty_in = used > 0 and lapse_of(newest, window_us, newest, charged_us) - now or 0
    repaired, repaired_expires = format("%d:%d", expires, total) .. state, expires
  end
  if is_denied or cost == 0 then
    local wait_us, next_us = 0, 0
    if is_denied then
      -- Only a cost above the limit outlasts every slice.
      wait_us = window_us
      if cost <= limit then
        local last = ends_with(state, stop, expires, used + cost - limit)
        wait_us = lapse_of(last, window_us, newest, charged_us) - now
      end
    end
    if used >= limit then
      next_us = wait_us
      if cost ~= 1 then
        local last = ends_with(state, stop, expires, used + 1 - limit)
        next_us = lapse_of(last, window_us, newest, charged_us) - now
      end
    end
    return not is_denied, wait_us, used, empty_in, next_us, repaired, repaired_expires
  end

  if used > 0 then
    -- Once permits are acquired, the state does not expire before it lapses by this window.
    empty_in = newest + window_us - now
  end
  local added, next_us = math.min(used + cost, 999999999999999) - used, 0
  local ends, count = end_of_slice(now, slice_us), 0
  local too_many = used + added + 1 - limit
  if too_many > 0 then
    next_us = (too_many > used and math.max(ends, newest) or ends_with(state, stop, expires, too_many)) + window_us - now
  end
  if added <= 0 then
    return true, 0, used, empty_in, next_us, repaired, repaired_expires
  end
  -- Also if the clock stepped back, or slices were made shorter, permits go into the newest slice.
  if newest >= ends then
    ends, count, first = newest, newest_count, others
  end
  local kept = format("%d:%d:%d:%d", ends + window_us, used + added, ends, count + added)
  kept = kept .. sub(state, first, stop)
  local is_alike = ends + window_us == expires and not repaired
  return true, 0, used, empty_in, next_us, kept, not is_alike and ends + window_us or nil
end
