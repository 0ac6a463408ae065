-- debt: the arithmetic that GCRA, token bucket and leaky bucket share: how long it takes until all that was
-- taken of a key is paid back, and how an action changes that.
-- state         number or string paid_us, or paid_us:part:scale for paid_us + part/scale, the instant at
--                                which nothing is owed any more
-- ARGV[at + 1]  verb             take | borrow | charge | credit | cancel | withdraw
-- ARGV[at + 2]  cost_us          integer >= 0; what the permits take in time; 0 and no part: looks
-- ARGV[at + 3]  cost_part        integer >= 0, < scale
-- ARGV[at + 4]  tolerance_us     integer >= 0; what the whole capacity takes in time
-- ARGV[at + 5]  tolerance_part   integer >= 0, < scale
-- ARGV[at + 6]  scale            integer > 0; the parts of a microsecond that the rate needs
-- ARGV[at + 7]  longest_us       integer >= 0; take, borrow: the longest delay; all others: the paid_us
-- ARGV[at + 8]  mark_part        and part that taking the permits has left; credit: 0 when not known
-- Returns       fits, wait_us, debt_us, debt_part, 0; the state to keep, if any, which expires when nothing
--                is owed; without that when it does so in the same second
-- Mirrors       src/algorithm/debt/mod.rs
-- us + part/scale minus the other, at least zero.
local function minus(us, part, less_us, less_part, scale)
  us, part = us - less_us, part - less_part
  if part < 0 then
    us, part = us - 1, part + scale
  end
  if us < 0 then
    return 0, 0
  end
  return us, part
end
local function debt(state, at, now, queues)
  local verb, scale = ARGV[at + 1], ARGV[at + 6] + 0
  local cost_us, cost_part = ARGV[at + 2] + 0, ARGV[at + 3] + 0
  local tolerance_us, tolerance_part = ARGV[at + 4] + 0, ARGV[at + 5] + 0
  -- 120 years: the debt never exceeds this.
  local most_us = 3794688000000000

  local paid_us, paid_part, is_last, expired = 0, 0, false, 0
  local old_scale = scale
  if state then
    paid_us = state
    if type(state) ~= "number" then
      local us, part
      us, part, old_scale = string.match(state, "^(%d+):(%d+):(%d+)$")
      if not us then
        error("foreign value")
      end
      paid_us, paid_part, old_scale = us + 0, part + 0, old_scale + 0
      expired = paid_us + 1
      if paid_part >= old_scale then
        error("foreign value")
      end
    end
    -- A state with a fraction expires a microsecond later.
    if not (paid_us >= 0 and paid_us < 9007199254740991 and paid_us % 1 == 0) then
      error("foreign value")
    end
    if verb == "cancel" or verb == "withdraw" then
      is_last = paid_us == ARGV[at + 7] + 0 and paid_part == ARGV[at + 8] + 0
    end
    if old_scale ~= scale and paid_part > 0 then
      -- The rate was changed: the old fraction is rounded up, so that nothing is forgiven.
      paid_us, paid_part = paid_us + 1, 0
    end
  end

  local function owe(us, part)
    if us == 0 and part == 0 then
      return false
    elseif part == 0 then
      return now + us
    end
    local expires = now + us + 1
    local is_alike = math.ceil(expires / 1000000) == math.ceil(expired / 1000000)
    return string.format("%d:%d:%d", now + us, part, scale), not is_alike and expires or nil
  end

  local debt_us, debt_part = minus(paid_us, paid_part, now, 0, scale)
  local looks = cost_us == 0 and cost_part == 0
  if verb == "credit" or verb == "cancel" or verb == "withdraw" then
    local owes, stays = debt_us > 0 or debt_part > 0, verb == "cancel" and not is_last
    if verb == "withdraw" and not is_last then
      -- While more is owed than the limit holds at once, somebody may be waiting for permits that
      -- are taken already.
      local is_over = debt_us > tolerance_us or (debt_us == tolerance_us and debt_part > tolerance_part)
      stays = queues or is_over
    end
    if looks or not owes or stays then
      return true, 0, debt_us, debt_part, 0
    end
    if verb ~= "cancel" and ARGV[at + 7] ~= "0" then
      -- What has come back by itself since the permits were taken is not given back again.
      local mark_us, mark_part = ARGV[at + 7] + 0, ARGV[at + 8] + 0
      local unpaid_us, unpaid_part = minus(mark_us, mark_part, now, 0, scale)
      if unpaid_us < cost_us or (unpaid_us == cost_us and unpaid_part < cost_part) then
        cost_us, cost_part = unpaid_us, unpaid_part
      end
      if cost_us == 0 and cost_part == 0 then
        return true, 0, debt_us, debt_part, 0
      end
    end
    debt_us, debt_part = minus(debt_us, debt_part, cost_us, cost_part, scale)
    return true, 0, debt_us, debt_part, 0, owe(debt_us, debt_part)
  end
  if looks then
    return true, 0, debt_us, debt_part, 0
  end

  local new_us, new_part = debt_us + cost_us, debt_part + cost_part
  if new_part >= scale then
    new_us, new_part = new_us + 1, new_part - scale
  end
  -- Before the debt is bounded, which would make the wait too short.
  local over_us, over_part = minus(new_us, new_part, tolerance_us, tolerance_part, scale)
  if new_us >= most_us then
    -- After the clock stepped back the debt may exceed the maximum.
    if debt_us >= most_us then
      new_us, new_part = debt_us, debt_part
    else
      new_us, new_part = most_us, 0
    end
  end
  if verb == "charge" then
    return true, 0, debt_us, debt_part, 0, owe(new_us, new_part)
  end

  -- What keeps the cost out altogether, and what holds it up.
  local held_us, held_part, delay_us, delay_part = 0, 0, debt_us, debt_part
  if verb == "borrow" then
    if not queues then
      delay_us, delay_part = minus(debt_us, debt_part, tolerance_us, tolerance_part, scale)
    end
  elseif queues then
    held_us, held_part = over_us, over_part
  else
    delay_us, delay_part = over_us, over_part
  end
  held_us = held_part > 0 and held_us + 1 or held_us
  delay_us = delay_part > 0 and delay_us + 1 or delay_us
  if held_us == 0 and delay_us == 0 then
    return true, 0, debt_us, debt_part, 0, owe(new_us, new_part)
  end
  local longest_us = ARGV[at + 7] + 0
  local never = cost_us > tolerance_us or (cost_us == tolerance_us and cost_part > tolerance_part)
  if (never and verb == "take") or held_us > 0 or delay_us > longest_us then
    return false, math.max(held_us, delay_us - longest_us), debt_us, debt_part, 0
  end
  return true, delay_us, debt_us, debt_part, 0, owe(new_us, new_part)
end
