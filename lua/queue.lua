-- queue: judge takes of one key that came together, first come first served. Stands in place of decide.
-- KEYS[1]               the state key
-- ARGV[1]               now_us         integer; 0 asks the server's clock
-- ARGV[at]              algorithm      the name of the function that judges run i, which are takes of
--                                      equal costs; at = 2 + (i - 1) * (stride + 1); its arguments
--                                      follow, see there, and what states has of them
-- ARGV[at + stride]     takes          integer > 0; how many takes are in the run
-- Returns       for each run rows of four integers, then now_us: of a take as decide has them, up to the first
--               that is denied, behind which all of the run are denied alike; or 2, takes, 0, 0, where so
--               many go on behind the take before, each with as much more taken as those before it take
-- Writes        KEYS[1] when any fits, as states has it
-- Mirrors       src/algorithm/mod.rs
-- Before it stands states.
local now = tonumber(ARGV[1])
if now == 0 then
  local clock = redis.call("TIME")
  now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
end

local reply, unwritten = {}, nil
local function add(...)
  for _, integer in ipairs({ ... }) do
    reply[#reply + 1] = integer
  end
end
local function carry_out(at, verdict)
  if verdict.kept ~= nil then
    -- A sliding log is written at once, and read again for the next take.
    unwritten = keep(1, at, verdict.kept, verdict.expires)
  end
end

-- The cost of these is a time, with a part of a microsecond.
local is_debt = { gcra = true, token_bucket = true, leaky_bucket = true }

for at = 2, #ARGV, stride + 1 do
  local cost, left, judged = tonumber(ARGV[at + 2]), tonumber(ARGV[at + stride]), 0
  local most_cost, part, scale = tonumber(ARGV[at + 3]), 0, 1
  if is_debt[ARGV[at]] then
    most_cost, part, scale = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 6])
  end

  local function ask(takes)
    local carried = math.floor(takes * part / scale)
    ARGV[at + 2] = string.format("%.0f", takes * cost + carried)
    if is_debt[ARGV[at]] then
      ARGV[at + 3] = string.format("%.0f", takes * part - carried * scale)
    end
    local verdict = {}
    verdict.fits, verdict.wait_us, verdict.level, verdict.more, verdict.kept, verdict.expires =
      judge(1, ARGV[at], at, now)
    return verdict
  end
  -- The most takes that fit at once, which mostly are all, and the verdict on them.
  local function most()
    local fit, too_many, takes, fitting = 0, left + 1, left, nil
    while too_many - fit > 1 do
      local verdict = takes * cost <= most_cost and ask(takes)
      if verdict and verdict.fits and verdict.wait_us == 0 then
        fit, fitting = takes, verdict
      else
        too_many = takes
      end
      takes = math.floor((fit + too_many) / 2)
    end
    return fit, fitting
  end

  while left > 0 do
    local verdict = ask(1)
    add(verdict.fits and 1 or 0, verdict.wait_us, verdict.level, verdict.more)
    if not verdict.fits then
      break
    end
    carry_out(at, verdict)
    left, judged = left - 1, judged + 1
    -- The first may open a window. Behind the second each finds only more taken, unless it waits: whatever
    -- their number, they are one step.
    if judged == 2 and left > 1 and ARGV[at + 1] == "take" and verdict.wait_us == 0 then
      local takes, fitting = most()
      if fitting then
        carry_out(at, fitting)
        add(2, takes, 0, 0)
        left = left - takes
      end
    end
  end
end
if unwritten then
  write(unwritten, now)
end
reply[#reply + 1] = now
return reply
