-- plain_pack_batch: judge plain takes of subjects whose states share a key each, that came together; first come
-- first served, and of each key all of them or none. Stands in place of decide where it can, as plain_pack does.
-- KEYS[n]      pack       strings, distinct: a msgpack map, see states
-- ARGV[1]      now_us     integer; 0 asks the server's clock
-- ARGV[4n - 2] fields     msgpack array of strings: under which of a pack some takes stand
-- ARGV[4n - 1] prices     msgpack array: of each of these takes its cost_us and its room_us, as plain has them
-- ARGV[4n]     times      integer > 0; how often each key is asked for all of them, one time after the other
-- ARGV[4n + 1] keys       integer; how many keys, the next ones, are asked so; 0: the last one is, too
-- Returns  for each key of each row 0 when nothing is owed, else debt_us of each take in 8 bytes, before the
--          first time; each time all are taken when none owes more than its room by then. In place of that
--          -1, when a state is no whole number, or stands alone, and decide is to be asked, or the error of
--          a server that does not write: such a key fails alone, and is left as it is
-- Writes   each key of which all are taken once; it expires at the end of the second in which its last state
--          does
-- Mirrors  src/algorithm/plain.rs
local call, floor, ceil = redis.call, math.floor, math.ceil
local now = ARGV[1] + 0
if now == 0 then
  local clock = call("TIME")
  now = clock[1] * 1000000 + clock[2]
end

local texts = call("MGET", unpack(KEYS))

-- Expiries as commands take them. Most keys of a trip expire within the same few seconds.
local ends_of = {}
local function end_of(expires)
  local second = ceil(expires / 1000000)
  local text = ends_of[second]
  if not text then
    text = string.format("%.0f", second * 1000)
    ends_of[second] = text
  end
  return text
end

-- How a pack of just these fields is written here: in their order, with each state in 8 bytes. So one call
-- reads it and one writes it, which is half of what cmsgpack costs. `image` is what stands before each state,
-- and behind it the state.
local shapes = {}
local function shape_of(fields)
  if not shapes[fields] then
    local names, image, form, size = cmsgpack.unpack(fields), {}, ">", 0
    local count = #names
    local before = count < 16 and string.char(128 + count) or "\222" .. struct.pack(">I2", count)
    for take, name in ipairs(names) do
      before = before .. cmsgpack.pack(name) .. "\207"
      image[take * 2 - 1], image[take * 2] = before, 0
      form, size = form .. "c" .. #before .. "I8", size + #before + 8
      before = ""
    end
    local debts_form = ">" .. string.rep("I8", count)
    shapes[fields] = { names = names, image = image, form = form, size = size, debts_form = debts_form }
  end
  return shapes[fields]
end

-- Of the row; `fresh` is the text of a key that owed nothing and is in its shape.
local shape, count, costs, rooms, times, fresh, fresh_end

local function begin_row(row)
  local prices = cmsgpack.unpack(ARGV[row + 1])
  shape, times, fresh = shape_of(ARGV[row]), ARGV[row + 2] + 0, nil
  count, costs, rooms = #shape.names, {}, {}
  for take = 1, count do
    costs[take], rooms[take] = prices[take * 2 - 1], prices[take * 2]
  end
end

-- The entries of a pack as an image has them; and the pack, where it is written in another way.
local function read(text)
  local image = shape.image
  if #text == shape.size then
    local entries, at = { struct.unpack(shape.form, text) }, 1
    while at < count * 2 and entries[at] == image[at] do
      at = at + 2
    end
    if at > count * 2 then
      return entries
    end
  end
  local behind, pack = cmsgpack.unpack_one(text)
  -- None of ours is empty, or has anything behind it.
  if behind ~= -1 or next(pack) == nil then
    error("foreign value")
  end
  local entries = {}
  for take, name in ipairs(shape.names) do
    local state = pack[name] or 0
    if type(state) ~= "number" or state % 1 ~= 0 or state >= 2 ^ 53 then
      error("another form")
    end
    entries[take * 2] = state
  end
  return entries, pack
end

-- The pack with the image's states in it, unless it has no others; and when it expires.
local function among_others(pack, latest)
  local others = -count
  for take, name in ipairs(shape.names) do
    pack[name] = shape.image[take * 2]
  end
  for field, state in pairs(pack) do
    if type(field) ~= "string" then
      error("foreign value")
    end
    local expires = type(state) == "table" and state[2] or state
    if expires + 3600000000 <= now then
      pack[field] = nil
    else
      latest, others = math.max(latest, expires), others + 1
    end
  end
  return others > 0 and cmsgpack.pack(pack), latest
end

-- Of the key that is judged.
local debts, is_readable = {}, false

-- Puts into the image what is owed after as many times as fit; when the last of it is paid.
local function take_all_times()
  local fitting, latest = times, 0
  for take = 1, count do
    fitting = math.min(fitting, floor((rooms[take] - debts[take]) / costs[take]) + 1)
  end
  for take = 1, count do
    local state = now + debts[take] + costs[take] * fitting
    shape.image[take * 2], latest = state, math.max(latest, state)
  end
  return latest
end

-- What is to be written, and when it expires.
local function after(owes, pack, latest)
  if fresh and not owes and not pack then
    return fresh, fresh_end
  end
  if times > 1 then
    latest = take_all_times()
  end
  local text
  if pack then
    text, latest = among_others(pack, latest)
  end
  text = text or struct.pack(shape.form, unpack(shape.image))
  local ends = end_of(latest)
  if not owes and not pack then
    fresh, fresh_end = text, ends
  end
  return text, ends
end

local nothing = {}
local function judge(at)
  local text, entries, pack = texts[at], nothing, nil
  if text then
    entries, pack = read(text)
  end
  -- Once for all that is done of each take: these are most of the steps.
  local image, owes, all_fit, latest = shape.image, false, true, 0
  for take = 1, count do
    local debt = (entries[take * 2] or 0) - now
    if debt > 0 then
      owes, all_fit = true, all_fit and debt <= rooms[take]
    else
      debt = 0
    end
    local state = now + debt + costs[take]
    debts[take], image[take * 2] = debt, state
    if state > latest then
      latest = state
    end
  end
  if all_fit then
    local written, ends = after(owes, pack, latest)
    is_readable = true
    if text then
      call("SET", KEYS[at], written, "PXAT", ends)
    elseif not call("SET", KEYS[at], written, "PXAT", ends, "NX") then
      -- MGET tells nothing of what is no string.
      return -1
    end
    texts[at] = written
  end
  return owes and struct.pack(shape.debts_form, unpack(debts, 1, count)) or 0
end

local answers, at = {}, 0
for row = 2, #ARGV, 4 do
  begin_row(row)
  local keys = ARGV[row + 3] + 0
  if keys == 0 then
    keys, at = 1, at - 1
  end
  for key = at + 1, at + keys do
    is_readable = false
    local is_judged, answer = pcall(judge, key)
    if not is_judged then
      answer = not is_readable and -1 or type(answer) == "table" and answer or {err = answer}
    end
    answers[#answers + 1] = answer
  end
  at = at + keys
end
return answers
