-- plain_several: judge questions that came together, each of plain takes of several keys: all that are enforced
-- are taken, or none; first come first served. Stands in place of decide, and of shadow, where it can.
-- KEYS[n]           state keys  strings, distinct: state n, which is paid_us, as plain has it; or a pack, see
--                               states, where state n is under the empty field
-- ARGV[1]           now_us      integer; 0 asks the server's clock
-- ARGV[2]           states      of each take of each question its state: the number, in two bytes. Empty: the
--                               next one
-- ARGV[3]           packed      msgpack array: of each state #KEYS + 1, + 2 and so on the number of its key,
--                               which is a pack, and its field there. Empty: no key is
-- ARGV[row]         takes       integer > 0; of so many takes is each of some questions that are alike, the next
--                               ones; row = 4, then row + 3 + 3 * takes
-- ARGV[row + 1]     questions   integer > 0; how many questions
-- ARGV[row + 2]     times       integer > 0; how often each is asked, one time after the other
-- ARGV[at]          cost_us     integer > 0; what take n costs in time; at = row + 3n
-- ARGV[at + 1]      room_us     integer >= 0; the most debt with which it fits
-- ARGV[at + 2]      shadow      0|1; whether it holds up no other
-- Returns  for each take of each question debt_us, before the first time; those that are enforced are taken each
--          time when none owes more than its room by then, and with them those in shadow that fit. In place of
--          that -1 of a foreign value: nothing is taken, and another script is to be asked; and of the first take
--          the error of a server that does not write, when something would be taken
-- Writes   each key that is taken of, as plain does, or a pack as states does; whatever fails, does so before the
--          first write
-- Mirrors  src/algorithm/plain.rs
local call, floor, ceil, max = redis.call, math.floor, math.ceil, math.max
local unpack = table.unpack or unpack
local now, asked_states = ARGV[1] + 0, ARGV[2]
if now == 0 then
  local clock = call("TIME")
  now = clock[1] * 1000000 + clock[2]
end

