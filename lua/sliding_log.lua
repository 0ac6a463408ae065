-- sliding_log: check a cost against the permits acquired within the last window, and log it.
-- KEYS[i]       state key        list, newest first: expires_us, total, at_us, total, ..., at_us, total;
--                                each at_us stands between the running totals after and before it
-- ARGV[at + 1]  verb             acquire | charge | credit
-- ARGV[at + 2]  cost             integer >= 0; 0 only looks
-- ARGV[at + 3]  limit            integer > 0
-- ARGV[at + 4]  window_us        integer > 0
-- ARGV[at + 5]  taken_us         integer >= 0; credit: when the permits were acquired, 0 if not known
-- Returns       fits, wait_us, used, empty_in_us, next_us
-- Writes        KEYS[i] in the function that it returns, which repairs the log if the cost does not fit; expires when
--                the newest entry lapses by the window it was charged with
-- Mirrors       src/algorithm/sliding_log.rs
local function sliding_log(key, at, now)
  local verb, cost, limit = ARGV[at + 1], ARGV[at + 2] + 0, ARGV[at + 3] + 0
  local window_us = ARGV[at + 4] + 0
  local totals = 4503599627370496

  -- Entries are numbered from the newest, 0, to the oldest. Indices and numbers that are always
  -- needed are written as texts: converting a number costs Redis as much as finding an entry.
  -- If a clock that was ahead has logged the newest entries, `repaired` is what replaces the newest `replaced` of them:
  -- the beginning of a log whose newest entry is logged now.
  local repaired, replaced, repair
  local function number(index)
    if repaired and index ~= "-1" then
      if repaired[index + 1] then
        return repaired[index + 1]
      end
      index = index + 2 * (replaced - 1)
    end
    local found = tonumber(redis.call("LINDEX", key, index))
    -- No clock reaches this before the year 2223, nor does a total.
    if not found or not (found >= 0 and found < 8000000000000000 and found % 1 == 0) then
      error("corrupt value")
    end
    return found
  end
  local function text_of(number)
    return string.format("%d", number)
  end
  local function instant(entry)
    return number(2 * entry + 2)
  end
  local function taken(from, to)
    return (to - from) % totals
  end
  -- The first entry from lo on for which reached(entry) holds. Searched from hi - 1, the oldest,
  -- since it always holds there or the entry is near: doubling steps, then halving ones.
  local function first(hi, reached)
    local step, lo = 1, hi - 1
    while lo >= 0 and reached(lo) do
      hi, lo, step = lo, lo - step, step * 2
    end
    lo = math.max(lo, -1)
    while hi - lo > 1 do
      local middle = math.floor((lo + hi) / 2)
      if reached(middle) then
        hi = middle
      else
        lo = middle
      end
    end
    return hi
  end

  local length = redis.call("LLEN", key)
  local count, expires, total, newest = (length - 2) / 2, 0, 0, now
  if length > 0 then
    expires, total, newest = number("0"), number("1"), number("2")
    -- No window is longer than 366 days.
    if length % 2 > 0 or newest > expires or expires - newest > 31622400000000 then
      error("corrupt value")
    end
  end
  if verb ~= "credit" and newest > now + window_us then
    replaced = first(count, function(entry)
      return instant(entry) <= now
    end)
    count, expires, newest = count - replaced + 1, now + window_us, now
    repaired = { expires, total, newest }
    -- Comes before every other write.
    repair = function()
      redis.call("LTRIM", key, 2 * replaced + 1, -1)
      redis.call("LPUSH", key, text_of(now), text_of(total), text_of(now + window_us))
      redis.call("PEXPIREAT", key, text_of(math.ceil((now + window_us) / 1000)))
      repaired = nil
    end
  end
  -- The number of entries that count at an instant in windows of this length, the running total before them, and
  -- their permits.
  local function counted(within_us, at_us)
    local oldest = repaired and instant(count - 1) or number("-2")
    if oldest + within_us > at_us then
      local base = number("-1")
      return count, base, taken(base, total)
    end
    local live = first(count, function(entry)
      return instant(entry) + within_us <= at_us
    end)
    local base = number(2 * live + 1)
    return live, base, taken(base, total)
  end
  -- If the clock stepped back to before the newest entry, time stands still until that is passed.
  local at_us, live, base, used = now, 0, 0, 0
  if now < expires then
    at_us = math.max(now, newest)
    live, base, used = counted(window_us, at_us)
  end
  -- An entry lapses by this window, or with the whole log, which expires by the window it was charged with.
  local function lapses_in(instant)
    local left = math.min(instant + window_us, expires) - now
    return left > 0 and left or error("corrupt value")
  end
  local empty_in = used > 0 and lapses_in(newest) or 0

  if verb == "credit" then
    -- Others may have acquired permits under other rules. So what has lapsed only by this window stays, and the log
    -- keeps the window it was charged with.
    local taken_us, back, charged_us = ARGV[at + 5] + 0, math.min(used, cost), expires - newest
    if back == 0 or (taken_us > 0 and taken_us + math.min(window_us, charged_us) <= at_us) then
      return true, 0, used, empty_in, 0
    end
    local function used_with(entry)
      return taken(base, number(2 * entry + 1))
    end
    -- As many permits or more must count in a longer window, or at an earlier instant.
    local function left_of(counting)
      return counting >= back and counting - back or error("corrupt value")
    end
    -- The newest entry at or before that instant, if it is among the newest ones.
    local newest_ones = taken_us > 0 and math.min(live, 32) or 0
    local own = first(newest_ones, function(entry)
      return instant(entry) <= taken_us
    end)
    if own == newest_ones then
      -- The instant is unknown, or many others were acquired since: gives back the oldest, so that those that remain
      -- lapse no earlier.
      local counting
      live, base, counting = counted(math.max(window_us, charged_us), at_us)
      local left = math.min(used, left_of(counting))
      return true, 0, left, left > 0 and empty_in or 0, 0, function()
        local kept = first(live, function(entry)
          return used_with(entry) <= back
        end)
        if kept == 0 then
          redis.call("DEL", key)
        else
          redis.call("LTRIM", key, 0, 2 * kept + 1)
          redis.call("LSET", key, 2 * kept + 1, taken(0, base + back))
        end
      end
    end

    -- As if they had never been acquired. Permits that the entry does not have are given back from those before it.
    back = math.min(back, used_with(own))
    local left = used_with(own) - back
    local kept = first(live, function(entry)
      return used_with(entry) <= left
    end)
    -- The entry before those keeps the rest, if there is a rest.
    local is_cut = used_with(kept) < left
    kept = is_cut and kept - 1 or kept
    local newest_left = own > 0 and newest or kept < count and instant(kept)
    expires = newest_left and newest_left + charged_us or 0
    if expires <= now then
      return true, 0, 0, 0, 0, function()
        redis.call("DEL", key)
      end
    end
    -- If time stands still, it may now stand at an earlier instant, at which more counts.
    local _, _, counting = counted(window_us, math.max(now, newest_left))
    local left_used = left_of(counting)
    return true, 0, left_used, left_used > 0 and lapses_in(newest_left) or 0, 0, function()
      local newer = {}
      for entry = own - 1, 0, -1 do
        newer[#newer + 1] = instant(entry)
        newer[#newer + 1] = taken(back, number(2 * entry + 1))
      end
      newer[#newer + 1] = expires
      redis.call("LTRIM", key, 2 * kept + 1, -1)
      if is_cut then
        redis.call("LSET", key, 0, taken(0, base + left))
      end
      redis.call("LPUSH", key, (table.unpack or unpack)(newer))
      redis.call("PEXPIREAT", key, math.ceil(expires / 1000))
    end
  end
  -- When the last of the entries was logged that have to lapse until so many permits are back.
  local function logged_with(permits)
    local enough = first(live, function(entry)
      return taken(base, number(2 * entry + 1)) < permits
    end)
    return instant(math.max(enough - 1, 0))
  end
  local is_denied = verb == "acquire" and cost > 0 and used + cost > limit
  if is_denied or cost == 0 then
    local wait_us, next_us = 0, 0
    if is_denied then
      -- Only a cost above the limit outlasts every entry.
      wait_us = cost > limit and window_us or lapses_in(logged_with(used + cost - limit))
    end
    if used >= limit then
      next_us = cost == 1 and wait_us or lapses_in(logged_with(used + 1 - limit))
    end
    return not is_denied, wait_us, used, empty_in, next_us, repair
  end
  -- Once permits are acquired, the log does not expire before it lapses by this window.
  empty_in = used > 0 and newest + window_us - now or 0
  local added, next_us = math.min(used + cost, 999999999999999) - used, 0
  local too_many = used + added + 1 - limit
  if too_many > 0 then
    next_us = (too_many > used and at_us or logged_with(too_many)) + window_us - now
  end
  return true, 0, used, empty_in, next_us, function()
    if repair then
      repair()
    end
    local latest = text_of(at_us + window_us)
    -- If the user lacks the permission for one of these commands, a valid log is left behind.
    if now >= expires then
      -- A server at its memory limit refuses only the first write, and never a DEL.
      if length > 0 then
        redis.call("DEL", key)
      end
      redis.call("RPUSH", key, latest, text_of(added), text_of(at_us), "0")
    else
      if live < count then
        redis.call("LTRIM", key, 0, 2 * live + 1)
      end
      redis.call("LPUSH", key, text_of(taken(0, total + added)), latest)
      redis.call("LSET", key, "2", text_of(at_us))
    end
    redis.call("PEXPIREAT", key, text_of(math.ceil((at_us + window_us) / 1000)))
  end
end
