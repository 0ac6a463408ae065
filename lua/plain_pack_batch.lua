-- plain_pack_batch: judge plain takes of subjects whose states share a key each, that came together; first come
-- first served, and of each key all that are enforced or none. Stands in place of decide, and of shadow, where it
-- can.
-- KEYS[n]        pack     strings, distinct: a msgpack map, see states
-- ARGV[1]        now_us   integer; 0 asks the server's clock
-- ARGV[row]      fields   msgpack array of strings: under which of a pack some takes stand; row = 2, then row + 6
-- ARGV[row + 1]  blank    a pack of just these fields in their order, all states zero
-- ARGV[row + 2]  form     how `struct` reads and writes that: what stands before each state, and the state
-- ARGV[row + 3]  prices   msgpack array: of each of these takes its cost_us and its room_us, as plain has them,
--                         and 0|1, whether it holds up no other
-- ARGV[row + 4]  times    integer > 0; how often each key is asked for all of them, one time after the other
-- ARGV[row + 5]  keys     integer; how many keys, the next ones, are asked so; 0: the last one is, too
-- Returns  for each key of each row 0 when nothing is owed, else what there is before the first time: the pack,
--          when it has just these fields in their order, or debt_us of each take in 8 bytes. Each time all that
--          are enforced are taken when none owes more than its room by then, and with them those in shadow that
--          fit. In place of that -1, when a state is no whole
--          number, or stands alone, and decide is to be asked, or the error of a server that does not write:
--          such a key fails alone, and is left as it is. Behind all of them now_us
-- Writes   each key of which all are taken once; it expires at the end of the second in which its last state
--          does
-- Mirrors  src/algorithm/plain.rs
local call, floor, ceil, max, min = redis.call, math.floor, math.ceil, math.max, math.min
local to_text, from_text, unpack = struct.pack, struct.unpack, table.unpack or unpack
local now = ARGV[1] + 0
if now == 0 then
  local clock = call("TIME")
  now = clock[1] * 1000000 + clock[2]
end

local texts = call("MGET", unpack(KEYS))

-- Expiries as texts for commands: the end of the second. Most keys of a trip expire within the same
-- few.
local ends_of = {}
local function end_of(latest)
  local second = ceil(latest / 1000000)
  local text = ends_of[second]
  if not text then
    text = string.format("%d", second * 1000)
    ends_of[second] = text
  end
  return text
end

-- For the row: how a pack of just its fields is written. `struct` reads and writes it in one call
-- each, at half the cost of cmsgpack. `image` is what stands before each state, followed by the
-- state.
local fields, form, size, image
-- Also for the row: what each take costs, the latest state with which it fits, and its state
-- afterwards in a key that owes nothing. `fresh` is the text of such a key if it has just these
-- fields.
local count, costs, most, firsts, shadows, times, fresh, fresh_latest

local function begin_row(row)
  if fields ~= ARGV[row] then
    fields, form, size = ARGV[row], ARGV[row + 2], #ARGV[row + 1]
    image = { from_text(form, ARGV[row + 1]) }
  end
  local prices = cmsgpack.unpack(ARGV[row + 3])
  times, fresh = ARGV[row + 4] + 0, nil
  count, costs, most, firsts, shadows = #prices / 3, {}, {}, {}, {}
  for take = 1, count do
    local at = take * 3
    local cost = prices[at - 2]
    costs[take], most[take], firsts[take] = cost, now + prices[at - 1], now + cost
    shadows[take] = prices[at] == 1
  end
end

-- No debt is this large: it would not be read, and what was taken with it would be taken again.
local too_late = now + 2 ^ 52

-- The entries, in the image's form, of a pack that is written in another way; and the pack.
local function unpacked(text)
  local behind, pack = cmsgpack.unpack_one(text)
  -- A pack of this crate is never empty and has nothing after it.
  if behind ~= -1 or next(pack) == nil then
    error("foreign value")
  end
  local entries = {}
  for take, name in ipairs(cmsgpack.unpack(fields)) do
    local state = pack[name] or 0
    if type(state) ~= "number" or state % 1 ~= 0 or state >= too_late then
      error("another form")
    end
    entries[take * 2 - 1], entries[take * 2] = image[take * 2 - 1], state
  end
  return entries, pack
end

-- The text of a pack with the image's states in it, and when it expires.
local function among_others(pack, latest)
  -- As in `states`.
  local grace_us = 3600000000
  local others = -count
  for take, name in ipairs(cmsgpack.unpack(fields)) do
    pack[name] = image[take * 2]
  end
  for field, state in pairs(pack) do
    local expires = type(state) == "table" and state[2] or state
    if type(field) ~= "string" or type(expires) ~= "number" or not (expires < too_late) then
      error("foreign value")
    elseif expires + grace_us <= now then
      pack[field] = nil
    else
      latest, others = max(latest, expires), others + 1
    end
  end
  return others > 0 and cmsgpack.pack(pack) or to_text(form, unpack(image)), latest
