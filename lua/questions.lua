-- questions: decide one question, or several that came together, first come first served.
-- KEYS[i]       the state key of check i; all of one hash slot, in a cluster
-- ARGV[at]      the arguments of check i, see decide; at = 2 + (i - 1) * stride
-- ARGV[2 + #KEYS * stride]       behind them: absent when all checks are those of one question; "denied" when so,
--                                and a check denies that is asked elsewhere; else of each question, one behind
--                                the other, how many of the checks are its own
-- Returns       five integers a check, see decide; of several questions, in place of all rows of one that fails, an
--               error: it fails alone, and has carried out nothing. Then now_us
-- Writes        what decide writes
-- Mirrors       src/store/redis/takes/any_takes/mod.rs
-- `decide` or `shadow` comes before this script.
local behind = 2 + #KEYS * stride
local reply = {}
if not tonumber(ARGV[behind]) then
  reply = decide(1, #KEYS, not ARGV[behind])
else
  local length, last = 0, 0
  for question = behind, #ARGV do
    local first = last + 1
    last = last + tonumber(ARGV[question])
    local is_decided, rows = pcall(decide, first, last, true)
    if is_decided then
      for row = 1, #rows do
        reply[length + row] = rows[row]
      end
      length = length + #rows
    else
      for i = first, last do
        packs[KEYS[i]] = nil
      end
      length = length + 1
      reply[length] = type(rows) == "table" and rows or { err = rows }
    end
  end
end
reply[#reply + 1] = now
return reply
