-- shadow: judge all checks of one question, some of them in shadow: these by themselves, so that nothing
-- depends on them, and carry out all others or none. Stands in place of decide.
-- KEYS[i]       the state key of check i
-- ARGV[at]      algorithm        the name of the function that judges check i, behind "+" when it is
--                                about a further rate of the limit before it, and that behind
--                                "shadow:" when it is in shadow; at = 2 + (i - 1) * stride; its
--                                arguments follow, and last what states has of it
-- Returns       as decide; but of a check in shadow that fails, in place of fits, 2 for a value that is
--               not ours, 4 for a server without memory, 5 for a user without the right, and 3 for
--               anything else
-- Writes        what is not in shadow as decide; then what is, when all others fit and all rates of the
--               limit fit, with the penalty behind it; but penalty when a rate of the limit before it
--               is denied and it fits; and what a check that does not fit repairs; each key of states holds all of them when it is written, and is
--               written once
-- Mirrors       src/algorithm/question.rs
-- `states` comes before this script and `questions` after it, as with `decide`.
local function at(i)
  return 2 + (i - 1) * stride
end
local function is_shadow(i)
  return judges[ARGV[at(i)]] == nil
end

-- By the words of servers within a script. Up to Redis 7.0 they differ from later ones, which name the
-- user who lacks a right: a code may be part of that name.
local failures = {
  { "foreign value", 2 },
  { "The user executing the script", 5 },
  { "no permissions to run", 5 },
  { "WRONGTYPE", 2 },
  { "OOM", 4 },
}
local function failure_of(problem)
  local text = tostring(type(problem) == "table" and problem.err or problem)
  for _, failure in ipairs(failures) do
    if string.find(text, failure[1], 1, true) then
      return failure[2]
    end
  end
  return 3
end

local function decide(first, last, all_fit)
  local reply, kept, expires, all_in_shadow = {}, {}, {}, true
  local function is_penalty(i)
    return i <= last and string.match(ARGV[at(i)], "penalty$") and ARGV[at(i) + 1] ~= "reset"
  end
  local function fits(i)
    return reply[(i - first) * 5 + 1]
  end

  -- An error in shadow costs no other check its answer.
  local function try(i, what)
    if not is_shadow(i) then
      return what()
    end
    local done, fit, wait_us, level, more, next_us, state, ends = pcall(what)
    if done then
      return fit, wait_us, level, more, next_us, state, ends
    end
    local problem = fit
    local failure = failure_of(problem)
    if failure ~= 2 and all_in_shadow then
      -- What the server refuses here, it refuses for all checks.
      error(problem, 0)
    end
    return failure, 0, 0, 0, 0
  end
  for i = first, last do
    all_in_shadow = all_in_shadow and is_shadow(i)
  end
  for i = first, last do
    local fit, wait_us, level, more, next_us
    fit, wait_us, level, more, next_us, kept[i], expires[i] = try(i, function()
      return judge(i, string.match(ARGV[at(i)], "[%w_]+$"), at(i))
    end)
    all_fit = all_fit and (fit or is_shadow(i))
    local row = (i - first) * 5
    reply[row + 1], reply[row + 2] = fit == true and 1 or fit or 0, wait_us
    reply[row + 3], reply[row + 4], reply[row + 5] = level, more, next_us
  end

  local function is_further_rate(i)
    return i <= last and string.find(ARGV[at(i)], "+", 1, true)
  end
  -- Whether all rates of check i's limit fit, whether one is denied, and the position of the last
  -- one.
  local function limit(i)
    while i > first and is_further_rate(i) do
      i = i - 1
    end
    local all, denied = fits(i) == 1, fits(i) == 0
    while is_further_rate(i + 1) do
      i = i + 1
      all, denied = all and fits(i) == 1, denied or fits(i) == 0
    end
    return all, denied, i
  end
  local function is_committed(i)
    if kept[i] == nil then
      return false
    elseif fits(i) == 0 then
      return true
    elseif is_penalty(i) then
      local _, denied = limit(i - 1)
      return denied
    end
    local all, _, last = limit(i)
    local is_banned = is_penalty(last + 1) and fits(last + 1) == 0
    return all_fit and (not is_shadow(i) or (all and not is_banned))
  end
  local function writes_itself(i)
    return type(kept[i]) == "function"
  end
  -- Every read comes before the first write, so an error here means that nothing was written.
  -- Checks in shadow are written last, except those that share their key with an enforced one.
  local unwritten = {}
  for i = first, last do
    if is_committed(i) and not (is_shadow(i) and writes_itself(i)) then
      local key = keep(i, at(i), kept[i], expires[i])
      if not is_shadow(i) then
        unwritten[#unwritten + 1] = key
      end
    end
  end
  write_all(unwritten)
  for i = first, last do
    if is_shadow(i) and is_committed(i) then
      local failure = try(i, function()
        if writes_itself(i) then
          kept[i]()
        else
          write(KEYS[i])
        end
      end)
      reply[(i - first) * 5 + 1] = failure or fits(i)
    end
  end
  -- What is not written is not taken, also with regard to questions that are judged later.
  for i = first, last do
    if fits(i) > 1 then
      packs[KEYS[i]] = nil
    end
  end
  return reply
end
