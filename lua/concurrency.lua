-- concurrency: check a cost against the permits that leases hold, and acquire, renew or end a lease.
-- KEYS[i]       state key        sorted set: each lease with its lapse in us as the score; with scores below zero, "="
--                                and a lease with its permits, unless it holds one, and "held" with those of all
-- ARGV[at + 1]  verb             acquire | charge | credit | renew | release
-- ARGV[at + 2]  cost             integer >= 0; 0 only looks
-- ARGV[at + 3]  limit            integer > 0
-- ARGV[at + 4]  lease_us         integer > 0; how long a lease lives
-- ARGV[at + 5]  lease            the lease's number, as text; 0 is the common lease
-- Returns       fits, wait_us, held, empty_in_us, 0
-- Writes        KEYS[i] in the function that it returns, and to repair the state if the cost does not fit; expires when
--                the last lease lapses
-- Mirrors       src/algorithm/concurrency.rs

-- At most this many leases are examined to compute a wait, since other questions wait meanwhile.
local MOST_LOOKED_AT = 64

-- The totals of a key's leases, read once for all checks of a question, which may renew many. The variable `question`,
-- the number of the question that is being evaluated, comes before this script.
local all_leases = {}

local function concurrency(key, at, now)
  local verb, cost, limit = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local lease_us, lease = tonumber(ARGV[at + 4]), ARGV[at + 5]

  -- No clock reaches this before the year 2223, nor does a number of permits.
  local function bounded(number)
    if number and not (number > -8000000000000000 and number < 8000000000000000 and number % 1 == 0) then
      error("corrupt value")
    end
    return number
  end
  local function score(member)
    return bounded(tonumber(redis.call("ZSCORE", key, member) or nil))
  end
  local function permits_of(number)
    local permits = -(score("=" .. number) or -1)
    return permits > 0 and permits or error("corrupt value")
  end
  local function text(number)
    return string.format("%d", number)
  end

  -- A lease that lapses after this was acquired by a clock that is ahead.
  local ahead = now + 2 * lease_us

  -- Whether every lease holds one permit, so that they need not be read.
  local function all_have_one()
    return redis.call("ZCOUNT", key, "-inf", "(0") <= 1
  end

  local all = all_leases[key]
  if not all or all.question ~= question then
    local sum, lapsed = score("held"), {}
    local lapsed_count = redis.call("ZCOUNT", key, 0, text(now))
    local held = -(sum or 0) - lapsed_count
    -- There may be many if a process died.
    if lapsed_count > 0 and not all_have_one() then
      lapsed = redis.call("ZRANGEBYSCORE", key, 0, text(now))
      for _, number in ipairs(lapsed) do
        held = held - permits_of(number) + 1
      end
    end
    -- The last two, because the last one may be about to end.
    local last = redis.call("ZREVRANGE", key, 0, 1, "WITHSCORES")
    -- A common lease that was acquired by a clock that was ahead now lapses lease_us from now. Another lease may really
    -- have been granted for longer.
    local is_ahead = verb ~= "credit" and last[2] and tonumber(last[2]) > ahead and (score("0") or 0) > ahead
    if is_ahead then
      local others, common = redis.call("ZREVRANGE", key, 0, 2, "WITHSCORES"), now + lease_us
      last = {}
      for entry = 1, #others, 2 do
        if others[entry] ~= "0" then
          if common and tonumber(others[entry + 1]) <= common then
            last[#last + 1], last[#last + 2], common = "0", common, nil
          end
          last[#last + 1], last[#last + 2] = others[entry], others[entry + 1]
        end
      end
      if common then
        last[#last + 1], last[#last + 2] = "0", common
      end
    end
    if held < 0 or (last[1] and not (sum and bounded(tonumber(last[2])))) then
      error("corrupt value")
    end
    all = { question = question, lapsed = lapsed, lapsed_count = lapsed_count, held = held, last = last }
    all.is_ahead = is_ahead
    all_leases[key] = all
  end
  local held, last = all.held, all.last
  local function expire()
    local latest = redis.call("ZREVRANGE", key, 0, 0, "WITHSCORES")[2]
    redis.call("PEXPIREAT", key, math.ceil(tonumber(latest) / 1000))
  end
  local function repair()
    if all.is_ahead then
      redis.call("ZADD", key, text(now + lease_us), "0")
      expire()
    end
  end
  local repair_alone = all.is_ahead and repair or nil
  -- How long until the key is empty if `left` permits are held: until the last lease other than
  -- `but` lapses.
  local function empty_in(left, but)
    local lapse = tonumber(last[last[1] == but and 4 or 2] or 0)
    if (left > 0) ~= (lapse > now) then
      error("corrupt value")
    end
    return math.max(lapse - now, 0)
  end

  -- How long until so many permits are free, if no lease is renewed or released. Leases that are not examined count as
  -- holding one permit each, so the wait is rather too long than too short.
  local function free_in(wanted)
    local living, next = "(" .. text(now), {}
    if not all_have_one() then
      local most = math.min(wanted, MOST_LOOKED_AT) + 1
      next = redis.call("ZRANGEBYSCORE", key, living, "+inf", "WITHSCORES", "LIMIT", 0, text(most))
    end
    -- Of the leases that lapse at one instant, either all are examined or none, as their order is random.
    local not_looked_at = next[2 * MOST_LOOKED_AT + 2]
    local looked_at, freed = 0, 0
    for entry = 1, #next, 2 do
      if next[entry + 1] == not_looked_at then
        break
      end
      looked_at, freed = looked_at + 1, freed + permits_of(next[entry])
      if freed >= wanted then
        return tonumber(next[entry + 1]) - now
      end
    end
    local others = next[1] and redis.call("ZCOUNT", key, living, "+inf") - looked_at or held
    local later = text(math.max(others - (wanted - freed), 0))
    local enough = redis.call("ZREVRANGE", key, later, later, "WITHSCORES")
    local wait_us = bounded(tonumber(enough[2] or 0)) - now
    return wait_us > 0 and wait_us or error("corrupt value")
  end

  -- The lease of the check, if it has not lapsed.
  local lapses, permits = score(lease), 0
  if lapses and lapses > now then
    permits = permits_of(lease)
    if lease == "0" and all.is_ahead then
      lapses = now + lease_us
    end
    if permits > held then
      error("corrupt value")
    end
  else
    lapses = 0
  end
  local renewed = math.max(lapses, now + lease_us)
  -- Sets the lease's permits and lapse, and the total that is held.
  local function hold(new_permits, new_lapses)
    local new_held = held - permits + new_permits
    if new_held == 0 then
      redis.call("DEL", key)
      return
    end
    repair()
    if all.lapsed_count > 0 then
      redis.call("ZREMRANGEBYSCORE", key, 0, text(now))
    end
    for _, number in ipairs(all.lapsed) do
      redis.call("ZREM", key, "=" .. number)
    end
    redis.call("ZADD", key, text(-new_held), "held")
    if new_permits == 0 then
      redis.call("ZREM", key, lease, "=" .. lease)
    else
      redis.call("ZADD", key, text(new_lapses), lease)
      if new_permits == 1 then
        redis.call("ZREM", key, "=" .. lease)
      else
        redis.call("ZADD", key, text(-new_permits), "=" .. lease)
      end
    end
    expire()
  end

  if verb == "renew" then
    local empties_in = permits > 0 and math.max(empty_in(held), renewed - now) or empty_in(held)
    return true, 0, held, empties_in, 0, permits > 0 and function()
      repair()
      redis.call("ZADD", key, text(renewed), lease)
      expire()
    end or repair_alone
  end
  if verb == "credit" or verb == "release" then
    -- A lease is released by its holder, as a whole.
    local back = verb == "release" and permits or math.min(permits, cost)
    local empties_in = empty_in(held - back, back == permits and lease or nil)
    return true, 0, held - back, empties_in, 0, back > 0 and function()
      hold(permits - back, lapses)
    end or repair_alone
  end
  if verb == "acquire" and cost > 0 and held + cost > limit then
    -- Only a cost above the limit outlasts every lease.
    repair()
    local wait_us = cost > limit and lease_us or free_in(held + cost - limit)
    return false, wait_us, held, empty_in(held), 0
  end

  local new_permits = math.min(permits + cost, 999999999999999 - (held - permits))
  return true, 0, held, empty_in(held), 0, cost > 0 and new_permits > 0 and function()
    hold(new_permits, renewed)
  end or repair_alone
end
