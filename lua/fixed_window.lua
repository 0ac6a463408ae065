-- fixed_window: check a cost against the count of the current window, and add to it.
-- state         string           opened_us:ends_us:used
-- ARGV[at + 1]  verb             acquire | charge | credit
-- ARGV[at + 2]  cost             integer >= 0; 0 only looks
-- ARGV[at + 3]  limit            integer > 0
-- ARGV[at + 4]  window_us        integer > 0
-- ARGV[at + 5]  taken_us         integer >= 0; credit: when the permits were acquired, 0 if not known
-- ARGV[at + 6]  aligned          0: a window opens with a request; 1: at multiples of its length
-- ARGV[at + 7]  taken_in_us      integer >= 0; credit: the end of the window in which the permits were acquired,
--                                0 if not known
-- Returns       fits, wait_us, used, ends_in_us, 0; the new state, if any; and the instant at which it expires, which is
--                the window's end, unless that has not changed. A cost that does not fit has a new state if it repairs
--                one
-- Mirrors       src/algorithm/fixed_window.rs
local function fixed_window(state, at, now)
  local verb, cost, limit = ARGV[at + 1], ARGV[at + 2] + 0, ARGV[at + 3] + 0
  local window_us, aligned = ARGV[at + 4] + 0, ARGV[at + 6] + 0 == 1

  local opened, ends, used, charged_ends = 0, 0, 0, 0
  if state then
    opened, charged_ends, used = string.match(state, "^(%d+):(%d+):(%d+)$")
    if not opened then
      error("corrupt value")
    end
    opened, charged_ends, used = opened + 0, charged_ends + 0, used + 0
    -- No clock reaches this before the year 2223, and no limit is higher.
    if opened > charged_ends or charged_ends >= 8000000000000000 or used > 999999999999999 then
      error("corrupt value")
    end
    -- A window that was made shorter ends earlier at once.
    ends = math.min(charged_ends, opened + window_us)
  end
  local kept, expires
  if opened > now + window_us and verb ~= "credit" then
    -- A clock that was ahead has opened it. An aligned window, too, begins now: if it ended at the next multiple of its
    -- length, its permits would be granted twice.
    opened, ends = now, now + window_us
    charged_ends, expires = ends, ends
    kept = string.format("%d:%d:%d", opened, ends, used)
  end
  if verb == "credit" then
    -- Gives back in the window in which the permits were counted, without changing its end, since others may have
    -- acquired permits under other rules. Permits of an earlier window came back when it ended.
    local taken, taken_in = ARGV[at + 5] + 0, ARGV[at + 7] + 0
    local was_taken_in_it = taken == 0 or taken >= opened
    if taken_in > 0 then
      was_taken_in_it = taken_in == charged_ends
    end
    local back = was_taken_in_it and now < charged_ends and math.min(used, cost) or 0
    if back > 0 then
      used = used - back
      kept = string.format("%d:%d:%d", opened, charged_ends, used)
      if used == 0 then
        -- The window is empty: the next request opens a new one.
        kept, ends = false, 0
      end
    end
  end
  if now >= ends then
    opened = aligned and now - now % window_us or now
    ends, used = opened + window_us, 0
  end
  if verb == "credit" or cost == 0 then
    return true, 0, used, ends - now, 0, kept, expires
  elseif verb == "acquire" and used + cost > limit then
    return false, ends - now, used, ends - now, 0, kept, expires
  end

  kept = string.format("%d:%d:%d", opened, ends, math.min(used + cost, 999999999999999))
  return true, 0, used, ends - now, 0, kept, ends ~= charged_ends and ends or expires
end
