-- scaled_batch: judge takes that came together, of one key or of many, first come first served, as plain_batch does,
-- where rates need parts of a microsecond. Stands in place of queue where it can.
-- KEYS[n]        state keys   strings, distinct: paid_us, or paid_us:part:scale, as debt has it
-- ARGV[1]        now_us       integer; 0 asks the server's clock
-- ARGV[row]      scale        integer > 0; so many parts are a microsecond; row = 2, then row + 5
-- ARGV[row + 1]  cost         integer > 0; what each of some equal takes costs in time, in parts
-- ARGV[row + 2]  room         integer >= 0; the most debt with which one fits, in parts
-- ARGV[row + 3]  takes        integer > 0; how many of them each key has, one after the other
-- ARGV[row + 4]  keys         integer; how many keys, the next ones, have such takes; 0: the last one has, too
-- Returns  for each key of each row the debt in parts, before the first of its takes; each take fits when what is
--          owed by then is no more than its room. -1 of a key of another form, and an error of a key that the
--          server does not write: such a key fails alone, and is left as it is
-- Writes   each key of which any fits, as states does
-- Mirrors  src/algorithm/plain.rs
local call, floor, ceil, max = redis.call, math.floor, math.ceil, math.max
local find, match, format = string.find, string.match, string.format
local unpack = table.unpack or unpack
local now = ARGV[1] + 0
if now == 0 then
  local clock = call("TIME")
  now = clock[1] * 1000000 + clock[2]
end

-- The second at whose end a state expires.
local function second_of(us, part)
  return ceil((part > 0 and us + 1 or us) / 1000000)
end

-- The parts that a state owes, and the second at whose end it expires. Returns nothing if it has
-- another form, or if a reply has no room for it.
local function read(text, scale)
  local us, part = text, 0
  if not find(text, "^[1-9]%d*$") then
    local parts
    us, part, parts = match(text, "^([1-9]%d*):(%d+):(%d+)$")
    if not us or parts + 0 ~= scale or part + 0 >= scale then
      return nil
    end
  end
  us, part = us + 0, part + 0
  if (us - now) * scale < 2 ^ 51 then
    return max((us - now) * scale + part, 0), second_of(us, part)
  end
end

local texts = call("MGET", unpack(KEYS))

-- What is owed before the first of some takes.
local function judge(at, scale, cost, room, takes)
  local debt, second = 0, nil
  if texts[at] then
    debt, second = read(texts[at], scale)
  end
  if not debt then
    return -1
  elseif debt > room then
    return debt
  end

  local new = debt + cost * math.min(takes, floor((room - debt) / cost) + 1)
  local us, part = now + floor(new / scale), new % scale
  local text = part > 0 and format("%d:%d:%d", us, part, scale) or format("%d", us)
  local ends, reply = second_of(us, part), nil
  if ends == second then
    reply = redis.pcall("SET", KEYS[at], text, "KEEPTTL")
  else
    -- MGET does not show keys that are no strings.
    local mode = texts[at] and "XX" or "NX"
    reply = redis.pcall("SET", KEYS[at], text, "PXAT", format("%d", ends * 1000), mode)
  end
  if not reply then
    return -1
  elseif reply.err then
    return reply
  end
  texts[at] = text
  return debt
end

local debts, answers, at, row = {}, 0, 0, 2
while row < #ARGV do
  local scale, cost, room = ARGV[row] + 0, ARGV[row + 1] + 0, ARGV[row + 2] + 0
  local takes, left = ARGV[row + 3] + 0, ARGV[row + 4] + 0
  if left == 0 then
    left, at = 1, at - 1
  end
  while left > 0 do
    left, at, answers = left - 1, at + 1, answers + 1
    debts[answers] = judge(at, scale, cost, room, takes)
  end
  row = row + 5
end
return debts
