-- The store of scripts in the server of `cluster`, which several gateways share. It takes the place of the functions of
-- host.store for the keys of scripts ("s:") and their locks ("lock:"): these are what calls on different gateways have to
-- agree on. What policies count and which gateway runs a job is in the server, too (cluster_counts.lua, cluster_jobs.lua). All
-- other keys stay in the process: tasks (of which others read a copy, tasks/shared_tasks.lua), switches, sessions, events
-- and places, and what is known about upstreams.
--
-- Keys in the server, each behind mp:NAME: and without its prefix of host.store:
--   k:KEY   a value, as the store has it: JSON
--   kx, kt  the names of all values, sorted, for store.list; and those that expire, by their time. Each change removes up to
--           16 names whose values have expired, so that names which are not listed do not stay; both expire with their last name
--   l:KEY   a lock: its fence. lf   the last fence of all locks, for 30 days

local host = require "moonpool.host"
local cluster_operation = require "moonpool.lib.cluster_operation"

local PREFIX <const> = cluster_operation.PREFIX
local MAX_VALUE <const> = 1 << 20            -- bytes: a server does nothing else while it copies one
local MAX_LIFE_MS <const> = 10 ^ 12
local PAGE <const> = 1000                    -- names that the server looks at for one page of a list

-- The answer is 1 or a value; 0: what is compared differs, the key exists (add), the lock is taken, or incr has no number.
local WRITE <const> = [[
local op, name, life, text, old = unpack(ARGV)
local k, kx, kt, f = unpack(KEYS)
local call = redis.call
local time = call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function tidy()
  for _, one in ipairs(call("ZRANGEBYSCORE", kt, "-inf", now, "LIMIT", 0, 16)) do
    if call("EXISTS", string.sub(kx, 1, -2) .. ":" .. one) == 0 then
      call("ZREM", kx, one)
      call("ZREM", kt, one)
    end
  end
  local last = call("ZCARD", kx) == call("ZCARD", kt) and call("ZREVRANGE", kt, 0, 0, "WITHSCORES")[2]
  for _, index in ipairs { kx, kt } do
    if last then call("PEXPIREAT", index, last + 1000) else call("PERSIST", index) end
  end
end
local function mark()
  local left = call("PTTL", k)
  if left == -2 then call("ZREM", kx, name) else call("ZADD", kx, 0, name) end
  if left < 0 then call("ZREM", kt, name) else call("ZADD", kt, now + left, name) end
  tidy()
end
local function put()
  local done
  if life == "" then done = redis.pcall("SET", k, text)
  elseif life == "=" then done = redis.pcall("SET", k, text, "KEEPTTL")
  else done = redis.pcall("SET", k, text, "PX", life) end
  if done.err then tidy() return done end
  mark()
  return 1
end
if op == "add" and call("EXISTS", k) == 1 then return 0 end
if op == "cas" and call("GET", k) ~= old then return 0 end
if op == "locked" and call("GET", f) ~= old then return 0 end
if op == "delete" then
  call("DEL", k)
  mark()
  return 1
end
if op == "incr" then
  local is_new = call("EXISTS", k) == 0
  local sum = redis.pcall("INCRBY", k, text)
  if type(sum) == "table" then
    tidy()
    return (string.find(sum.err, "integer") or string.find(sum.err, "overflow")) and 0 or sum
  end
  if is_new and life ~= "" then call("PEXPIRE", k, life) end
  mark()
  return call("GET", k)
end
if op == "lock" then
  local left = call("PTTL", k)
  if left > 3600000 then call("PEXPIRE", k, 3600000) end
  if left ~= -2 then return 0 end
  local fence, last = time[1] * 1000000 + time[2], tonumber(call("GET", f) or 0)
  if last >= fence then fence = last + 1 end
  fence = string.format("%.0f", fence)
  call("SET", f, fence, "PX", 2592000000)
  call("SET", k, fence, "PX", life)
  return fence
end
if op == "renew" or op == "free" then
  if call("GET", k) ~= old then return 0 end
  if op == "free" then call("DEL", k) else call("PEXPIRE", k, life) end
  return 1
end
return put()
]]