end

-- Puts the states of all takes into the image, after as many times as the enforced ones fit.
-- Returns when the last of the states is paid.
local function take_all_times(entries)
  local fitting, latest, fits = times, 0, {}
  for take = 1, count do
    local state = max(entries[take * 2] or 0, now)
    fits[take] = max(floor((most[take] - state) / costs[take]) + 1, 0)
    if not shadows[take] then
      fitting = min(fitting, fits[take])
    end
  end
  for take = 1, count do
    local state = max(entries[take * 2] or 0, now) + costs[take] * min(fitting, fits[take])
    image[take * 2], latest = state, max(latest, state)
  end
  return latest
end

-- The text of a key that owes nothing and has no other fields: the same for all of them.
local function after_nothing()
  if not fresh then
    fresh_latest = take_all_times({})
    fresh = to_text(form, unpack(image))
  end
  return fresh, fresh_latest
end

local function debts_in(entries)
  local debts = {}
  for take = 1, count do
    debts[take] = max(entries[take * 2] - now, 0)
  end
  return to_text(">" .. string.rep("I8", count), unpack(debts))
end

-- For the key that is being judged.
local is_readable = false

-- `before` is when the key's last state would have been paid without this write, if that is known.
local function write(at, text, latest, before)
  is_readable = true
  local key = KEYS[at]
  if before and (latest - 1) % 1000000 >= latest - before then
    -- It already expires with that second, and the new text is as long. Setting the expiry again
    -- would be a seventh of all the work of this script.
    call("SETRANGE", key, "0", text)
  elseif texts[at] then
    call("SET", key, text, "PXAT", end_of(latest))
  -- MGET does not show keys that are no strings.
  elseif not call("SET", key, text, "PXAT", end_of(latest), "NX") then
    return false
  end
  texts[at] = text
  return true
end

-- Puts the states after all takes that fit into the image. Returns whether all enforced ones fit,
-- how many of those in shadow do not, and when the last state is paid, before and after. Returns
-- nothing for a pack that is written in another way than the image.
local function take_all(entries)
  -- Looked up once for all the work on each take, which is most of the steps.
  local now, image, costs, most, firsts = now, image, costs, most, firsts
  local all_fit, before, latest, left_as_they_are = true, 0, 0, 0
  for take = 1, count do
    local place = take * 2
    local state = entries[place]
    if entries[place - 1] ~= image[place - 1] then
      return
    end
    if state > before then
      before = state
    end
    if state <= now then
      state = firsts[take]
    elseif state <= most[take] then
      state = state + costs[take]
    elseif state >= too_late then
      return
    elseif shadows[take] then
      left_as_they_are = left_as_they_are + 1
    else
      all_fit = false
    end
    image[place] = state
    if state > latest then
      latest = state
    end
  end
  return all_fit, left_as_they_are, before, latest
end

local function judge(at)
  local text = texts[at]
  if not text then
    return write(at, after_nothing()) and 0 or -1
  end
  local entries, pack, all_fit, left_as_they_are, before, latest
  if #text == size then
    entries = { from_text(form, text) }
    all_fit, left_as_they_are, before, latest = take_all(entries)
  end
  if not before then
    entries, pack = unpacked(text)
    all_fit, left_as_they_are, before, latest = take_all(entries)
  end
  if all_fit and left_as_they_are < count then
    if times > 1 then
      latest = take_all_times(entries)
    end
    if pack then
      -- With other fields in it, its expiry is not known.
      write(at, among_others(pack, latest))
    else
      write(at, to_text(form, unpack(image)), latest, before)
    end
  end
  return before > now and (pack and debts_in(entries) or text) or 0
end

local answers, answered, at, left = {}, 0, 0, 0

-- Raises an error at a key that fails; called again, it goes on after that key.
local function judge_row()
  while left > 0 do
    left, at, answered, is_readable = left - 1, at + 1, answered + 1, false
    answers[answered] = judge(at)
  end
end

for row = 2, #ARGV, 6 do
  begin_row(row)
  left = ARGV[row + 5] + 0
  if left == 0 then
    left, at = 1, at - 1
  end
  repeat
    local are_judged, why = pcall(judge_row)
    if not are_judged then
      answers[answered] = not is_readable and -1 or type(why) == "table" and why or {err = why}
    end
  until are_judged
end
answers[answered + 1] = now
return answers
