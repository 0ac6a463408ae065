-- GCRA as textbooks have it: read the clock and the state, decide, write, tell all there is to tell.
-- KEYS[1]  state key     theoretical arrival time, integer us since the epoch
-- ARGV[1]  emission_us   integer > 0
-- ARGV[2]  burst         integer > 0
-- Returns  {allowed 0|1, limit, remaining, retry_after_us, reset_after_us}
local emission_us = tonumber(ARGV[1])
local burst = tonumber(ARGV[2])
local tolerance_us = emission_us * burst
local time = redis.call("TIME")
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local arrival_us = tonumber(redis.call("GET", KEYS[1]) or now_us)
if arrival_us < now_us then
  arrival_us = now_us
end
local next_us = arrival_us + emission_us
local used_us = next_us - now_us
if used_us > tolerance_us then
  return {0, burst, 0, used_us - tolerance_us, arrival_us - now_us}
end
redis.call("SET", KEYS[1], string.format("%.0f", next_us), "PX", math.ceil(used_us / 1000))
return {1, burst, math.floor((tolerance_us - used_us) / emission_us), 0, used_us}
