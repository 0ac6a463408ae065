-- fixed_window: check a cost against the count of the current window, and add to it.
-- state         string           opened_us:ends_us:used, and then :c for a window by a calendar
-- ARGV[at + 1]  verb             acquire | charge | credit
-- ARGV[at + 2]  cost             integer >= 0; 0 only looks
-- ARGV[at + 3]  limit            integer > 0
-- ARGV[at + 4]  window_us        integer > 0; for a calendar, the length of the window that is open by the process's
--                                clock
-- ARGV[at + 5]  taken_us         integer >= 0; credit: when the permits were acquired, 0 if not known
-- ARGV[at + 6]  opens            0: a window opens with a request; 1: at multiples of its length; else by a calendar:
--                                the instant at which the window that is open by the process's clock ends
-- ARGV[at + 7]  taken_in_us      integer >= 0; credit: the end of the window in which the permits were acquired,
--                                0 if not known
-- ARGV[at + 8]  behind_us        for a calendar, the length of the window after that one; else 0
-- Returns       fits, wait_us, used, ends_in_us, 0; the new state, if any; and the instant at which it expires, which is
--                the window's end, or by a calendar some time later, unless that has not changed. A cost that does not
--                fit has a new state if it repairs one
-- Mirrors       src/algorithm/fixed_window.rs
local function fixed_window_text(opened, ends, used, by_calendar)
  return string.format(by_calendar and "%d:%d:%d:c" or "%d:%d:%d", opened, ends, used)
end
local function fixed_window_slack(window_us)
  return math.min(math.floor(window_us / 2), 86400000000)
end
local function fixed_window(state, at, now)
  local verb, cost, limit = ARGV[at + 1], ARGV[at + 2] + 0, ARGV[at + 3] + 0
  local window_us, opens = ARGV[at + 4] + 0, ARGV[at + 6] + 0

  local by_calendar = opens > 1
  local last, following, after, slack
  if by_calendar then
    local behind_us = ARGV[at + 8] + 0
    last, following, after = opens - window_us, opens, opens + behind_us
    if now >= following then
      -- The process's clock is behind. What comes later than it knows is taken to be as long.
      local gone = now - following
      last = now - gone % behind_us
      following, after, window_us = last + behind_us, last + 2 * behind_us, behind_us
    end
    -- Instants that are no further apart are one boundary by different rules: src/algorithm/calendar.rs.
    slack = fixed_window_slack(window_us)
  end

  local opened, ends, used, charged_ends, kept_until = 0, 0, 0, 0, 0
  local was_by_calendar = false
  if state then
    opened, charged_ends, used = string.match(state, "^(%d+):(%d+):(%d+)$")
    if not opened then
      opened, charged_ends, used = string.match(state, "^(%d+):(%d+):(%d+):c$")
      was_by_calendar = true
    end
    if not opened then
      error("corrupt value")
    end
    opened, charged_ends, used = opened + 0, charged_ends + 0, used + 0
    kept_until = charged_ends + (was_by_calendar and fixed_window_slack(charged_ends - opened) or 0)
    -- No clock reaches this before the year 2223, and no limit is higher.
    if opened > charged_ends or charged_ends >= 8000000000000000 or used > 999999999999999 then
      error("corrupt value")
    end
    ends = charged_ends
    if not by_calendar then
      -- A window that was made shorter ends earlier at once.
      ends = math.min(charged_ends, opened + window_us)
    elseif now < kept_until then
      -- So does one within which a boundary is brought, unless it is that at which the window opened. Where two
      -- clocks decide, they differ by less than a second from one moment to the next.
      for _, boundary in ipairs({ last, following }) do
        if boundary > opened + slack and boundary + 1000000 <= ends then
          ends = boundary
        end
      end
    end
  end
  local kept, expires
  if opened > now + window_us and verb ~= "credit" then
    -- A clock that was ahead has opened it. An aligned window, too, begins now: if it ended at the next multiple of its
    -- length, its permits would be granted twice.
    opened, ends = now, now + window_us
    kept_until = ends
    if by_calendar then
      opened, ends, kept_until = last, following, following + slack
    end
    charged_ends, expires, was_by_calendar = ends, kept_until, by_calendar
    kept = fixed_window_text(opened, ends, used, by_calendar)
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
      kept = fixed_window_text(opened, charged_ends, used, was_by_calendar)
      if used == 0 and not was_by_calendar then
        -- Nobody uses this window: the next request opens a new one. But where a window by a calendar has begun, by
        -- whichever rules, is known by its state.
        kept, ends, kept_until = false, 0, 0
      end
    end
  end
  if now >= ends then
    used = 0
    if by_calendar then
      -- It begins where the one before it has ended. What is no longer kept may have been forgotten.
      opened = now < kept_until and math.max(last, ends) or last
      ends = following > opened + slack and following or after
    else
      opened = opens == 1 and now - now % window_us or now
      ends = opened + window_us
    end
  end
  if verb == "credit" or cost == 0 then
    return true, 0, used, ends - now, 0, kept, expires
  elseif verb == "acquire" and used + cost > limit then
    return false, ends - now, used, ends - now, 0, kept, expires
  end

  local taken = math.min(used + cost, 999999999999999)
  if by_calendar then
    expires = ends + fixed_window_slack(ends - opened)
  elseif ends ~= charged_ends then
    expires = ends
  end
  return true, 0, used, ends - now, 0, fixed_window_text(opened, ends, taken, by_calendar), expires
end
