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

-- These are no text: they read and write their key themselves.
local own_type = { sliding_log = true, concurrency = true }
-- The packs of the keys that were read and not written since: a state that stands alone is under the
-- empty field.
local packs = {}
-- So long after its expiry a state is kept beside others that live on: a clock that is corrected finds it.
local grace_us = 3600000000

local function read(key, field)
  local text = redis.call("GET", key)
  if not text then
    return {}
  elseif string.find(text, "^%d") and not string.find(field, "^%a") then
    -- No state of a group stands alone: its field begins with a letter.
    return { [""] = string.find(text, "^%d+$") and tonumber(text) or text }
  end
  -- None of ours is empty, or has anything behind it.
  local is_read, behind, pack = pcall(cmsgpack.unpack_one, text)
  if not is_read or behind ~= -1 or type(pack) ~= "table" or next(pack) == nil then
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
  packs[key] = packs[key] or read(key, field)
  local entry = packs[key][field]
  if type(entry) == "table" then
    return entry[1]
  end
  return entry
end

-- Of a state that stood alone, and that nobody has written anew, only the key knows the expiry; by the
-- server's clock, whatever the question's is.
local function expiry_of_key(key)
  local clock = redis.call("TIME")
  return (clock[1] * 1000 + math.floor(clock[2] / 1000) + redis.call("PTTL", key)) * 1000
end
-- Nothing when it has been written.
local function write(key)
  local pack, latest, is_alone = packs[key], 0, true
  if not pack then
    return
  end
  if type(pack[""]) == "string" then
    pack[""] = { pack[""], expiry_of_key(key) }
  end
  for field, entry in pairs(pack) do
    local expires = type(entry) == "table" and entry[2] or entry
    if expires + grace_us <= now then
      pack[field] = nil
    else
      latest, is_alone = math.max(latest, expires), is_alone and field == ""
    end
  end
  if next(pack) == nil then
    redis.call("DEL", key)
    packs[key] = nil
    return
  end
  local text = pack[""]
  if not is_alone then
    text = cmsgpack.pack(pack)
  elseif type(text) == "table" then
    text = text[1]
  end
  redis.call("SET", key, text, "PXAT", math.ceil(latest / 1000000) * 1000)
  packs[key] = nil
end

local function write_all(keys)
  for _, key in ipairs(keys) do
    write(key)
  end
end

-- fits, wait_us, level, more; then what is to be kept, and when that expires, or nothing.
local function judge(i, name, at)
  local key, field = KEYS[i], ARGV[at + stride - 1]
  if ARGV[at + 1] == "reset" then
    if not own_type[name] and pcall(state_of, key, field) then
      return true, 0, 0, 0, false
    end
    return true, 0, 0, 0, function()
      redis.call("DEL", key)
    end
  elseif own_type[name] then
    return judges[name](key, at, now)
  end
  return judges[name](state_of(key, field), at, now)
end

-- Carries out what judging has led to; the name of the key that is still to be written.
local function keep(i, at, kept, expires)
  if type(kept) == "function" then
    kept()
    return nil
  end
  if type(kept) == "string" then
    kept = { kept, expires }
  end
  packs[KEYS[i]][ARGV[at + stride - 1]] = kept or nil
  return KEYS[i]
end
