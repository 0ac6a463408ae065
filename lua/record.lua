-- record: the debts of a group in one value, an entry of 16 bytes for each, big-endian: id, 4 bytes; fraction in
-- 2^-32 us, 4 bytes; us, 8 bytes: the instant at which the debt is paid back.
-- ids_of(text)                         the ids in a text with 4 bytes for each, as a list
-- read_record(text, ids)               the entries as one list: id, fraction, us of each; and for a list of ids the
--                                      index of the us of each
-- place_in_record(entries, id)         the index of the us of this id; a missing entry is appended without a debt
-- entries_as_asked(entries, places)    the entries at these indices as a text, with or without a debt
-- write_record(entries)                all entries that count as a text, which is empty if there are none; and when
--                                      the last of them expires, in us
-- `clock` comes before this script.
-- Mirrors  src/store/redis/keys.rs

-- An entry is kept this long after its instant, in case the clock is corrected.
local grace_us = 3600000000
-- The stack of Lua has no room for many more.
local most_at_once = 1000
local record_forms = {}
local function record_form(entries)
  local form = record_forms[entries]
  if not form then
    form = ">" .. string.rep("I4I4I8", entries)
    record_forms[entries] = form
  end
  return form
end

local function place_in_record(entries, id)
  for at = 1, #entries, 3 do
    if entries[at] == id then
      return at + 2
    end
  end
  local last = #entries
  entries[last + 1], entries[last + 2], entries[last + 3] = id, 0, 0
  return last + 3
end

local function ids_of(text)
  local ids = { struct.unpack(">" .. string.rep("I4", #text / 4), text) }
  -- struct.unpack also returns the position after the last number.
  ids[#text / 4 + 1] = nil
  return ids
end

local function read_record(text, ids)
  local count = #text / 16
  if count % 1 ~= 0 then
    error("corrupt value")
  end
  local entries
  for from = 0, count - 1, most_at_once do
    local part = math.min(count - from, most_at_once)
    local read = { struct.unpack(record_form(part), text, 16 * from + 1) }
    -- struct.unpack also returns the position after the last number.
    read[3 * part + 1] = nil
    if not entries then
      entries = read
    else
      for at = 1, 3 * part do
        entries[3 * from + at] = read[at]
      end
    end
  end
  entries = entries or {}
  for place = 3, 3 * count, 3 do
    if not (entries[place] < 9007199254740992) then
      error("corrupt value")
    end
  end
  local places = {}
  for asked, id in ipairs(ids or places) do
    local place = 3 * asked
    -- Usually the entries are in the order of the ids.
    if entries[place - 2] ~= id then
      place = place_in_record(entries, id)
    end
    places[asked] = place
  end
  return entries, places
end

local function entries_as_asked(entries, places)
  local asked = {}
  for number, place in ipairs(places) do
    local at = 3 * number
    asked[at - 2], asked[at - 1], asked[at] = entries[place - 2], entries[place - 1], entries[place]
  end
  return struct.pack(record_form(#places), unpack(asked))
end

local function write_record(entries)
  local kept, length, latest = {}, 0, 0
  for place = 3, #entries, 3 do
    local fraction, us = entries[place - 1], entries[place]
    local expires = fraction > 0 and us + 1 or us
    if us > 0 and expires + grace_us > now then
      kept[length + 1], kept[length + 2], kept[length + 3] = entries[place - 2], fraction, us
      length = length + 3
      if expires > latest then
        latest = expires
      end
    end
  end
  local texts = {}
  for from = 0, length / 3 - 1, most_at_once do
    local part = math.min(length / 3 - from, most_at_once)
    texts[#texts + 1] = struct.pack(record_form(part), unpack(kept, 3 * from + 1, 3 * (from + part)))
  end
  return table.concat(texts), latest
end
