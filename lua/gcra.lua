-- gcra: check a cost against a key's theoretical arrival time, and advance it.
-- state         number or string tat_us, or tat_us:fraction, as debt has it
-- ARGV[at + 1]  verb             acquire | borrow | charge | hold | credit | cancel | withdraw
-- ARGV[at + 2]  cost_us          integer >= 0
-- ARGV[at + 3]  cost_fraction    integer >= 0, < 2^32
-- ARGV[at + 4]  tolerance_us     integer >= 0
-- ARGV[at + 5]  tolerance_fraction  integer >= 0, < 2^32
-- ARGV[at + 6]  longest_us       integer >= 0
-- ARGV[at + 7]  mark_fraction    integer >= 0; the arguments so far are those of debt
-- Returns       fits, wait_us, debt_us, debt_fraction; the new state, if any, and when it expires
-- Mirrors       src/algorithm/debt/mod.rs
local function gcra(state, at, now)
  return debt(state, at, now, false)
end
