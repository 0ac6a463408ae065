-- states: where the states of a question's checks stand; how one check is judged, and carried out.
-- KEYS[i]                    the key of check i; several checks may have one key together. It holds a
--                            state as its algorithm writes it, which begins with a digit, or a pack of
--                            several: a msgpack map of each field to a whole number, which is a state and
--                            its own expiry, or to a pair of a state and its expiry
-- ARGV[1]                    now_us, integer; 0 asks the server's clock
-- ARGV[at + 1]               verb; reset is done here: it forgets the state
-- ARGV[at + stride - 1]      field, under which the state stands in a pack; one that may stand alone is
--                            under the empty field
-- Returns       nothing; decide, shadow and queue call what is here
-- Writes        KEYS[i], once for all that has changed; it expires at the end of the second in which
--               the last of its states does, as plain has it
-- Mirrors       src/store/redis/keys.rs
-- Before it stand `stride`, the arguments that each check has room for, the algorithms that the checks
-- use, and a table `judges` of them by name.

local now = tonumber(ARGV[1])
if now == 0 then
  local clock = redis.call("TIME")
  now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
end

local call, find, format, ceil = redis.call, string.find, string.format, math.ceil

-- These are not texts: they read and write their key themselves.
local own_type = { sliding_log = true, concurrency = true }
-- The packs of keys that were read and not written since. A state that stands alone is under the
-- empty field; if it is a text by itself, it expires when its key does.
local packs = {}
-- A state is kept this long after its expiry beside others that live on, in case the clock is
-- corrected.
local grace_us = 3600000000

local function read(key, field)
  local text = call("GET", key)
  if not text then
    return {}
  elseif find(text, "^%d") and not find(field, "^%a") then
    -- No state of a group stands alone: its field begins with a letter.
    return { [""] = find(text, "^%d+$") and text + 0 or text }
  end
  -- A pack of this crate is never empty and has nothing after it.
  -- Of anything else, `behind` is why it cannot be read.
  local _, behind, pack = pcall(cmsgpack.unpack_one, text)
  if behind ~= -1 or type(pack) ~= "table" or next(pack) == nil then
    error("foreign value")
  end
  for field, entry in pairs(pack) do
    local state, expires = entry, entry
    if type(entry) == "table" then
      state, expires = entry[1], entry[2]
    end
    local is_state = type(state) == "number" or type(state) == "string"
    local is_expiry = type(expires) == "number" and expires < 9007199254740992
    if type(field) ~= "string" or not is_state or not is_expiry then
      error("foreign value")
    end
  end
  return pack
end
local function state_of(key, field)
  local pack = packs[key]
  if not pack then
    pack = read(key, field)
    packs[key] = pack
  end
  local entry = pack[field]
  if type(entry) == "table" then
    return entry[1]
  end
  return entry
end

-- By the server's clock, whatever clock the question uses.
local function expiry_of_key(key)
  local clock, left_ms = call("TIME"), call("PTTL", key)
  if left_ms < 0 then
    -- Somebody has taken it away, as a copy without expiries does. No state lasts for longer than
    -- 120 years.
    return now + 3794688000000000
  end
  return (clock[1] * 1000 + math.floor(clock[2] / 1000) + left_ms) * 1000
end
local function write_alone(key, entry)
  if type(entry) == "string" then
    call("SET", key, entry, "KEEPTTL")
    return
  end
  local text, expires
  if type(entry) == "table" then
    text, expires = entry[1], entry[2]
  else
    text, expires = format("%d", entry), entry
  end
  call("SET", key, text, "PXAT", format("%d", ceil(expires / 1000000) * 1000))
end
local function write_several(key, pack)
  if type(pack[""]) == "string" then
    pack[""] = { pack[""], expiry_of_key(key) }
  end
  local latest, is_alone = 0, true
  for field, entry in pairs(pack) do
    local expires = type(entry) == "table" and entry[2] or entry
    if expires + grace_us <= now then
      pack[field] = nil
    else
      latest, is_alone = math.max(latest, expires), is_alone and field == ""
    end
  end
  if not next(pack) then
    call("DEL", key)
  elseif is_alone then
    write_alone(key, pack[""])
  else
    call("SET", key, cmsgpack.pack(pack), "PXAT", format("%d", ceil(latest / 1000000) * 1000))
  end
end
-- Does nothing if it has been written.
local function write(key)
  local pack = packs[key]
  if not pack then
    return
  elseif pack[""] and not next(pack, next(pack)) then
    write_alone(key, pack[""])
  else
    write_several(key, pack)
  end
  packs[key] = nil
end

local function write_all(keys)
  for _, key in ipairs(keys) do
    write(key)
  end
end

-- Returns fits, wait_us, level, more, next_us; then the state to keep, if any, and when it expires, or
-- nothing if it expires when the stored one does.
local function judge(i, name, at)
  local key, field = KEYS[i], ARGV[at + stride - 1]
  if ARGV[at + 1] == "reset" then
    if not own_type[name] and pcall(state_of, key, field) then
      return true, 0, 0, 0, 0, false
    end
    return true, 0, 0, 0, 0, function()
      call("DEL", key)
    end
  elseif own_type[name] then
    return judges[name](key, at, now)
  end
  return judges[name](state_of(key, field), at, now)
end

-- Carries out what was judged. Returns the name of the key that is still to be written.
local function keep(i, at, kept, expires)
  if type(kept) == "function" then
    kept()
    return nil
  end
  local key, field = KEYS[i], ARGV[at + stride - 1]
  local pack = packs[key]
  if type(kept) == "string" then
    local before = pack[field]
    if expires then
      kept = { kept, expires }
    elseif type(before) == "table" then
      kept = { kept, before[2] }
    end
  end
  pack[field] = kept or nil
  return key
end
