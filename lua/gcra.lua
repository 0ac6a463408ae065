-- gcra: judge a cost against a key's theoretical arrival time, and advance it.
-- state         number or string tat_us, or tat_us:part:scale for tat_us + part/scale
-- ARGV[at + 1]  verb             take | borrow | charge | credit | cancel | withdraw
-- ARGV[at + 2]  cost_us          integer >= 0
-- ARGV[at + 3]  cost_part        integer >= 0, < scale
-- ARGV[at + 4]  tolerance_us     integer >= 0
-- ARGV[at + 5]  tolerance_part   integer >= 0, < scale
-- ARGV[at + 6]  scale            integer > 0
-- ARGV[at + 7]  longest_us       integer >= 0
-- ARGV[at + 8]  mark_part        integer >= 0; the arguments so far are those of debt
-- Returns       fits, wait_us, debt_us, debt_part; the state to keep, if any, and when it expires
-- Mirrors       src/algorithm/gcra.rs
local function gcra(state, at, now)
  return debt(state, at, now, false)
end
