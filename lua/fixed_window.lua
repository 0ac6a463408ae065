-- fixed_window: judge a cost against the count of the current window, and add to it.
-- state         string           opened_us:ends_us:used
-- ARGV[at + 1]  verb             take | charge | credit
-- ARGV[at + 2]  cost             integer >= 0; 0 only looks
-- ARGV[at + 3]  limit            integer > 0
-- ARGV[at + 4]  window_us        integer > 0
-- ARGV[at + 5]  taken_us         integer >= 0; credit: when the permits were taken, 0 when not known
-- ARGV[at + 6]  aligned          0: a window opens with a request; 1: at multiples of its length
-- Returns       fits, wait_us, used, ends_in_us; the state to keep, if any, which expires when the window
--                ends
-- Mirrors       src/algorithm/fixed_window.rs
local function fixed_window(state, at, now)
  local verb, cost, limit = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local window_us, aligned = tonumber(ARGV[at + 4]), ARGV[at + 6] == "1"

  local opened, ends, used = 0, 0, 0
  if state then
    opened, ends, used = string.match(state, "^(%d+):(%d+):(%d+)$")
    if not opened then
      error("foreign value")
    end
    opened, used = tonumber(opened), tonumber(used)
    -- A window that was made shorter ends earlier at once.
    ends = math.min(tonumber(ends), opened + window_us)
  end
  if now >= ends then
    opened = aligned and now - now % window_us or now
    ends, used = opened + window_us, 0
  end

  local function keep(count)
    return string.format("%.0f:%.0f:%.0f", opened, ends, count), ends
  end
  if verb == "credit" then
    -- What was taken in an earlier window has come back with its end.
    local taken = tonumber(ARGV[at + 5])
    local back = (taken == 0 or taken >= opened) and math.min(used, cost) or 0
    if back > 0 and back == used then
      -- Nobody has used this window: the next one opens with who does.
      local ends_in = aligned and window_us - now % window_us or window_us
      return true, 0, 0, ends_in, false
    end
    if back == 0 then
      return true, 0, used, ends - now
    end
    return true, 0, used - back, ends - now, keep(used - back)
  end
  if verb == "take" and cost > 0 and used + cost > limit then
    return false, ends - now, used, ends - now
  end

  if cost == 0 then
    return true, 0, used, ends - now
  end
  return true, 0, used, ends - now, keep(math.min(used + cost, 4294967295))
end
