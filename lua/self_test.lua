-- self_test: find the commands of the scripts that the user of a store may not call.
-- KEYS[1]  a key that nothing else uses
-- KEYS[2]  a key of another hash slot, so that a cluster node refuses the call; absent for a cluster
-- Returns  the names of the commands that the user may not call
-- Writes   KEYS[1], and deletes it again; it expires after a second
-- If the server formats integers with fewer digits, the scripts would write wrong numbers.
if string.format("%d", 2 ^ 52) ~= "4503599627370496" then
  error("the scripts need a server that is built for 64 bits")
end

local key = KEYS[1]
local denied = {}
-- The error for the first command that the server lacks.
local lacking

local function is_denial(message)
  local texts = {"NOPERM", "executing the script", "ACL failure"}
  for i = 1, #texts do
    if string.find(message, texts[i], 1, true) then
      return true
    end
  end
  return false
end

local function try(command, ...)
  local reply = redis.pcall(command, ...)
  if type(reply) == "table" and reply.err then
    if is_denial(reply.err) then
      denied[#denied + 1] = string.lower(command)
    elseif string.find(reply.err, "command called from", 1, true) then
      lacking = lacking or command .. ": " .. reply.err
    end
  end
  return reply
end

local function reply()
  if lacking then
    error(lacking)
  end
  return denied
end

local clock = try("TIME")
if clock.err then
  return reply()
end
local expires_ms = string.format("%d", tonumber(clock[1]) * 1000 + 1000)
local written = try("SET", key, "", "PXAT", expires_ms)
if written.err then
  -- A replica, or a server without memory: the caller knows these errors.
  return (lacking or #denied > 0) and reply() or written
end

-- The key holds a text, so none of these commands changes anything; permissions are checked first.
try("GET", key)
try("MGET", key)
try("EXISTS", key)
try("SETRANGE", key, 0, "")
try("INCRBY", key, 1)
try("LLEN", key)
try("LINDEX", key, 0)
try("LSET", key, 0, "")
try("LPUSH", key, "")
try("RPUSH", key, "")
try("LTRIM", key, 0, 0)
try("ZSCORE", key, "")
try("ZCOUNT", key, 0, 0)
try("ZRANGEBYSCORE", key, 0, 0)
try("ZREVRANGE", key, 0, 0)
try("ZADD", key, 0, "")
try("ZREM", key, "")
try("ZREMRANGEBYSCORE", key, 0, 0)
try("PEXPIREAT", key, expires_ms)
try("DEL", key)
return reply()
