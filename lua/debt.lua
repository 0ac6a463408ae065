-- debt: the arithmetic that GCRA, token bucket and leaky bucket share: how long until all permits of a key are paid
-- back, and how an action changes that.
-- state         number or string us, or us:fraction for us + fraction / 2^32, the instant at which the debt is paid
--                                back
-- ARGV[at + 1]  verb                acquire | borrow | charge | hold | credit | cancel | withdraw
-- ARGV[at + 2]  cost_us             integer >= 0; the cost in time; 0 without a fraction only looks
-- ARGV[at + 3]  cost_fraction       integer >= 0, < 2^32
-- ARGV[at + 4]  tolerance_us        integer >= 0; the time in which the whole capacity comes back
-- ARGV[at + 5]  tolerance_fraction  integer >= 0, < 2^32
-- ARGV[at + 6]  longest_us          integer >= 0; acquire, borrow: the longest delay; hold: how long; all others: the us
--                                   of the state after the permits were acquired
-- ARGV[at + 7]  mark_fraction       the fraction of that state; credit: both 0 if not known
-- Returns       fits, wait_us, debt_us, debt_fraction, 0; the new state, if any; and the instant at which it expires,
--                which is when the debt is paid back, unless that is in the same second as before
-- Mirrors       src/algorithm/debt/mod.rs
-- us + fraction / 2^32 minus the other, at least zero.
local function minus(us, fraction, less_us, less_fraction)
  us, fraction = us - less_us, fraction - less_fraction
  if fraction < 0 then
    us, fraction = us - 1, fraction + 4294967296
  end
  if us < 0 then
    return 0, 0
  end
  return us, fraction
end
-- The state of this debt, and when it expires unless it expires as before.
local function state_of_debt(us, fraction, now, expired)
  if us == 0 and fraction == 0 then
    return false
  elseif fraction == 0 then
    return now + us
  end
  local expires = now + us + 1
  local is_alike = math.ceil(expires / 1000000) == math.ceil(expired / 1000000)
  return string.format("%d:%d", now + us, fraction), not is_alike and expires or nil
