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
-- `singles`, `record`, `up_to` and `decide` come before this script.
records.read, records.write = read_record, write_record

-- Evaluates one question with any checks, so many times.
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

ask_rows_of_singles()
while row < #ARGV do
  local count, sets, times = ARGV[row] + 0, ARGV[row + 1] + 0, ARGV[row + 2] + 0
  local is_denied, most, checks = ARGV[row + 3] == "1", ARGV[row + 4] + 0, checks_of(row, count)
  for _ = 1, math.max(sets, 1) do
    if sets > 0 then
      first, last = last + 1, last + count
    end
    ask_several(first, last, checks, times, is_denied, most)
  end
  row = row + 5 + count * stride
  ask_rows_of_singles()
end
reply[length + 1] = now
return reply