-- How many names were looked at, the last of them, and those that have values. Names without one are taken out.
local LIST <const> = [[
local kx, kt = unpack(KEYS)
local names = redis.call("ZRANGEBYLEX", kx, ARGV[1], ARGV[2], "LIMIT", 0, ARGV[3])
local page = { #names, names[#names] or "" }
for _, name in ipairs(names) do
  if redis.call("EXISTS", string.sub(kx, 1, -2) .. ":" .. name) == 1 then
    page[#page + 1] = name
  else
    redis.call("ZREM", kx, name)
    redis.call("ZREM", kt, name)
  end
end
return page
]]

local ask <const> = cluster_operation.ask

local function life_of(seconds, without)
  return seconds and ("%d"):format(math.min(math.ceil(seconds * 1000), MAX_LIFE_MS) // 1 | 0) or without
end

-- The reply to the script WRITE for a value.
local function change(operation, op, key, life, text, old, is_sync, lock)
  if #text > MAX_VALUE then return nil, "full" end
  local name = key:sub(3)
  return ask(operation, { "EVAL", WRITE, "4", PREFIX .. "k:" .. name, PREFIX .. "kx", PREFIX .. "kt", PREFIX .. "l:" .. (lock or "lock:"):sub(6),
    op, name, life, text, old }, is_sync)
end

-- The reply to the script WRITE for a lock.
local function change_lock(op, key, life, old)
  local name = key:sub(6)
  return ask(op, { "EVAL", WRITE, "4", PREFIX .. "l:" .. name, PREFIX .. "kx", PREFIX .. "kt", PREFIX .. "lf", op, name, life, "", old })
end

local function is_done(reply, why)
  if reply == nil then return nil, why end
  return reply ~= 0
end

local shared = {}

function shared.set(key, text, seconds, is_sync) return is_done(change("set", "set", key, life_of(seconds, ""), text, "", is_sync)) end

function shared.add(key, text, seconds, is_sync) return is_done(change("add", "add", key, life_of(seconds, ""), text, "", is_sync)) end

function shared.cas(key, old, text, seconds, is_sync)
  if key:sub(1, 5) == "lock:" then return is_done(change_lock(text and "renew" or "free", key, life_of(seconds, ""), old)) end
  return is_done(change("cas", old and "cas" or "add", key, life_of(seconds, "="), text, old or "", is_sync))
end

function shared.set_locked(key, text, lock, fence, seconds, is_sync)
  return is_done(change("set", "locked", key, life_of(seconds, ""), text, tostring(fence), is_sync, lock))
end

function shared.lock(key, seconds)
  local fence, why = change_lock("lock", key, life_of(seconds, ""), "")
  if fence == 0 then return false end
  return math.tointeger(tonumber(fence)), why
end

function shared.get(key) return ask("get", { "GET", PREFIX .. "k:" .. key:sub(3) }) end

function shared.delete(key) return is_done(change("delete", "delete", key, "", "", "")) end

function shared.incr(key, n, seconds, is_sync)
  local sum, why = change("incr", "incr", key, life_of(seconds, ""), ("%d"):format(n), "", is_sync)
  if sum == 0 then error("the text of this key is not a whole number", 0) end
  return math.tointeger(tonumber(sum)), why
end

-- The end of the range of all texts that begin with `prefix`, for ZRANGEBYLEX.
local function end_of(prefix)
  local head = prefix:gsub("\255+$", "")
  if head == "" then return "+" end
  return "(" .. head:sub(1, -2) .. string.char(head:byte(-1) + 1)
end

function shared.keys(prefix, most)
  local list, begin = {}, prefix:sub(3)
  local from, to = begin == "" and "-" or "[" .. begin, end_of(begin)
  most = most or math.maxinteger
  while #list < most do
    local size = math.min(PAGE, most - #list)
    local page, why = ask("list", { "EVAL", LIST, "2", PREFIX .. "kx", PREFIX .. "kt", from, to, ("%d"):format(size) })
    if not page then return {}, why end
    for i = 3, #page do list[#list + 1] = "s:" .. page[i] end
    if page[1] < size then break end
    from = "(" .. page[2]
  end
  return list
end

for name, f in pairs(shared) do
  local here = host.store[name]
  host.store[name] = function(key, ...)
    if key:sub(1, 2) == "s:" or key:sub(1, 5) == "lock:" then return f(key, ...) end
    return here(key, ...)
  end
end
