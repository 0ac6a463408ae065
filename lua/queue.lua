-- queue: judge takes of one key that came together, first come first served. Stands in place of decide.
-- KEYS[1]               the state key
-- ARGV[1]               now_us         integer; 0 asks the server's clock
-- ARGV[at]              algorithm      the name of the function that judges run i, which are takes of
--                                      equal costs; at = 2 + (i - 1) * (stride + 1); its arguments
--                                      follow, see there, and what states has of them
-- ARGV[at + stride]     takes          integer > 0; how many takes are in the run
-- Returns       four integers a take, as decide has them, up to the first of its run that is denied: those
--               behind it are denied alike; then now_us
-- Writes        KEYS[1] when any fits, as states has it
-- Mirrors       src/algorithm/mod.rs
-- Before it stands states.
local now = tonumber(ARGV[1])
if now == 0 then
  local clock = redis.call("TIME")
  now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
end

local reply, unwritten = {}, nil
for at = 2, #ARGV, stride + 1 do
  for _ = 1, tonumber(ARGV[at + stride]) do
    local fits, wait_us, level, more, kept, expires = judge(1, ARGV[at], at, now)
    local row = #reply
    reply[row + 1], reply[row + 2] = fits and 1 or 0, wait_us
    reply[row + 3], reply[row + 4] = level, more
    if not fits then
      break
    elseif kept ~= nil then
      -- A sliding log is written at once, and read again for the next take.
      unwritten = keep(1, at, kept, expires)
    end
  end
end
if unwritten then
  write(unwritten, now)
end
reply[#reply + 1] = now
return reply
