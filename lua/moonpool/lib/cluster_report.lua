-- The method "moonpool/cluster", for `moonpool check --connect`: whether the server of `cluster` does what the store of
-- scripts, policies and jobs need.

local host = require "moonpool.host"
local json = require "moonpool.json"
local server = require "moonpool.lib.cluster_server"

local report = {}

-- Tries each command of the scripts in the server on keys of its own, and returns the first that is refused, or "".
local TRIES <const> = [[
local k, z = KEYS[1], KEYS[2]
for _, one in ipairs {
  { "HSET", k, "a", "1" }, { "PEXPIRE", k, "1000" }, { "HMGET", k, "a" }, { "DEL", k },
  { "TIME" }, { "SET", k, "1", "PX", "1000" }, { "GET", k }, { "EXISTS", k }, { "PTTL", k }, { "INCRBY", k, "1" }, { "PEXPIRE", k, "1000" }, { "DEL", k },
  { "HSET", k, "a", "1" }, { "HGET", k, "a" }, { "HGETALL", k }, { "HDEL", k, "a" },
  { "ZADD", z, "1", "a" }, { "PERSIST", z }, { "PEXPIREAT", z, "9999999999999" }, { "ZCARD", z }, { "ZREVRANGE", z, "0", "0", "WITHSCORES" },
  { "ZRANGEBYSCORE", z, "-inf", "1", "LIMIT", "0", "1" }, { "ZRANGEBYLEX", z, "-", "+", "LIMIT", "0", "1" }, { "ZREM", z, "a" }
} do
  local reply = redis.pcall(unpack(one))
  if type(reply) == "table" and reply.err then return one[1] .. ": " .. reply.err end
end
return ""
]]

local ACL <const> = "docs/how-to/several-nodes.md has what the user of cluster.redis.url needs"

local CONNECT <const> = "`redis-cli -u URL ping` on this machine, with the URL of cluster.redis, tries the same"

-- An error of a command without its reason and the server's place, which the line names already.
local function without_place(why)
  local text = tostring(why):gsub("^unavailable: ", "")
  local place = server.place .. ": "
  return text:sub(1, #place) == place and text:sub(#place + 1) or text
end

local function is_older(version, major, minor)
  local a, b = version:match "^(%d+)%.(%d+)"
  a, b = tonumber(a), tonumber(b)
  return a and (a < major or a == major and b < minor)
end

-- Adds what INFO says against the server. Returns its name and version.
local function read_info(text, add)
  local valkey, version = text:match "valkey_version:(%S+)", text:match "redis_version:(%S+)" or "of an unknown version"
  if valkey and is_older(valkey, 7, 2) or not valkey and is_older(version, 6, 2) then add "it is older than Redis 6.2 or Valkey 7.2" end
  local policy = text:match "maxmemory_policy:(%S+)"
  if policy and policy ~= "noeviction" then add("maxmemory-policy is " .. policy .. ": it forgets values when it is full; noeviction refuses them") end
  if text:find "role:slave" then add "it is a replica, which takes no changes" end
  return valkey and "Valkey " .. valkey or "Redis " .. version
end

--- Handles the method: { place, version, doubts }; or { place, what, hint } if the server cannot be used.
function report.answer()
  local found = { place = server.place, doubts = json.array {} }
  local function add(doubt) found.doubts[#found.doubts + 1] = doubt end
  if not server.is_ready(server.deadline()) then
    found.what, found.hint = "no sentinel names a server that says it is the primary", "does the host in cluster.redis.url have the name that sentinels know?"
    return found
  end
  local prefix = "mp:" .. host.config.cluster.name .. ":check"
  local function send(...) return server.send({ ... }, server.deadline()) end
  local done, why, reason = send("EVAL", TRIES, "2", prefix, prefix .. "z")
  if not done or why ~= "" then
    found.what, found.hint = without_place(why), reason ~= "unavailable" and ACL or CONNECT
    return found
  end
  for _, words in ipairs { { "EVALSHA", ("0"):rep(40), "0" }, { "ROLE" }, { "WAIT", "0", "0" }, { "PUBLISH", prefix, "" } } do
    done, why = send(table.unpack(words))
    if not done and not tostring(why):find("NOSCRIPT", 1, true) then add(("%s is refused (%s): %s"):format(words[1], why, ACL)) end
  end
  done, why = send "INFO"
  if done then found.version = read_info(why, add) else add("the user may not use INFO: version and maxmemory-policy are not checked") end
  return found
end

return report
