-- decide: evaluate all checks of one question, and carry out all of them or none. Shadow checks are evaluated
-- separately, so that no other check depends on them.
-- KEYS[i]       the key of a check
-- ARGV[at]      algorithm        the name of the function that evaluates the check; prefixed with "+" for a further
--                                rate of the limit before it, and before that with "~" for a shadow check. The
--                                arguments of the function follow, and then those of states
-- Returns       five integers for each check:
--               - fits 0|1. For a shadow check that fails instead: 2 for a corrupt value, 4 for a server without
--                 memory, 5 for a user without the permission, and 3 for anything else
--               - wait_us
--               - two integers that summarise the state before permits are acquired or after they are given back: see
--                 the algorithm
--               - next_us: how long until a permit comes back, if an acquire or a charge leaves none after it is carried
--                 out, or now if it does not fit; otherwise 0, and also where the summary of the state contains it
-- Writes        the new states, each key once:
--               - of the enforced checks, if all of them fit, also those in other slots
--               - then of a shadow limit, if also all its rates fit and it is not banned
--               - of a penalty, if it fits and a rate of the limit before it is denied
--               - of each check that does not fit, whose new state repairs what a clock that was ahead has written
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

-- Error texts within a script, first match first: since Redis 7.2 a text names the user who lacks a permission, and
-- that name may contain an error code.
local failures = {
  { "corrupt value", 2 },
  { "The user executing the script", 5 },
  { "no permissions to run", 5 },
  { "WRONGTYPE", 2 },
  { "OOM", 4 },
}
-- An error that concerns all checks fails the question.
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
  -- By the number of a limit: whether a rate is denied, and whether the limit cannot be carried out in shadow.
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

  -- Every read comes before the first write, so an error up to here means that nothing was written. Shadow checks
  -- are written last, except in a record that enforced checks share.
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
  -- Later questions must not see what could not be written.
  for _, number in ipairs(later or {}) do
    if reply[number * 5 - 4] > 1 then
      held[KEYS[first + number - 1]] = nil
    end
  end
  return reply, all_fit
end
