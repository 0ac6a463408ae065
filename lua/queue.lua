-- queue: judge takes that came together, of one key or of many, first come first served. Stands in place of decide.
-- KEYS[i]                 the state keys; several may be one key, for states that stand in it together
-- ARGV[at]                algorithm    the name of the function that judges run n, which are takes of equal costs;
--                                      at = 2 + (n - 1) * (stride + 2); its arguments follow, see there, and what
--                                      states has of them
-- ARGV[at + stride]       takes        integer > 0; how many of them each key has, one after the other
-- ARGV[at + stride + 1]   keys         integer; how many keys, the next ones, have such takes; 0: the last one
--                                      has, too
-- Returns       for each run of each key rows of four integers: of a take as decide has them, up to the first
--               that is denied, behind which all of the run are denied alike; or 2, takes, 0, 0, where so
--               many go on behind the take before, each with as much more taken as those before it take. In place
--               of all rows of a key that fails an error: it fails alone, and is left as it is. Then now_us
-- Writes        each key of which any fits, as states has it
-- Mirrors       src/algorithm/mod.rs
-- Before it stands states.
-- Which key is judged, where its rows begin, whether it has failed, and its name while it is still to be
-- written.
local i, begins, is_failed, unwritten = 0, 0, false, nil
-- The run that is judged, of how many keys it still is, and of how many takes its arguments are.
local at, left, asked = 2, nil, 1
-- What one take costs; the cost of some is a time, with a part of a microsecond.
local is_debt = { gcra = true, token_bucket = true, leaky_bucket = true }
local cost, most_cost, part, scale, takes_each

local reply, length = {}, 0
local function add(first, second, third, fourth)
  reply[length + 1], reply[length + 2] = first, second
  reply[length + 3], reply[length + 4] = third, fourth
  length = length + 4
end

local function begin_run()
  left, takes_each = tonumber(ARGV[at + stride + 1]), tonumber(ARGV[at + stride])
  -- Once for all keys; between the verb and the field all are numbers.
  for argument = at + 2, at + stride - 2 do
    ARGV[argument] = tonumber(ARGV[argument])
  end
  asked, cost, most_cost, part, scale = 1, ARGV[at + 2], ARGV[at + 3], 0, 1
  if is_debt[ARGV[at]] then
    most_cost, part, scale = ARGV[at + 4], ARGV[at + 3], ARGV[at + 6]
  end
end
-- What is said of so many takes at once.
local function ask(takes)
  if takes ~= asked then
    local carried = math.floor(takes * part / scale)
    ARGV[at + 2], asked = takes * cost + carried, takes
    if is_debt[ARGV[at]] then
      ARGV[at + 3] = takes * part - carried * scale
    end
  end
  return judge(i, ARGV[at], at)
end
local function carry_out(kept, expires)
  if kept ~= nil then
    -- A sliding log is written at once, and read again for the next take.
    unwritten = keep(i, at, kept, expires)
  end
end
-- Carries out the most takes that fit at once, which mostly are all of them: how many.
local function take_most(most)
  local fit, too_many, takes, fitting = 0, most + 1, most, nil
  while too_many - fit > 1 do
    local verdict = takes * cost <= most_cost and { ask(takes) } or { false }
    if verdict[1] and verdict[2] == 0 then
      fit, fitting = takes, verdict
    else
      too_many = takes
    end
    takes = math.floor((fit + too_many) / 2)
  end
  if fitting then
    carry_out(fitting[5], fitting[6])
    add(2, fit, 0, 0)
  end
  return fit
end
local function judge_run()
  local untold, judged = takes_each, 0
  while untold > 0 do
    local fits, wait_us, level, more, kept, expires = ask(1)
    add(fits and 1 or 0, wait_us, level, more)
    if not fits then
      break
    end
    carry_out(kept, expires)
    untold, judged = untold - 1, judged + 1
    -- The first may open a window. Behind the second each finds only more taken, unless it waits: whatever
    -- their number, they are one step.
    if judged == 2 and untold > 1 and ARGV[at + 1] == "take" and wait_us == 0 then
      untold = untold - take_most(untold)
    end
  end
end

local function end_key()
  local name = unwritten
  unwritten = nil
  if name then
    write(name)
  end
end
-- Raises an error at a key that fails; called again, it goes on behind that.
local function judge_keys()
  while at < #ARGV do
    if not left then
      begin_run()
    end
    if left == 0 and not is_failed then
      judge_run()
    end
    while left > 0 do
      end_key()
      left, i, begins, is_failed = left - 1, i + 1, length, false
      judge_run()
    end
    at, left = at + stride + 2, nil
  end
  end_key()
end
repeat
  local is_over, why = pcall(judge_keys)
  if not is_over then
    for row = begins + 1, length do
      reply[row] = nil
    end
    length, is_failed, unwritten = begins + 1, true, nil
    reply[length] = type(why) == "table" and why or { err = why }
    packs[KEYS[i]] = nil
  end
until is_over
reply[length + 1] = now
return reply
