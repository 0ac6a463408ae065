-- queue: judge takes that came together, of one key or of many, first come first served. Stands in place of decide.
-- KEYS[i]                 the state keys; several may be one key, for states that stand in it together
-- ARGV[at]                algorithm    the name of the function that judges run n, which are takes of equal costs;
--                                      at = 2 + (n - 1) * (stride + 2); its arguments follow, see there, and what
--                                      states has of them
-- ARGV[at + stride]       takes        integer > 0; how many of them each key has, one after the other
-- ARGV[at + stride + 1]   keys         integer; how many keys, the next ones, have such takes; 0: the last one
--                                      has, too; -1: and they differ from the run before in their cost alone
-- Returns       for each run of each key rows of five integers: of a take as decide has them, up to the first
--               that is denied, behind which all of the run are denied alike; or 2, takes, 0, 0, next_us,
--               where so many go on behind the take before, each with as much more taken as those before
--               it take; next_us is that of the last, and all others leave permits. In place
--               of all rows of a key that fails an error: it fails alone, and is left as it is, but for a log, of
--               which a foreign entry may be met behind takes that are written. Then now_us
-- Writes        each key of which any fits, or that a take which does not fit repairs, as states has it
-- Mirrors       src/algorithm/mod.rs
-- `states` comes before this script.
-- Which key is judged, where its rows begin, whether it has failed, and its name while it still has
-- to be written.
local i, begins, is_failed, unwritten = 0, 0, false, nil
-- The run that is judged, how many of its keys are left, and for how many of its takes the answer
-- is still to be told.
local at, left, untold = 2, nil, 0
-- Whether a cost is a time, with a fraction of a microsecond; the most that a take may cost; and
-- what the run's own arguments ask for.
local is_debt = { gcra = true, token_bucket = true, leaky_bucket = true }
local most_cost, scale, asked_cost, asked_part
-- How many more takes of the key under the same rules are examined to see what fits together. If few
-- fit, few are examined.
local reach

local reply, length = {}, 0
local function add(first, second, third, fourth, fifth)
  reply[length + 1], reply[length + 2] = first, second
  reply[length + 3], reply[length + 4], reply[length + 5] = third, fourth, fifth
  length = length + 5
end

local function part_of(run)
  return is_debt[ARGV[at]] and tonumber(ARGV[run + 3]) or 0
end
local function begin_run()
  left, untold = tonumber(ARGV[at + stride + 1]), tonumber(ARGV[at + stride])
  -- Once for all keys; everything between the verb and the field is a number.
  for argument = at + 2, at + stride - 2 do
    ARGV[argument] = tonumber(ARGV[argument])
  end
  asked_cost, asked_part, most_cost, scale = ARGV[at + 2], part_of(at), ARGV[at + 3], 1
  if is_debt[ARGV[at]] then
    most_cost, scale = ARGV[at + 4], ARGV[at + 6]
  end
end
local function next_run()
  at = at + stride + 2
  begin_run()
end

-- The takes of this key that are still to be told, as far as they differ only in their cost and are
-- within reach: their runs, each with cost, part and takes; and how many takes there are.
local function takes_ahead()
  local runs, takes = { asked_cost, asked_part, untold }, untold
  local run = at + stride + 2
  while left < 1 and takes < reach and ARGV[run + stride + 1] == "-1" do
    local times = tonumber(ARGV[run + stride])
    runs[#runs + 1], runs[#runs + 2], runs[#runs + 3] = tonumber(ARGV[run + 2]), part_of(run), times
    run, takes = run + stride + 2, takes + times
  end
  return runs, math.min(takes, reach)
end
-- What this many of them cost together.
local function cost_of(takes, runs)
  local cost, part = 0, 0
  for run = 1, #runs, 3 do
    local of_it = math.min(takes, runs[run + 2])
    cost, part, takes = cost + of_it * runs[run], part + of_it * runs[run + 1], takes - of_it
  end
  local carried = math.floor(part / scale)
  return cost + carried, part - carried * scale
end

local function ask(cost, part)
  ARGV[at + 2] = cost
  if is_debt[ARGV[at]] then
    ARGV[at + 3] = part
  end
  return judge(i, ARGV[at], at)
end
local function carry_out(kept, expires)
  if kept ~= nil then
    -- A sliding log is written at once, and read again for the next take.
    unwritten = keep(i, at, kept, expires)
  end
end
-- Carries out as many takes as fit at once, usually all of them. Returns how many.
local function take_most()
  local runs, most = takes_ahead()
  -- A single take is judged by itself.
  if most < 2 then
    return 0
  end
  local fit, too_many, takes, fitting = 0, most + 1, most, nil
  while too_many - fit > 1 do
    local cost, part = cost_of(takes, runs)
    local verdict = cost <= most_cost and { ask(cost, part) } or { false }
    if verdict[1] and verdict[2] == 0 then
      fit, fitting = takes, verdict
    else
      too_many = takes
    end
    takes = math.min(2 * fit + 1, math.floor((fit + too_many) / 2))
  end
  reach = 2 * (fit + 1)
  if fitting then
    carry_out(fitting[6], fitting[7])
    add(2, fit, 0, 0, fitting[5])
  end
  return fit
end
-- Judges what is still to be told of this run, or of a later one if takes of several runs go on
-- together.
local function judge_run()
  while untold > 0 do
    local fits, wait_us, level, more, next_us, kept, expires = ask(asked_cost, asked_part)
    add(fits and 1 or 0, wait_us, level, more, next_us)
    carry_out(kept, expires)
    if not fits then
      return
    end
    untold = untold - 1
    -- Behind it each only finds more taken, unless it waits. So however many they are, they are one
    -- step. Most keys have no others.
    local may_be_others = untold > 0 or left < 1
    if may_be_others and ARGV[at + 1] == "take" and wait_us == 0 then
      local together = take_most()
      while together > untold do
        together = together - untold
        next_run()
      end
      untold = untold - together
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
-- Raises an error at a key that fails; called again, it goes on after that key.
local function judge_keys()
  while at < #ARGV do
    if not left then
      begin_run()
    end
    if left == 0 then
      reach = 4294967295
    end
    if left < 1 and not is_failed then
      judge_run()
    end
    while left > 0 do
      end_key()
      left, i, begins, is_failed = left - 1, i + 1, length, false
      untold, reach = tonumber(ARGV[at + stride]), 4294967295
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