end
local function debt(state, at, now, queues)
  local verb = ARGV[at + 1]
  local cost_us, cost_fraction = ARGV[at + 2] + 0, ARGV[at + 3] + 0
  local tolerance_us, tolerance_fraction = ARGV[at + 4] + 0, ARGV[at + 5] + 0
  -- 120 years: the debt never exceeds this.
  local most_us = 3794688000000000

  local paid_us, paid_fraction, is_last, expired = 0, 0, false, 0
  if state then
    paid_us = state
    if type(state) == "string" and string.find(state, "^[1-9]%d*$") then
      paid_us = state + 0
    elseif type(state) == "string" then
      paid_us, paid_fraction = string.match(state, "^([1-9]%d*):([1-9]%d*)$")
      paid_us, paid_fraction = tonumber(paid_us), tonumber(paid_fraction)
      if not paid_us or paid_fraction >= 4294967296 then
        error("corrupt value")
      end
      expired = paid_us + 1
    end
    -- A state with a fraction expires a microsecond later.
    if not (paid_us >= 0 and paid_us < 9007199254740991 and paid_us % 1 == 0) then
      error("corrupt value")
    end
    if verb == "cancel" or verb == "withdraw" then
      is_last = paid_us == ARGV[at + 6] + 0 and paid_fraction == ARGV[at + 7] + 0
    end
  end

  local debt_us, debt_fraction = minus(paid_us, paid_fraction, now, 0)
  local looks = cost_us == 0 and cost_fraction == 0
  if verb == "credit" or verb == "cancel" or verb == "withdraw" then
    local owes, stays = debt_us > 0 or debt_fraction > 0, verb == "cancel" and not is_last
    if verb == "withdraw" and not is_last then
      -- While the debt exceeds the tolerance, callers may be waiting for permits that they have acquired.
      local is_over = debt_us > tolerance_us or (debt_us == tolerance_us and debt_fraction > tolerance_fraction)
      stays = queues or is_over
    end
    if looks or not owes or stays then
      return true, 0, debt_us, debt_fraction, 0
    end
    if verb ~= "cancel" and ARGV[at + 6] + 0 ~= 0 then
      -- Permits that have come back with time are not given back again.
      local mark_us, mark_fraction = ARGV[at + 6] + 0, ARGV[at + 7] + 0
      local unpaid_us, unpaid_fraction = minus(mark_us, mark_fraction, now, 0)
      if unpaid_us < cost_us or (unpaid_us == cost_us and unpaid_fraction < cost_fraction) then
        cost_us, cost_fraction = unpaid_us, unpaid_fraction
      end
      if cost_us == 0 and cost_fraction == 0 then
        return true, 0, debt_us, debt_fraction, 0
      end
    end
    debt_us, debt_fraction = minus(debt_us, debt_fraction, cost_us, cost_fraction)
    return true, 0, debt_us, debt_fraction, 0, state_of_debt(debt_us, debt_fraction, now, expired)
  end
  if verb == "hold" then
    -- What costs so much is there when the time is over, and no more. A queue lets go on what is first.
    local held_us, held_fraction = 0, 0
    if not queues then
      held_us, held_fraction = minus(tolerance_us, tolerance_fraction, cost_us, cost_fraction)
    end
    held_us = held_us + ARGV[at + 6]
    if debt_us > held_us or (debt_us == held_us and debt_fraction >= held_fraction) then
      return true, 0, debt_us, debt_fraction, 0
    end
    return true, 0, held_us, held_fraction, 0, state_of_debt(held_us, held_fraction, now, expired)
  end
  if looks then
    return true, 0, debt_us, debt_fraction, 0
  end

  local new_us, new_fraction = debt_us + cost_us, debt_fraction + cost_fraction
  if new_fraction >= 4294967296 then
    new_us, new_fraction = new_us + 1, new_fraction - 4294967296
  end
  -- Before the debt is bounded, which would make the wait too short.
  local over_us, over_fraction = minus(new_us, new_fraction, tolerance_us, tolerance_fraction)
  if new_us >= most_us then
    -- After the clock stepped back the debt may exceed the maximum.
    if debt_us >= most_us then
      new_us, new_fraction = debt_us, debt_fraction
    else
      new_us, new_fraction = most_us, 0
    end
  end
  if verb == "charge" then
    return true, 0, debt_us, debt_fraction, 0, state_of_debt(new_us, new_fraction, now, expired)
  end

  -- How much too large the debt is to enter, and the delay.
  local held_us, held_fraction, delay_us, delay_fraction = 0, 0, debt_us, debt_fraction
  if verb == "borrow" then
    if not queues then
      delay_us, delay_fraction = minus(debt_us, debt_fraction, tolerance_us, tolerance_fraction)
    end
  elseif queues then
    held_us, held_fraction = over_us, over_fraction
  else
    delay_us, delay_fraction = over_us, over_fraction
  end
  held_us = held_fraction > 0 and held_us + 1 or held_us
  delay_us = delay_fraction > 0 and delay_us + 1 or delay_us
  if held_us == 0 and delay_us == 0 then
    return true, 0, debt_us, debt_fraction, 0, state_of_debt(new_us, new_fraction, now, expired)
  end
  local longest_us = ARGV[at + 6] + 0
  local never = cost_us > tolerance_us or (cost_us == tolerance_us and cost_fraction > tolerance_fraction)
  if (never and verb == "acquire") or held_us > 0 or delay_us > longest_us then
    return false, math.max(held_us, delay_us - longest_us), debt_us, debt_fraction, 0
  end
  return true, delay_us, debt_us, debt_fraction, 0, state_of_debt(new_us, new_fraction, now, expired)
end
