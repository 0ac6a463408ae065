-- singles: evaluate the questions of a batch with one check each, up to the first one with more. Most batches have no
-- others, and do not define what comes after this.
-- ARGV[row]     the rows of questions
-- Returns       the reply of questions, if there are no other rows
-- Writes        what decide writes
-- Mirrors       src/store/redis/question/composed.rs
-- `states` comes before this script and `questions` after it, and before all scripts the variable `question`, the
-- number of the question that is being evaluated.
local floor, min = math.floor, math.min

local reply, length = {}, 0
local function add(first, second, third, fourth, fifth)
  reply[length + 1], reply[length + 2] = first, second
  reply[length + 3], reply[length + 4], reply[length + 5] = third, fourth, fifth
  length = length + 5
end
-- Replaces the reply from here on by an error.
local function fail(from, problem, first, last)
  for at = from + 1, length do
    reply[at] = nil
  end
  length = from + 1
  reply[length] = type(problem) == "table" and problem or { err = problem }
  for i = first, last do
    held[KEYS[i]] = nil
  end
end

-- The costs of these are times with a fraction.
local is_debt = { gcra = true, token_bucket = true, leaky_bucket = true }
-- How many acquires are tried together: fewer if few fit.
local reach

-- The total cost of so many acquires, of which so many are left of this step.
local function cost_of(acquires, step, left, costs, fractions, repeats)
  local cost, fraction = 0, 0
  while acquires > 0 do
    local of_it = min(acquires, left)
    cost, fraction = cost + of_it * costs[step], fraction + of_it * fractions[step]
    acquires, step = acquires - of_it, step + 1
    left = repeats[step]
  end
  local carried = floor(fraction / 4294967296)
  return cost + carried, fraction - carried * 4294967296
end
-- Carries out as many acquires as fit at once, usually all that are left of this step and all later ones. Returns their
-- number.
local function acquire_most(i, at, step, left, costs, fractions, repeats)
  local name, most = ARGV[at], min(left, reach)
  local is_of_time = is_debt[name]
  local most_cost = ARGV[at + (is_of_time and 4 or 3)] + 0
  for later = step + 1, #costs do
    most = min(most + repeats[later], reach)
  end
  -- A single one is evaluated on its own.
  if most < 2 then
    return 0
  end
  local fit, too_many, tried, next_us, kept, expires = 0, most + 1, most, 0, nil, nil
  while too_many - fit > 1 do
    local cost, fraction = cost_of(tried, step, left, costs, fractions, repeats)
    local fits, wait_us, _, _, next, keeps, until_us
    if cost <= most_cost then
      ARGV[at + 2] = cost
      if is_of_time then
        ARGV[at + 3] = fraction
      end
      fits, wait_us, _, _, next, keeps, until_us = evaluate(i, name, at)
    end
    if fits and wait_us == 0 then
      fit, next_us, kept, expires = tried, next, keeps, until_us
    else
      too_many = tried
    end
    tried = min(2 * fit + 1, floor((fit + too_many) / 2))
  end
  reach = 2 * (fit + 1)
  if fit > 0 then
    keep(i, at, kept, expires)
    add(2, fit, 0, 0, next_us)
  end
  return fit
end
-- Evaluates a single check in steps with different costs, each step so many times.
local function ask_single(i, at, costs, fractions, repeats)
  local name = ARGV[at]
  local is_of_time = is_debt[name]
  local adds_up = ARGV[at + 1] == "acquire" and not (costs[1] == 0 and fractions[1] == 0) and name ~= "concurrency"
  reach = 4294967295
  local step, left = 1, repeats[1]
  while left do
    question = question + 1
    ARGV[at + 2] = costs[step]
    if is_of_time then
      ARGV[at + 3] = fractions[step]
    end
    local fits, wait_us, level, more, next_us, kept, expires = evaluate(i, name, at)
    add(fits and 1 or 0, wait_us, level, more, next_us)
    if kept ~= nil then
      keep(i, at, kept, expires)
    end
    -- Those behind a denied one are denied alike.
    local answered = fits and 1 or left
    -- Each further acquire only finds more used, unless it waits. So all of them together are one step.
    if fits and adds_up and wait_us == 0 and (left > 1 or costs[step + 1]) then
      answered = 1 + acquire_most(i, at, step, left - 1, costs, fractions, repeats)
    end
    while left and answered >= left do
      answered, step = answered - left, step + 1
      left = repeats[step]
    end
    left = left and left - answered
  end
  write(KEYS[i])
end
-- The same, with errors. A server out of memory refuses the first write. Then each step is evaluated alone, since
-- another step may be denied, which needs no memory.
local function ask_singles(i, at, costs, fractions, repeats)
  local from = length
  has_written = false
  local is_done, problem = pcall(ask_single, i, at, costs, fractions, repeats)
  if is_done then
    return
  end
  fail(from, problem, i, i)
  local text = tostring(type(problem) == "table" and problem.err or problem)
  local is_untouched = string.find(text, "OOM", 1, true) and not has_written
  length = from
  for step = 1, #costs do
    from = length
    if #costs > 1 and is_untouched then
      is_done, problem = pcall(ask_single, i, at, { costs[step] }, { fractions[step] }, { repeats[step] })
    end
    if not is_done then
      fail(from, problem, i, i)
    end
  end
end

local row, first, last = 2, 1, 0
-- Whether the next row is of single checks that can be evaluated yet.
local function is_of_singles()
  local name = ARGV[row + 5]
  return ARGV[row] == "1" and algorithms[name] and name ~= "penalty" and ARGV[row + 3] == "0" and ARGV[row + 4] == "0"
    and (records.read or ARGV[row + 4 + stride] == "")
end
-- Evaluates the rows of single checks that come next.
local function ask_rows_of_singles()
  while row < #ARGV and is_of_singles() do
    local sets, at, width = ARGV[row + 1] + 0, row + 5, 5 + stride
    local name = ARGV[at]
    if ARGV[at + 1] == "acquire" and name ~= "concurrency" then
      -- Converted once for all keys: everything between the verb and the id is a number.
      for argument = at + 2, at + stride - 2 do
        ARGV[argument] = ARGV[argument] + 0
      end
    end
    local costs, fractions = { ARGV[at + 2] + 0 }, { is_debt[name] and ARGV[at + 3] + 0 or 0 }
    local repeats = { ARGV[row + 2] + 0 }
    for set = 1, math.max(sets, 1) do
      if sets > 0 then
        first, last = last + 1, last + 1
      end
      while set == math.max(sets, 1) and ARGV[row + width + 1] == "-1" do
        row = row + width
        local step = #costs + 1
        costs[step], repeats[step] = ARGV[row + 7] + 0, ARGV[row + 2] + 0
        fractions[step] = is_debt[name] and ARGV[row + 8] + 0 or 0
      end
      ask_singles(first, at, costs, fractions, repeats)
    end
    row = row + width
  end
end

ask_rows_of_singles()
if row > #ARGV then
  reply[length + 1] = now
  return reply
end
