-- sliding_counter: check a cost against the counts of two windows, and add to the current one.
-- state         string           opened_us:window_us:current:previous
-- ARGV[at + 1]  verb             acquire | charge | credit
-- ARGV[at + 2]  cost             integer >= 0; 0 only looks
-- ARGV[at + 3]  limit            integer > 0
-- ARGV[at + 4]  window_us        integer > 0
-- ARGV[at + 5]  taken_us         integer >= 0; credit: when the permits were acquired, 0 if not known
-- Returns       fits, wait_us, used, gone_in_us (more than a window if the current window has permits), next_us; the new
--                state, if any; and the instant at which it expires, which is when both counts are gone, unless that has
--                not changed. A cost that does not fit has a new state if it repairs one
-- Mirrors       src/algorithm/sliding_counter.rs
-- a * b / c in whole numbers, and the remainder, for numbers below 2^50. If the product may exceed 2^53, it multiplies
-- digit by digit of a, in a base with which no product does.
local function multiply_divide(a, b, c)
  if a < 9007199254740992 / b then
    local rest = a * b % c
    return math.floor((a * b - rest) / c), rest
  end
  local base, unit, whole, rest = math.floor(4503599627370496 / math.max(b, c)), 1, 0, 0
  while unit * base <= a do
    unit = unit * base
  end
  while unit >= 1 do
    rest = rest * base + math.floor(a / unit) % base * b
    whole = whole * base + math.floor(rest / c)
    rest, unit = rest % c, unit / base
  end
  return whole, rest
end
-- The instant from which so many permits fit, which do not fit yet, given the counts of this and the last window.
local function fits_from(ends, length, limit, permits, this, last)
  local from, counted, room = ends, last, limit - this - permits
  if room < 0 then
    -- Not in this window. In the next one, the current count is the previous.
    from, counted, room = ends + length, this, math.max(limit - permits, 0)
  end
  -- The longest overlap at which the share leaves enough room: not a whole window, as the count exceeds
  -- the room.
  return from - multiply_divide(room, length, math.max(counted, 1))
end
-- How many permits count while so much of the last window counts.
local function used_of(this, last, overlap, length)
  local share, rest = multiply_divide(last, overlap, length)
  return this + share + (rest > 0 and 1 or 0)
end
-- The instant at which no permit of these windows counts any more.
local function end_of_counts(opened, length, this)
  return opened + (this > 0 and length + length or length)
end
-- The state with these counts, and when it expires.
local function state_of_counts(opened, length, this, last)
  if this == 0 and last == 0 then
    return false
  end
  local most = 999999999999999
  this, last = math.min(this, most), math.min(last, most)
  return string.format("%d:%d:%d:%d", opened, length, this, last), end_of_counts(opened, length, this)
end
local function sliding_counter(state, at, now)
  local verb, cost, limit = ARGV[at + 1], ARGV[at + 2] + 0, ARGV[at + 3] + 0
  local window_us = ARGV[at + 4] + 0

  local opened, length, current, previous = 0, window_us, 0, 0
  if state then
    opened, length, current, previous = string.match(state, "^(%d+):(%d+):(%d+):(%d+)$")
    if not opened then
      error("corrupt value")
    end
    opened, length, current, previous = opened + 0, length + 0, current + 0, previous + 0
    -- No clock reaches this before the year 2223, no window is longer than 366 days, and no limit
    -- is higher.
    if opened >= 8000000000000000 or length < 1 or length > 31622400000000 or
        current > 999999999999999 or previous > 999999999999999 then
      error("corrupt value")
    end
  end

  -- If the clock stepped back to before the window opened, this still counts in it.
  local at_us = math.max(now, opened)
  local before = opened
  opened = at_us - at_us % length
  if opened == before + length then
    current, previous = 0, current
  elseif opened ~= before then
    current, previous = 0, 0
  end
  -- Whether what is written for this window expires when the stored state does.
  local expires_alike = current > 0
  local used = used_of(current, previous, length - (at_us - opened), length)

  if verb == "credit" then
    -- Gives back in the windows in which the permits were counted, since others may have acquired permits under other
    -- rules. If the instant is unknown, this window's permits go first. Permits of a window before the last one have
    -- come back.
    local taken, back, back_last = ARGV[at + 5] + 0, 0, 0
    if length ~= window_us and taken > 0 then
      -- How many of them still count at least under these rules. No fewer did when they were
      -- counted anew.
      local gone = taken - taken % window_us + 2 * window_us
      cost = multiply_divide(cost, math.max(math.min(gone - now, window_us), 0), window_us)
    end
    if taken == 0 or taken >= opened then
      back = math.min(current, cost)
    end
    if taken == 0 or (taken >= opened - length and taken < opened) then
      back_last = math.min(previous, cost - back)
    end
    current, previous = current - back, previous - back_last
    used = used_of(current, previous, length - (at_us - opened), length)
    local kept, expires
    if back + back_last > 0 then
      kept, expires = state_of_counts(opened, length, current, previous)
    end
    return true, 0, used, end_of_counts(opened, length, current) - now, 0, kept, expires
  end
  -- A look changes nothing: the old windows apply until permits are acquired.
  local is_denied = verb == "acquire" and cost > 0 and used + cost > limit
  local wait_us, next_us, kept, expires = 0, 0, nil, nil
  if is_denied then
    wait_us = fits_from(opened + length, length, limit, cost, current, previous) - now
  end
  -- Permits take up to two windows to come back, so time must not stand still for another whole window.
  if opened > now and (opened > now + window_us or wait_us > 2 * window_us) then
    -- A clock that was ahead has counted them: all permits count as acquired in the window of now.
    at_us, opened, length = now, now - now % window_us, window_us
    used = math.min(used, 999999999999999)
    current, previous, expires_alike = used, 0, false
    kept, expires = state_of_counts(opened, length, current, previous)
    if is_denied then
      wait_us = fits_from(opened + length, length, limit, cost, current, previous) - now
    end
  end
  if is_denied or cost == 0 then
    if used >= limit then
      next_us = wait_us
      if cost ~= 1 then
        next_us = fits_from(opened + length, length, limit, 1, current, previous) - now
      end
    end
    return not is_denied, wait_us, used, end_of_counts(opened, length, current) - now, next_us, kept, expires
  end

  -- The length was changed. How the permits spread is unknown, so all count as acquired in this window.
  if length ~= window_us then
    current, previous = used, 0
    length, opened, expires_alike = window_us, at_us - at_us % window_us, false
  end
  local taken = math.min(current + cost, 999999999999999)
  if used + cost >= limit then
    next_us = fits_from(opened + length, length, limit, 1, taken, previous) - now
  end
  kept, expires = state_of_counts(opened, length, taken, previous)
  local gone_in = end_of_counts(opened, length, current) - now
  return true, 0, used, gone_in, next_us, kept, not expires_alike and expires or nil
end
