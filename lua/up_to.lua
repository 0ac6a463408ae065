-- up_to: reduce the question's cost to what is available: at most what it asks for, at least 1. The rate with the
-- fewest permits left decides.
-- ARGV[at]  the checks as decide has them. Before this, each but that of a penalty costs one permit
-- Returns   nothing; sets the cost of the checks
-- Mirrors   src/algorithm/question.rs
-- `singles` comes before this script and `decide` after it.

-- What so many permits cost, if one costs us + fraction / 2^32. The product of the fraction has up to 82 bits, so it
-- goes digit by digit of the permits, to the base 2^20.
local function price_of(permits, us, fraction)
  local carried, rest = 0, 0
  for place = 2, 0, -1 do
    local digit = math.floor(permits / 1048576 ^ place) % 1048576
    rest = rest * 1048576 + fraction * digit
    local whole = math.floor(rest / 4294967296)
    carried, rest = carried * 1048576 + whole, rest - whole * 4294967296
  end
  return us * permits + carried, rest
end
-- How many permits, at most so many, cost no more than that. The quotient of such numbers is off by less than one.
local function affordable(most, left_us, left_fraction, us, fraction)
  local quotient = math.floor((left_us + left_fraction / 4294967296) / (us + fraction / 4294967296))
  local permits = math.min(most, quotient + 1)
  while permits > 0 do
    local price_us, price_fraction = price_of(permits, us, fraction)
    if price_us < left_us or (price_us == left_us and price_fraction <= left_fraction) then
      break
    end
    permits = permits - 1
  end
  return permits
end

local function lessen(first, checks, most)
  for number, check in ipairs(checks) do
    if not check.is_penalty then
      local at = check.at
      -- If this fails, `decide` fails too, and reports it. The level does not depend on the cost.
      local is_done, _, _, level, more = pcall(evaluate, first + number - 1, check.name, at)
      if not is_done then
        level, more = 0, 0
      end
      if is_debt[check.name] then
        check.us, check.fraction = check.us or ARGV[at + 2] + 0, check.fraction or ARGV[at + 3] + 0
        local left_us, left_fraction = minus(ARGV[at + 4] + 0, ARGV[at + 5] + 0, level, more)
        most = affordable(most, left_us, left_fraction, check.us, check.fraction)
      else
        most = math.min(most, ARGV[at + 3] - level)
      end
    end
  end
  most = math.max(most, 1)
  for _, check in ipairs(checks) do
    if not check.is_penalty and is_debt[check.name] then
      ARGV[check.at + 2], ARGV[check.at + 3] = price_of(most, check.us, check.fraction)
    elseif not check.is_penalty then
      ARGV[check.at + 2] = most
    end
  end
end
