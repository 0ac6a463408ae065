-- decide: judge all checks of one request, and carry out all of them or none.
-- KEYS[i]       the state key of check i; all of one hash slot
-- ARGV[1]       now_us           integer; 0 asks the server's clock
-- ARGV[at]      algorithm        the name of the function that judges check i, behind "+" when it is
--                                about a further rate of the limit before it and a penalty is among
--                                the checks; at = 2 + (i - 1) * stride; its arguments follow
-- ARGV[at + 1]  verb             what to do; reset is done here: it forgets the key
-- Returns       four integers a check: fits 0|1, wait_us, and two that tell the state, before permits
--               are taken and after they are given back, see the algorithm; then now_us
-- Writes        in the algorithms' commits, only when every check fits; but penalty commits when a
--               rate of the limit before it is denied and it fits itself
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
  local fits, wait_us, level, more, commit = true, 0, 0, 0, nil
  if ARGV[at + 1] == "reset" then
    commit = function()
      redis.call("DEL", KEYS[i])
    end
  else
    fits, wait_us, level, more, commit = judges[ARGV[at]](KEYS[i], at, now)
  end
  all_fit = all_fit and fits
  commits[i] = commit
  local row = (i - 1) * 4
  reply[row + 1], reply[row + 2] = fits and 1 or 0, wait_us
  reply[row + 3], reply[row + 4] = level, more
end
reply[#KEYS * 4 + 1] = now

-- Every read came before the first write, so that an error here means that nothing happened.
for i = 1, #KEYS do
  local committed = all_fit
  if ARGV[2 + (i - 1) * stride] == "penalty" and ARGV[3 + (i - 1) * stride] ~= "reset" then
    local rate, denied = i, false
    repeat
      rate = rate - 1
      denied = denied or reply[(rate - 1) * 4 + 1] == 0
    until rate <= 1 or string.sub(ARGV[2 + (rate - 1) * stride], 1, 1) ~= "+"
    committed = denied and reply[(i - 1) * 4 + 1] == 1
  end
  if committed and commits[i] then
    commits[i]()
  end
end
return reply
