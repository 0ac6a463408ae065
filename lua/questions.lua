-- questions: evaluate questions that came together, first come first served, each as if it came alone.
-- KEYS[i]                 the keys of each question, one for each of its checks; several may be one key
-- ARGV[row]               checks           integer > 0; of each question of a row; row = 2, then behind the row before
-- ARGV[row + 1]           sets             integer; how many questions, with a set of the next keys each, are of this
--                                          row; 0: those behind that one whose keys are the last; -1: and which differ
--                                          from these in what they cost alone: single acquires, as are those
-- ARGV[row + 2]           repeat           integer > 0; how often each is asked, one time after the other
-- ARGV[row + 3]           is_denied        0|1; whether a check denies that is asked elsewhere
-- ARGV[row + 4]           most             integer; as many permits at most are taken as there are, see up_to; 0: those that
--                                          the checks cost
-- ARGV[at]                algorithm        of check n, and behind it its arguments, see decide; at = row + 5 + (n - 1)
--                                          * stride
-- Returns       for each time of each question of each set of keys five integers a check, see decide, up to the
--               first time that it is denied, behind which it is denied alike, unless a penalty counts that. Of an
--               acquire by a single check these, or 2, times, 0, 0, next_us where so many go on behind the time before,
--               each with as much more taken as those before it take; next_us is that of the last, and all others
--               leave permits. In place of what a question is told that fails an error: it fails alone, and its keys
--               are left as they are, but of a log, of which a corrupt entry may be met behind takes that are
--               written. Single acquires of a row fail together. Then now_us
-- Writes        what decide writes
-- Mirrors       src/store/redis/question/composed.rs
-- `decide` comes before this script; before all of them stands `question`, the number of the question that is
-- evaluated.
local floor, min = math.floor, math.min

local reply, length = {}, 0
local function add(first, second, third, fourth, fifth)
  reply[length + 1], reply[length + 2] = first, second
  reply[length + 3], reply[length + 4], reply[length + 5] = third, fourth, fifth
  length = length + 5
end
-- Puts an error in place of what was told from here on.
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

-- What many equal acquires cost together is tried out with fewer at once if few fit.
local reach

-- What so many acquires cost together, of these costs and fractions one after the other.
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
-- Carries out as many of the acquires from this step on as fit at once, usually all of them. Returns how many.
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
-- Evaluates a single check that differs from step to step in its cost alone, in each so many times.
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
      -- Behind it each only finds more taken, unless it waits. So however many they are, they are one step.
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
-- The same. A server out of memory refuses the first write: then each step is asked on its own, as another may be
-- denied, which needs no memory.
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
-- The same of any checks, this many times.
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
    -- Once for all keys; everything between the verb and the id is a number.
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
