-- penalty: check whether a subject is banned, and count denials of the limit before.
-- state         string           expires_us:banned_until_us:ban_us, then the instant of each
--                                denial, oldest first, all with a colon between
-- ARGV[at + 1]  verb             acquire
-- ARGV[at + 2]  cost             1; 0 only looks
-- ARGV[at + 3]  denials          integer > 0; so many cause a ban
-- ARGV[at + 4]  within_us        integer > 0; in any interval of this length
-- ARGV[at + 5]  ban_us           integer > 0; the first ban
-- ARGV[at + 6]  longest_us       integer >= ban_us; the longest ban, up to which bans double
-- Returns       fits, rest_us of the ban, denials, next_ban_us, 0; the new state, if any, which counts a denial, and when
--                it expires. During a ban there is a new state if it repairs one
-- Mirrors       src/algorithm/penalty.rs
local function penalty(state, at, now)
  local looks, most = ARGV[at + 1] ~= "acquire" or ARGV[at + 2] == "0", tonumber(ARGV[at + 3])
  local within_us, first_ban = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local longest_us = tonumber(ARGV[at + 6])

  local banned_until, ban, denials = 0, 0, {}
  if state then
    local expires, until_us, length, instants = string.match(state, "^(%d+):(%d+):(%d+)([%d:]*)$")
    expires, until_us, length = tonumber(expires), tonumber(until_us), tonumber(length)
    -- No clock reaches this before the year 2223, no ban is longer than 366 days, and none outlasts
    -- the state.
    if not expires or expires >= 8000000000000000 or until_us > expires or length > 31622400000000 then
      error("corrupt value")
    end
    if now < expires then
      banned_until, ban = until_us, length
      for text in string.gmatch(instants, ":(%d+)") do
        local instant = tonumber(text)
        if instant > expires then
          error("corrupt value")
        elseif instant + within_us > now then
          denials[#denials + 1] = instant
        end
      end
    end
  end
  -- How long a ban is remembered after its end, for the length of the next one.
  local memory_us = longest_us > first_ban and longest_us or 0
  local function text_of_state()
    local expires = denials[1] and denials[#denials] + within_us or 0
    if ban > 0 then
      expires = math.max(expires, banned_until + memory_us)
    end
    local text = {}
    for _, number in ipairs({expires, banned_until, ban}) do
      text[#text + 1] = string.format("%d", number)
    end
    for _, instant in ipairs(denials) do
      text[#text + 1] = string.format("%d", instant)
    end
    return table.concat(text, ":"), expires
  end
  local is_ban_ahead = banned_until > now + 2 * ban
  local repaired, repaired_expires
  if is_ban_ahead or (denials[1] and denials[#denials] > now + within_us) then
    -- A clock that was ahead has written them. The window of a ban is its length.
    banned_until = is_ban_ahead and now + ban or banned_until
    for i, instant in ipairs(denials) do
      denials[i] = math.min(instant, now)
    end
    repaired, repaired_expires = text_of_state()
  end
  local next_ban = first_ban
  if ban > 0 and banned_until + memory_us > now then
    next_ban = math.min(math.max(ban + ban, first_ban), longest_us)
  end
  local rest_us = math.max(banned_until - now, 0)
  if not looks and rest_us > 0 then
    return false, rest_us, #denials, next_ban, 0, repaired, repaired_expires
  end

  local counted = #denials
  if looks then
    return true, rest_us, counted, next_ban, 0, repaired, repaired_expires
  end
  -- If the clock stepped back, time stands still here.
  denials[counted + 1] = math.max(denials[counted] or now, now)
  if #denials >= most then
    denials, banned_until, ban = {}, now + next_ban, next_ban
  end
  return true, rest_us, counted, next_ban, 0, text_of_state()
end
