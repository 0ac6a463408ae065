-- states: where the states of checks stand; how one check is evaluated, and carried out.
-- KEYS[i]                    the key of a check; several checks may have one key. It holds the state of one of
--                            them, a text that its algorithm writes, or of a group's debts a record
-- ARGV[at + 1]               verb; reset is done here: it forgets the state
-- ARGV[at + stride - 1]      id: its entry in a record; empty if the state stands alone
-- Returns       nothing; decide and questions call what is here
-- Writes        KEYS[i], once for all that a question has changed; it expires at the end of the second in which
--               its state does, or the last of its record's
-- Mirrors       src/store/redis/keys.rs
-- Before it stand `record`, `stride`, the arguments that each check has room for, the functions that evaluate the
-- algorithms of the checks, and a table `algorithms` of them by name.
local format = string.format

-- These are not texts: they read and write their key themselves.
local own_type = { sliding_log = true, concurrency = true }
-- What each key holds, read once for all questions: a state, or the entries of a record and their places by id;
-- whether that is still to be written; and when a state then expires, if not when the stored one does.
local held = {}
-- Whether what writes its key itself has done so since the driver has set this.
local has_written = false

local function read(key, id)
  local value = held[key]
  if not value then
    local text = call("GET", key)
    if id then
      value = { entries = read_record(text or ""), places = {} }
      for place = 3, #value.entries, 3 do
        value.places[value.entries[place - 2]] = place
      end
    elseif text then
      value = { state = string.find(text, "^[1-9]%d*$") and text + 0 or text }
    else
      value = {}
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

-- The id of the check whose arguments begin there, if its state is an entry of a record.
local function id_of(at)
  local id = ARGV[at + stride - 1]
  return id ~= "" and id + 0 or nil
end

-- Does nothing unless something is still to be written.
local function write(key)
  local value = held[key]
  if not (value and value.is_changed) then
    return
  end
  local text, expires = value.state, value.expires
  if value.entries then
    text, expires = write_record(value.entries)
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

-- Returns fits, wait_us, level, more, next_us; then the state to keep, if any, and when it expires, or nothing if
-- it expires when the stored one does.
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

-- Carries out what was evaluated; what stands in texts is then still to be written.
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
