-- decide: judge all checks of one question, and carry out all of them or none.
-- KEYS[i]       the state key of check i
-- ARGV[at]      algorithm        the name of the function that judges check i, behind "+" when it is
--                                about a further rate of the limit before it and a penalty is among
--                                the checks; at = 2 + (i - 1) * stride; its arguments follow, see
--                                there, and last what states has of it
-- Returns       five integers a check: fits 0|1, wait_us, two that tell the state, before permits are
--               taken and after they are given back, see the algorithm, and next_us: how long until a
--               permit comes back, if a take or a charge leaves none once it is carried out, or at once
--               when it does not fit; else 0, and where the two that tell the state tell that, too
-- Writes        what the checks are to keep, only when every check fits, also elsewhere; but that of
--               penalty when a rate of the limit before it is denied and it fits itself, and that of a
--               check that does not fit in any case: it repairs what a clock which was ahead has left
-- Mirrors       src/algorithm/question.rs
-- `states` comes before this script and `questions` after it, which calls it with the first and the
-- last check of the question, and whether all checks fit that are asked elsewhere.
local function decide(first, last, all_fit)
  local reply, kept, expires = {}, {}, {}
  for i = first, last do
    local at, row = 2 + (i - 1) * stride, (i - first) * 5
    local fits, wait_us, level, more, next_us
    fits, wait_us, level, more, next_us, kept[i], expires[i] = judge(i, ARGV[at], at)
    all_fit = all_fit and fits
    reply[row + 1], reply[row + 2] = fits and 1 or 0, wait_us
    reply[row + 3], reply[row + 4], reply[row + 5] = level, more, next_us
  end

  -- Every read comes before the first write, so an error here means that nothing was written.
  local unwritten = {}
  for i = first, last do
    local at, committed = 2 + (i - 1) * stride, all_fit
    if ARGV[at] == "penalty" and ARGV[at + 1] ~= "reset" then
      local rate, denied = i, false
      repeat
        rate = rate - 1
        denied = denied or reply[(rate - first) * 5 + 1] == 0
      until rate <= first or string.sub(ARGV[2 + (rate - 1) * stride], 1, 1) ~= "+"
      committed = denied
    end
    if kept[i] ~= nil and (committed or reply[(i - first) * 5 + 1] == 0) then
      unwritten[#unwritten + 1] = keep(i, at, kept[i], expires[i])
    end
  end
  write_all(unwritten)
  return reply
end
