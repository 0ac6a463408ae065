-- decide: judge all checks of one request, and charge all of them or none.
-- KEYS[i]       the state key of check i; all of one hash slot
-- ARGV[1]       now_us           integer; 0 asks the server's clock
-- ARGV[at]      algorithm        the name of the function that judges check i,
--                                at = 2 + (i - 1) * stride; its arguments follow, see there
-- Returns       four integers a check: fits 0|1, wait_us, and two that tell the state as it was
--               before the charge, see the algorithm
-- Writes        in the algorithms' commits, only when every check fits
-- Mirrors       src/store/memory
-- Before it stand the algorithms that the checks use, a table `judges` of them by name, and
-- `stride`, the arguments each check has room for, with its name.
local now = tonumber(ARGV[1])
if now == 0 then
  local clock = redis.call("TIME")
  now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
end

local reply, commits, all_fit = {}, {}, true
for i = 1, #KEYS do
  local at = 2 + (i - 1) * stride
  local fits, wait_us, level, more, commit = judges[ARGV[at]](KEYS[i], at, now)
  all_fit = all_fit and fits
  commits[i] = commit
  local row = (i - 1) * 4
  reply[row + 1], reply[row + 2] = fits and 1 or 0, wait_us
  reply[row + 3], reply[row + 4] = level, more
end

-- Every read came before the first write, so that an error here means that nothing happened.
if all_fit then
  for i = 1, #KEYS do
    if commits[i] then
      commits[i]()
    end
  end
end
return reply
