-- gcra: judge a cost against a key's theoretical arrival time, and advance it.
-- KEYS[i]       state key        string: tat_us, or tat_us:part:scale for tat_us + part/scale
-- ARGV[at + 1]  cost_us          integer >= 0; what the cost takes in time; 0 and no part: only looks
-- ARGV[at + 2]  cost_part        integer >= 0, < scale
-- ARGV[at + 3]  tolerance_us     integer >= 0; what a whole burst takes in time
-- ARGV[at + 4]  tolerance_part   integer >= 0, < scale
-- ARGV[at + 5]  scale            integer > 0; the parts of a microsecond that the rate needs
-- Returns       fits, wait_us, debt_us, debt_part; the debt is how far the arrival time lies ahead
-- Writes        KEYS[i] in its commit; expires when the arrival time is reached
-- Mirrors       src/algorithm/gcra.rs
local function gcra(key, at, now)
  local cost_us, cost_part = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local tolerance_us, tolerance_part = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local scale = tonumber(ARGV[at + 5])

  local tat_us, tat_part = now, 0
  local state = redis.call("GET", key)
  if state then
    tat_us = tonumber(state)
    if not tat_us then
      local us, part, old_scale = string.match(state, "^(%d+):(%d+):(%d+)$")
      if not us then
        error("foreign value")
      end
      tat_us, tat_part, old_scale = tonumber(us), tonumber(part), tonumber(old_scale)
      if tat_part >= old_scale then
        error("foreign value")
      end
      if old_scale ~= scale then
        -- The rate was changed: round the old fraction up, so that nothing is forgiven.
        tat_us, tat_part = tat_us + 1, 0
      end
    end
    -- Also refuses "nan" and "inf", which tonumber reads.
    if not (tat_us >= 0 and tat_us < 9007199254740992 and tat_us % 1 == 0) then
      error("foreign value")
    end
    if tat_us < now then
      tat_us, tat_part = now, 0
    end
  end

  local new_us, new_part = tat_us + cost_us, tat_part + cost_part
  if new_part >= scale then
    new_us, new_part = new_us + 1, new_part - scale
  end
  -- What the new debt has over the tolerance; the parts are less than one microsecond apart.
  local over_us = new_us - now - tolerance_us
  local over_part = new_part - tolerance_part
  local looks = cost_us == 0 and cost_part == 0
  if not looks and (over_us > 0 or (over_us == 0 and over_part > 0)) then
    local wait_us = over_part > 0 and over_us + 1 or over_us
    return false, wait_us, tat_us - now, tat_part
  end

  return true, 0, tat_us - now, tat_part, not looks and function()
    if new_part == 0 then
      redis.call("SET", key, new_us, "PXAT", math.ceil(new_us / 1000))
    else
      local fraction = string.format("%.0f:%.0f:%.0f", new_us, new_part, scale)
      redis.call("SET", key, fraction, "PXAT", math.ceil((new_us + 1) / 1000))
    end
  end
end
