-- decide: evaluate all checks of one question, and carry out all of them or none. Those in shadow are evaluated on
-- their own, so that nothing depends on them.
-- KEYS[i]       the key of a check
-- ARGV[at]      algorithm        the name of the function that evaluates the check, behind "+" when it is about a
--                                further rate of the limit before it, and that behind "~" when it is in shadow; its
--                                arguments follow, see there, and last what states has of it
-- Returns       five integers a check: fits 0|1, wait_us, two that tell the state, before permits are taken and after
--               they are given back, see the algorithm, and next_us: how long until a permit comes back, if a take
--               or a charge leaves none once it is carried out, or at once when it does not fit; else 0, and where
--               the two that tell the state tell that, too. Of a check in shadow that fails, in place of fits, 2 for
--               a value that is not ours, 4 for a server without memory, 5 for a user without the right, and 3 for
--               anything else
-- Writes        what the enforced checks are to keep, when all of them fit, also elsewhere; then that of a limit in
--               shadow, when all its rates fit besides, and it is not banned; but that of penalty when a rate of the
--               limit before it is denied and it fits itself, and that of a check that does not fit in any case: it
--               repairs what a clock which was ahead has left. Each key once
-- Mirrors       src/algorithm/question.rs
-- `up_to` comes before this script and `questions` after it.

-- The checks of an argument row. Those of one limit, its rates and its penalty, have the same number.
local function checks_of(row, count)
  local checks, limit, all_in_shadow = {}, 0, true
  for number = 1, count do
    local at = row + 5 + (number - 1) * stride
    local mark, name = string.match(ARGV[at], "^([~+]*)(.*)$")
    local is_penalty = name == "penalty" and ARGV[at + 1] ~= "reset"
    if not is_penalty and mark ~= "+" and mark ~= "~+" then
      limit = limit + 1
    end
    local is_shadow = string.sub(mark, 1, 1) == "~"
    all_in_shadow = all_in_shadow and is_shadow
    checks.has_penalty = checks.has_penalty or is_penalty
    checks[number] = { at = at, name = name, limit = limit, is_penalty = is_penalty, is_shadow = is_shadow }
  end
  checks.all_in_shadow = all_in_shadow
  return checks
end

-- By the words of servers within a script. Up to Redis 7.0 they differ from later ones, which name the user who
-- lacks a right: a code may be part of that name.
local failures = {
  { "corrupt value", 2 },
  { "The user executing the script", 5 },
  { "no permissions to run", 5 },
  { "WRONGTYPE", 2 },
  { "OOM", 4 },
}
-- What the server refuses of all checks fails the question.
local function failure_in_shadow(checks, problem)
  local text, code = tostring(type(problem) == "table" and problem.err or problem), 3
  for _, failure in ipairs(failures) do
    if string.find(text, failure[1], 1, true) then
      code = failure[2]
      break
    end
  end
  if code ~= 2 and checks.all_in_shadow then
    error(problem, 0)
  end
  return code
end

-- Returns the reply, and whether all enforced checks fit.
local function decide(first, checks, all_fit)
  local reply, kept, expires = {}, {}, {}
  -- By the number of a limit: whether a rate is denied, and whether anything keeps it from being taken in shadow.
  local is_denied, is_withheld = {}, {}
  for number, check in ipairs(checks) do
    local is_done, fits, wait_us, level, more, next_us
    if check.is_shadow then
      is_done, fits, wait_us, level, more, next_us, kept[number], expires[number] =
        pcall(evaluate, first + number - 1, check.name, check.at)
      if is_done then
        fits = fits and 1 or 0
      else
        fits, wait_us, level, more, next_us = failure_in_shadow(checks, fits), 0, 0, 0, 0
        kept[number] = nil
      end
    else
      fits, wait_us, level, more, next_us, kept[number], expires[number] =
        evaluate(first + number - 1, check.name, check.at)
      fits, all_fit = fits and 1 or 0, all_fit and fits
    end
    if check.is_penalty then
      is_withheld[check.limit] = is_withheld[check.limit] or fits == 0
    elseif fits ~= 1 then
      is_denied[check.limit], is_withheld[check.limit] = is_denied[check.limit] or fits == 0, true
    end
    local at = number * 5
    reply[at - 4], reply[at - 3], reply[at - 2], reply[at - 1], reply[at] = fits, wait_us, level, more, next_us
  end

  -- Every read comes before the first write, so an error up to here means that nothing was written. What is in
  -- shadow is written last, unless it stands in a record together with what is enforced.
  local later
  for number, check in ipairs(checks) do
    local is_committed = all_fit and not (check.is_shadow and is_withheld[check.limit])
    if check.is_penalty then
      is_committed = is_denied[check.limit]
    end
    if kept[number] ~= nil and (is_committed or reply[number * 5 - 4] == 0) then
      if check.is_shadow then
        later = later or {}
        later[#later + 1] = number
      end
      if not (check.is_shadow and type(kept[number]) == "function") then
        keep(first + number - 1, check.at, kept[number], expires[number])
      end
    end
  end
  for number, check in ipairs(checks) do
    if not check.is_shadow then
      write(KEYS[first + number - 1])
    end
  end
  for _, number in ipairs(later or {}) do
    local is_done, problem
    if type(kept[number]) == "function" then
      is_done, problem = pcall(kept[number])
    else
      is_done, problem = pcall(write, KEYS[first + number - 1])
    end
    if not is_done then
      reply[number * 5 - 4] = failure_in_shadow(checks, problem)
    end
  end
  -- What is not written is not taken, also with regard to later questions.
  for _, number in ipairs(later or {}) do
    if reply[number * 5 - 4] > 1 then
      held[KEYS[first + number - 1]] = nil
    end
  end
  return reply, all_fit
end