local texts, missing = call("MGET", unpack(KEYS)), {}
for at = 1, #KEYS do
  if (texts[at] or "") == "" then
    texts[at], missing[#missing + 1] = "", KEYS[at]
  end
end
-- MGET does not show keys that are no strings, and an empty string is no state.
local are_missing = #missing == 0 or call("EXISTS", unpack(missing)) == 0
local function is_foreign(at)
  return texts[at] == "" and not are_missing and call("EXISTS", KEYS[at]) == 1
end

-- What each state owes, below zero if it has paid; false for a foreign value.
local owed = {}
-- No debt is this large: it would not be read, and what was taken with it would be taken again.
local too_much = 2 ^ 52
-- For each pack, the entries that still count, when the last of them expires, and the fields of its
-- states.
local packs = {}

local function read_pack(text)
  local pack, latest = {}, 0
  if text == "" then
    return pack, latest
  end
  local behind, found = cmsgpack.unpack_one(text)
  -- A pack of this crate is never empty and has nothing after it.
  if behind ~= -1 or next(found) == nil then
    error("foreign value")
  end
  -- As in `states`.
  local grace_us = 3600000000
  for field, state in pairs(found) do
    local expires = type(state) == "table" and state[2] or state
    local is_ours = type(field) == "string" and type(expires) == "number" and expires - now < too_much
    if not is_ours then
      error("foreign value")
    elseif expires + grace_us > now then
      pack[field], latest = state, max(latest, expires)
    end
  end
  return pack, latest
end

-- What the state under this field of a pack owes; false for a foreign value.
local function owed_in_pack(at, field, state)
  if not packs[at] then
    local is_read, pack, latest = pcall(read_pack, texts[at])
    is_read = is_read and not is_foreign(at)
    packs[at] = { held = is_read and pack, latest = latest, fields = {} }
    texts[at] = ""
  end
  packs[at].fields[state] = field
  local paid = packs[at].held and (packs[at].held[field] or 0)
  -- A state that is not a whole number is left to another script.
  local is_plain = type(paid) == "number" and paid % 1 == 0
  return is_plain and paid - now
end

local packed = ARGV[3] ~= "" and cmsgpack.unpack(ARGV[3]) or {}
for entry = 1, #packed, 2 do
  local state = #KEYS + (entry + 1) / 2
  owed[state] = owed_in_pack(packed[entry], packed[entry + 1], state)
end

local are_whole = string.find(table.concat(texts), "^%d*$")
for at = 1, #KEYS do
  local text, debt = texts[at], 0
  if text ~= "" then
    -- INCRBY refuses numbers with a leading zero, and would do so after others were written.
    local is_alone = (are_whole or string.find(text, "^%d+$")) and string.byte(text) ~= 48
    -- If the limit had further rates, or has them in other processes, the state is in a pack.
    debt = is_alone and text - now or owed_in_pack(at, "", at)
  elseif is_foreign(at) then
    debt = false
  end
  owed[at] = debt and debt < too_much and debt
end

-- The answers, and what each state owes in the end. `unwritable` is why nothing can be taken, if
-- so.
local function judge(unwritable)
  local debts, answers = {}, {}
  local costs, rooms, shadows, states, fits = {}, {}, {}, {}, {}
  for at = 1, #owed do
    debts[at] = owed[at]
  end
  local row, answered = 4, 0
  while row < #ARGV do
    local takes, questions, times = ARGV[row] + 0, ARGV[row + 1] + 0, ARGV[row + 2] + 0
    for take = 1, takes do
      local at = row + 3 * take
      costs[take], rooms[take], shadows[take] = ARGV[at] + 0, ARGV[at + 1] + 0, ARGV[at + 2] == "1"
    end
    for _ = 1, questions do
      local fitting, most = times, 0
      for take = 1, takes do
        local at = answered + take
        if asked_states ~= "" then
          local high, low = string.byte(asked_states, 2 * at - 1, 2 * at)
          at = high * 256 + low
        end
        local debt, own = debts[at], times
        if not debt then
          debt, fitting = -1, 0
        elseif debt < 0 then
          debt = 0
          debts[at] = 0
        end
        if debt > rooms[take] then
          own = 0
        elseif times > 1 then
          own = floor((rooms[take] - debt) / costs[take]) + 1
        end
        if own < fitting and not shadows[take] then
          fitting = own
        end
        if own > most then
          most = own
        end
        states[take], fits[take], answers[answered + take] = at, own, debt
      end
      if fitting > 0 and unwritable and most > 0 then
        answers[answered + 1] = unwritable
      elseif fitting > 0 then
        for take = 1, takes do
          local at, taken = states[take], fits[take]
          if taken > fitting then
            taken = fitting
          end
          debts[at] = debts[at] + costs[take] * taken
        end
      end
      answered = answered + takes
    end
    row = row + 3 + 3 * takes
  end
  return answers, debts
end

-- Numbers as texts for commands. Many keys get the same text.
local texts_of = {}
local function text_of(number)
  local text = texts_of[number]
  if not text then
    text = string.format("%d", number)
    texts_of[number] = text
  end
  return text
end

local function write_pack(at, pack, debts)
  local is_taken, latest = false, pack.latest
  for state, field in pairs(pack.fields) do
    local debt = debts[state]
    if debt and debt > 0 and debt > owed[state] then
      local paid = now + debt
      pack.held[field], latest, is_taken = paid, max(latest, paid), true
    end
  end
  if is_taken then
    local first, state = next(pack.held)
    local is_alone = first == "" and next(pack.held, first) == nil
    local text = is_alone and text_of(state) or cmsgpack.pack(pack.held)
    call("SET", KEYS[at], text, "PXAT", text_of(ceil(latest / 1000000) * 1000))
  end
end

local function write(debts)
  for at = 1, #KEYS do
    local before, debt, pack = owed[at], debts[at], packs[at]
    if pack then
      write_pack(at, pack, debts)
    elseif debt and debt > 0 and debt > before then
      local key, paid = KEYS[at], now + debt
      local ends = ceil(paid / 1000000) * 1000
      if before <= 0 then
        call("SET", key, text_of(paid), "PXAT", text_of(ends))
      else
        local sum = debt - before
        call("INCRBY", key, text_of(sum))
        if (paid - 1) % 1000000 < sum then
          call("PEXPIREAT", key, text_of(ends))
        end
      end
    end
  end
end

local answers, debts = judge()
-- A server that does not accept writes refuses the first one, so none was made.
local is_written, why = pcall(write, debts)
if not is_written then
  answers = judge(type(why) == "table" and why or {err = why})
end
return answers
