-- states: read and write the states of checks; evaluate one check, and carry it out.
-- KEYS[i]                    the key of a check; several checks may have the same key. It holds a state, which is a
--                            text that the algorithm writes, or a record with the debts of a group
-- ARGV[at + 1]               verb; reset is carried out here: it deletes the state
-- ARGV[at + stride - 1]      id of the entry in a record; empty if the key holds one state
-- Returns       nothing; singles, decide and questions call these functions
-- Writes        KEYS[i], once for all changes by a question; it expires at the end of the second in which its state
--               expires, or the last state of its record
-- Mirrors       src/store/redis/keys.rs
-- Before this script come `stride` (the number of arguments of each check), the functions of the algorithms of the
-- checks, and the table `algorithms` of these functions by name.
local format = string.format

-- The states of these algorithms are no texts: their functions read and write the key.
local own_type = { sliding_log = true, concurrency = true }
-- The functions of `record`, once it is defined.
local records = {}
-- The value of each key, read once for all questions: a state, or the entries of a record and their indices by id;
-- whether it is still to be written; and when the state expires, if that changes.
local held = {}
-- Whether an algorithm of own_type has written since `singles` has reset this.
local has_written = false

local function read(key, id)
  local value = held[key]
  if not value then
    local text = call("GET", key)
    if id then
      value = { entries = records.read(text or ""), places = {} }
      for place = 3, #value.entries, 3 do
        value.places[value.entries[place - 2]] = place
      end
    else
      -- With all its fields, so that the table does not grow.
      value = { state = text, is_changed = false, expires = false }
    end
    held[key] = value
  end
  return value
end

local function state_of(key, id)
  local value = read(key, id)
  if not id then
    return value.state
  end
  local place = value.places[id]
  if not place or value.entries[place] == 0 then
    return nil
  end
  local fraction, us = value.entries[place - 1], value.entries[place]
  return fraction > 0 and format("%d:%d", us, fraction) or us
end

-- The id of the check whose arguments begin at `at`, if its state is an entry of a record.
local function id_of(at)
  local id = ARGV[at + stride - 1]
  return id ~= "" and id + 0 or nil
end

-- Writes the value of a key, if it has changed.
local function write(key)
  local value = held[key]
  if not (value and value.is_changed) then
    return
  end
  local text, expires = value.state, value.expires
  if value.entries then
    text, expires = records.write(value.entries)
  elseif type(text) == "number" then
    text = format("%d", text)
  end
  if not text or text == "" then
    call("DEL", key)
  elseif expires then
    call("SET", key, text, "PXAT", end_of(expires))
  else
    call("SET", key, text, "KEEPTTL")
  end
  value.is_changed, value.expires = false, nil
end

-- Returns fits, wait_us, level, more, next_us; then the new state, if any, and when it expires, or nothing if it
-- expires when the stored one does.
local function evaluate(i, name, at)
  local key, id = KEYS[i], id_of(at)
  if ARGV[at + 1] == "reset" then
    if not own_type[name] and pcall(state_of, key, id) then
      return true, 0, 0, 0, 0, false
    end
    return true, 0, 0, 0, 0, function()
      call("DEL", key)
    end
  elseif own_type[name] then
    return algorithms[name](key, at, now)
  end
  return algorithms[name](state_of(key, id), at, now)
end

-- Carries out the result of evaluate. States that are texts are written later, by write.
local function keep(i, at, kept, expires)
  if type(kept) == "function" then
    kept()
    has_written = true
    return
  end
  local value, id = held[KEYS[i]], id_of(at)
  value.is_changed = true
  if not id then
    value.state = kept or nil
    value.expires = type(kept) == "number" and kept or expires or value.expires
    return
  end
  local us, fraction = kept or 0, 0
  if type(us) == "string" then
    us, fraction = string.match(us, "^(%d+):(%d+)$")
  end
  local place = value.places[id] or #value.entries + 3
  value.places[id], value.entries[place - 2] = place, id
  value.entries[place - 1], value.entries[place] = fraction + 0, us + 0
end
