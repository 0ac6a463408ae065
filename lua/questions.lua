-- questions: evaluate the questions of a batch in order, each as if it were alone.
-- KEYS[i]                 the keys of each question, one for each of its checks; several may be one key
-- ARGV[row]               checks           integer > 0; the number of checks of each question of the row; the first row
--                                          is 2, and each row follows the one before
-- ARGV[row + 1]           sets             integer; the number of questions of the row, each with the next set of keys;
--                                          0: the question follows another one about the same keys; -1: the same, and
--                                          both are single acquires that differ only in their cost
-- ARGV[row + 2]           repeat           integer > 0; how often each question is asked in succession
-- ARGV[row + 3]           is_denied        0|1; whether a check in another slot denies
-- ARGV[row + 4]           most             integer; > 0: as many permits as there are, at most so many, see up_to; 0: those
--                                          that the checks cost
-- ARGV[at]                algorithm        of check n, then its arguments: see decide; at = row + 5 + (n - 1) * stride
-- Returns       for each question, and each of its repeats, one of these; and after all of them now_us:
--               - five integers for each check: see decide. After a denied repeat come no more: the others are
--                 denied alike. If a penalty counts denials, all repeats have theirs
--               - for single acquires: 2, times, 0, 0, next_us. So many acquires follow the one before and fit at once,
--                 each after those before it; next_us is that of the last, and all others leave permits
--               - an error for a question that fails alone. Its keys are unchanged, except that a log may have a
--                 corrupt entry behind permits that are already written. Single acquires of a row fail together
-- Writes        what decide writes
-- Mirrors       src/store/redis/question/composed.rs
-- `decide` comes before this script, and before all scripts the variable `question`, the number of the question that
-- is being evaluated.
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

-- The total cost of so many acquires, from this step on.
local function cost_of(acquires, step, costs, fractions, times)
  local cost, fraction = 0, 0
  while acquires > 0 do
    local of_it = min(acquires, times[step])
    cost, fraction = cost + of_it * costs[step], fraction + of_it * fractions[step]
    acquires, step = acquires - of_it, step + 1
  end
  local carried = floor(fraction / 4294967296)
  return cost + carried, fraction - carried * 4294967296
end
-- Carries out as many acquires from this step on as fit at once, usually all. Returns their number.
local function acquire_most(i, at, step, costs, fractions, times)
  local name, most = ARGV[at], 0
  local is_of_time = is_debt[name]
  local most_cost = ARGV[at + (is_of_time and 4 or 3)] + 0
  for later = step, #costs do
    most = min(most + times[later], reach)
  end
  -- A single one is evaluated on its own.
  if most < 2 then
    return 0
  end
  local fit, too_many, tried, next_us, kept, expires = 0, most + 1, most, 0, nil, nil
  while too_many - fit > 1 do
    local cost, fraction = cost_of(tried, step, costs, fractions, times)
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
local function ask_single(i, at, costs, fractions, times)
  local name = ARGV[at]
  local adds_up = ARGV[at + 1] == "acquire" and not (costs[1] == 0 and fractions[1] == 0) and name ~= "concurrency"
  reach = 4294967295
  local step = 1
  while costs[step] do
    if times[step] == 0 then
      step = step + 1
    else
      question = question + 1
      ARGV[at + 2] = costs[step]
      if is_debt[name] then
        ARGV[at + 3] = fractions[step]
      end
      local fits, wait_us, level, more, next_us, kept, expires = evaluate(i, name, at)
      add(fits and 1 or 0, wait_us, level, more, next_us)
      if kept ~= nil then
        keep(i, at, kept, expires)
      end
      times[step] = fits and times[step] - 1 or 0
      -- Each further acquire only finds more used, unless it waits. So all of them together are one step.
      if fits and adds_up and wait_us == 0 and (times[step] > 0 or costs[step + 1]) then
        local together, later = acquire_most(i, at, step, costs, fractions, times), step
        while together > 0 do
          local of_it = min(together, times[later])
          times[later], together, later = times[later] - of_it, together - of_it, later + 1
        end
      end
    end
  end
  write(KEYS[i])
end
-- The same, with errors. A server out of memory refuses the first write. Then each step is evaluated alone, since
-- another step may be denied, which needs no memory.
local function ask_singles(i, at, costs, fractions, repeats)
  local from, times = length, { unpack(repeats) }
  has_written = false
  local is_done, problem = pcall(ask_single, i, at, costs, fractions, times)
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
-- The same for any checks, so many times.
local function ask_several(first, last, checks, times, is_denied, most)
  for _ = 1, times do
    question = question + 1
    if most > 0 then
      lessen(first, checks, most)
    end
    local is_done, rows, all_fit = pcall(decide, first, checks, not is_denied)
    if is_done then
      for at = 1, #rows do
        reply[length + at] = rows[at]
      end
      length = length + #rows
      if not all_fit and not checks.has_penalty then
        break
      end
    else
      fail(length, rows, first, last)
    end
  end
end

local row, first, last = 2, 1, 0
while row < #ARGV do
  local count, sets, times = ARGV[row] + 0, ARGV[row + 1] + 0, ARGV[row + 2] + 0
  local is_denied, most, at, width = ARGV[row + 3] == "1", ARGV[row + 4] + 0, row + 5, 5 + count * stride
  local name, checks = ARGV[at], nil
  local is_single = count == 1 and algorithms[name] and name ~= "penalty" and not is_denied and most == 0
  if is_single and ARGV[at + 1] == "acquire" and name ~= "concurrency" then
    -- Converted once for all keys: everything between the verb and the id is a number.
    for argument = at + 2, at + stride - 2 do
      ARGV[argument] = ARGV[argument] + 0
    end
  elseif not is_single then
    checks = checks_of(row, count)
  end
  local costs, fractions, repeats = nil, nil, { times }
  if is_single then
    costs, fractions = { ARGV[at + 2] + 0 }, { is_debt[name] and ARGV[at + 3] + 0 or 0 }
  end
  for set = 1, math.max(sets, 1) do
    if sets > 0 then
      first, last = last + 1, last + count
    end
    if is_single then
      while set == math.max(sets, 1) and ARGV[row + width + 1] == "-1" do
        row = row + width
        local step = #costs + 1
        costs[step], repeats[step] = ARGV[row + 7] + 0, ARGV[row + 2] + 0
        fractions[step] = is_debt[name] and ARGV[row + 8] + 0 or 0
      end
      ask_singles(first, at, costs, fractions, repeats)
    else
      ask_several(first, last, checks, times, is_denied, most)
    end
  end
  row = row + width
end
reply[length + 1] = now
return reply
