-- The records of the processes of a cluster, in the hash mp:NAME:n of its server, by their numbers. Each 2 s one worker of
-- each process has a turn: it writes the record of the process anew, if that is still its own, and hands all records to C
-- (core/nodes/nodes.h), which knows for how long one has not changed. When a number is met that nobody knows, the server is
-- asked for that record alone. A record is removed only if its process does not answer, either: one that alone cannot reach
-- the server keeps its sessions.
--
-- A process joins when nothing speaks against it: its clock, its seal keys, a living process of the same name. Until then
-- it has no record, takes no sessions, and tries again with each turn. Once it has joined, only another process with its
-- number ends that: its sessions end, and it takes another number.

local bus = require "moonpool.runtime.bus"
local cluster_operation = require "moonpool.lib.cluster_operation"
local digest = require "moonpool.lib.digest"
local has = require "moonpool.runtime.has"
local host = require "moonpool.host"
local json = require "moonpool.json"
local server = require "moonpool.lib.cluster_server"

local now <const> = host.time.now            -- taken while this file loads: later, a recorder of calls replaces host.time.now
local FORMAT <const> = 1                     -- of records; a greater one is of a later version, which is not read
local PREFIX <const> = cluster_operation.PREFIX
local MOST <const> = 256                     -- processes of a cluster: MP_NODES_MOST in C
local SAY_S <const> = 60
local TURN_S <const> = 10                    -- the longest turn
local ASK_S <const> = 3                      -- the longest question whether a process lives, or has a number
local TRIES <const> = 5                      -- numbers that are tried in one turn
local MAX_AHEAD_S <const> = 30               -- how far the clocks of nodes and of the server may be apart
local MAX_RECORD <const> = 65536             -- bytes of a record: longer ones are not read

-- Removes records that are as they were read, writes the own one if it is ours, with the members that others have added to
-- it, and returns how that went, the identity of the server's data, its time, and all records.
local SCRIPT <const> = [[
local n, key = unpack(KEYS)
local number, uid, before, text, id = unpack(ARGV)
local call, state = redis.call, "read"
local function decoded(text)
  local is_json, one = pcall(cjson.decode, text)
  return is_json and type(one) == "table" and one or {}
end
for i = 6, #ARGV, 2 do
  if call("HGET", n, ARGV[i]) == ARGV[i + 1] then call("HDEL", n, ARGV[i]) end
end
if text ~= "" then
  local held = call("HGET", n, number)
  local one = decoded(held or "{}")
  local is_ours = one.uid == uid
  if not held or is_ours and (tonumber(one.renewals) or 0) <= tonumber(before) then
    local new, has_more = decoded(text), false
    for name, value in pairs(one) do
      if new[name] == nil then new[name], has_more = value, true end
    end
    call("HSET", n, number, has_more and cjson.encode(new) or text)
    state = "written"
  else
    state = is_ours and "ahead" or "held"
  end
end
call("SET", key, id, "NX")
local time = call("TIME")
return { state, call("GET", key), time[1], time[2], call("HGETALL", n) }
]]

local nodes = {}

local scripts                                -- a hash of the scripts of this generation
local newest                                 -- of an older process: the record of the newest one of its node
local over = {}                              -- number -> text of records that are to be removed
local seen = {}                              -- uid -> renewals, of processes with the own name
local is_later_told, said_at = false, -math.huge

local function hash_of_scripts()
  local parts = {}
  for i, script in ipairs(host.script.list) do parts[i] = script.path .. "\0" .. host.digest.sum("sha256", script.text) end
  return digest.sha256(table.concat(parts, "\n")):sub(1, 16)
end

local function text_of(value, most) return type(value) == "string" and #value <= most and value or "" end

-- A record as C takes it; nil if it is none, or of a later version.
local function decoded(field, text)
  local number = math.tointeger(tonumber(field))
  if not number or number < 1 or number > 65535 or #text > MAX_RECORD then return nil end
  local is_json, one = pcall(json.decode, text)
  if not is_json or type(one) ~= "table" or not math.tointeger(one.format) or not text_of(one.uid, 32):find("^" .. ("%x"):rep(32) .. "$") then return nil end
  if one.format > FORMAT then
    if not is_later_told then host.log.write("warn", "cluster record not read", { node = text_of(one.node, 64), format = one.format }) end
    is_later_told = true
    return nil
  end
  return {
    number = number, uid = one.uid, node = text_of(one.node, 64), address = text_of(one.address, 271), version = text_of(one.version, 64),
    scripts = text_of(one.scripts, 16), config = text_of(one.config, 16),
    renewals = math.tointeger(one.renewals) or 0, sessions = math.tointeger(one.sessions) or 0, state = text_of(one.state, 16),
    has_to_leave = one.leave == true,
    keys = type(one.keys) == "table" and one.keys or {}, text = text,
  }
end

-- What the script returns, with the records decoded, by their numbers; nil and why if the server does not answer. `text`:
-- the own record; nil: nothing is written.
local function look(own, text)
  local words = { "EVAL", SCRIPT, "2", PREFIX .. "n", PREFIX .. "id", ("%d"):format(own.number), own.uid, ("%d"):format(own.renewals - 1), text or "",
    digest.sha256(host.random.bytes(16)):sub(1, 32) }
  for number, removed in pairs(over) do
    words[#words + 1] = ("%d"):format(number)
    words[#words + 1] = removed
  end
  local ends = server.deadline()
  if not server.is_ready(ends) then return nil, "it does not answer" end
  local done, reply, reason = cluster_operation.send(words, ends)
  if reason == "error" and reply:find("READONLY", 1, true) then server.renew() end
  if not done or type(reply) ~= "table" then return nil, reason == "error" and "it answers: " .. reply or "it does not answer", reason end
  local read = { state = reply[1], id = tostring(reply[2]), time = tonumber(reply[3]) + tonumber(reply[4]) / 1e6, list = {}, by_number = {} }
  local flat = reply[5]
  for i = 1, #flat, 2 do
    local one = decoded(flat[i], flat[i + 1])
    if one then
      read.list[#read.list + 1], read.by_number[one.number] = one, one
    end
  end
  table.sort(read.list, function(a, b) return a.number < b.number end)
  newest = own.via and read.by_number[own.via] or newest
  read.stale = host.nodes.take(read.list, read.id, host.time.clock() - read.time)
  over = {}
  for number, how in pairs(read.stale) do
    if how == "over" and host.nodes.lives(number) == false then over[number] = read.by_number[number].text end
  end
  return read
end

-- The own record. That of an older process of a node has the address of the newest one.
local function record(own)
  scripts = scripts or hash_of_scripts()
  newest = own.via and newest and newest.number == own.via and newest or nil
  return json.encode {
    uid = own.uid, node = own.node, address = newest and newest.address or own.address, renewals = own.renewals, format = FORMAT,
    version = host.config.server.version, scripts = scripts, config = host.nodes.config, sessions = own.sessions,
    state = (own.leaving or own.via) and "leaving" or "serving", keys = json.array { table.unpack(host.nodes.keys) },
  }
end

-- Why another process speaks against joining; nil: it does not.
local function objection(own, one)
  local at = ("%s (%s)"):format(one.node, one.address)
  if one.node == own.node then
    local before = seen[one.uid]
    seen[one.uid] = before or one.renewals
    if before and before ~= one.renewals then return ("another process has the name %s, at %s: see cluster.node"):format(own.node, one.address) end
    return ("another process had the name %s a moment ago, at %s"):format(own.node, one.address), true
  end
  local keys = host.nodes.keys
  if one.keys[1] and not has(one.keys, keys[1]) then return "the first of seal_keys is unknown to " .. at end
  if one.keys[1] and not has(keys, one.keys[1]) then return "the first of the seal_keys of " .. at .. " is unknown here" end
end

-- Why this process does not join, and whether that may be over soon; nil: it does. Records of processes that were at its
-- address before are to be removed.
local function judge(own, read)
  local ahead = host.time.clock() - read.time
  if math.abs(ahead) > MAX_AHEAD_S then
    return ("the clock of this machine is %.0f s %s that of the server of cluster"):format(math.abs(ahead), ahead > 0 and "ahead of" or "behind")
  end
  if #read.list > MOST then return ("the cluster has %d processes already"):format(MOST) end
  for _, one in ipairs(read.list) do
    if one.uid ~= own.uid and not own.siblings[one.number] then
      if one.address == own.address then
        over[one.number] = one.text
      elseif not read.stale[one.number] then
        local why, is_short = objection(own, one)
        if why then return why, is_short end
      end
    end
  end
end

-- Asks a process to leave by a member of its record, which stays when it renews that.
local LEAVE <const> = [[
local text = redis.call("HGET", KEYS[1], ARGV[1])
if text ~= ARGV[2] then return 0 end
local one = cjson.decode(text)
one.leave = true
redis.call("HSET", KEYS[1], ARGV[1], cjson.encode(one))
return 1
]]

-- -- a turn ---------------------------------------------------------------------------------------------------------------

-- Tells why this process takes no sessions. `is_short`: it may be over soon, and is no error yet.
local function refuse(why, is_short)
  local is_new = host.nodes.settle(why)
  if is_new and is_short then host.log.write("info", "cluster not joined yet", { why = why }) end
  if is_new and not is_short then host.log.write("error", "cluster not joined", { why = why, hint = "docs/how-to/several-nodes.md#joining" }) end
end

-- Another process has the number: takes another one. Nil if that cannot be.
local function renumber(own, state)
  if own.joined then
    local why = state == "held" and "another process has a record with the number of this one" or "another process renews the record of this one: a copy of it?"
    host.log.write("error", "cluster number lost", { node = own.node, why = why, sessions = own.sessions })
  end
  if not host.nodes.renumber() then
    return refuse "its number is that of another process, and an upgrade has made it known: restart this gateway"
  end
  return host.nodes.own()
end

local function away(own, why, reason)
  host.nodes.take()
  if not own.joined and not own.heir then return refuse(("the server of cluster, %s: %s"):format(server.place, why)) end
  if reason == "error" and now() - said_at >= SAY_S then
    said_at = now()
    host.log.write("warn", "redis command refused", { server = server.place, why = why })
  end
end

local function turn()
  local own = host.nodes.own()
  if not own then return end
  local read, why, reason
  if not own.joined then
    read, why, reason = look(own)
    if not read then return away(own, why, reason) end
    local against, is_short = judge(own, read)
    if against then return refuse(against, is_short) end
  end
  for _ = 1, TRIES do
    read, why, reason = look(own, record(own))
    if not read then return away(own, why, reason) end
    if read.state == "written" then break end
    own = renumber(own, read.state)
    if not own then return end
  end
  if read.state ~= "written" then return refuse "it finds no number that is free" end
  if not own.joined then
    local against, is_short = judge(own, read) -- another one may have joined at the same moment
    if against then
      over[own.number] = (read.by_number[own.number] or own).text
      look(own)
      return refuse(against, is_short)
    end
  end
  local mine = read.by_number[own.number]
  if mine and mine.has_to_leave and not own.leaving then host.nodes.leave() end
  if host.nodes.settle "" then
    host.log.write("info", "cluster joined", { name = host.config.cluster.name, node = own.node, address = own.address, processes = #read.list })
  end
end

bus.on("cluster turn", function()
  local function rest() host.nodes.settle() end
  local begun = host.job.begin_own(function()
    local _ <close> = setmetatable({}, { __close = rest })
    turn()
  end, TURN_S)
  if not begun then rest() end           -- nothing is known of the server by that
end)

bus.on("cluster number", function(number)
  host.job.begin_own(function()
    local ends = server.deadline()
    if not server.is_ready(ends) then return end
    local done, text = cluster_operation.send({ "HGET", PREFIX .. "n", number }, ends)
    if done then host.nodes.answer(tonumber(number), type(text) == "string" and decoded(number, text) or nil) end
  end, ASK_S)
end)

-- True if the process does not answer.
local function is_gone(number)
  local ends = now() + ASK_S
  local lives = host.nodes.lives(number)
  while lives == nil and now() < ends do
    host.time.sleep(0.05)
    lives = host.nodes.lives(number)
  end
  return lives == false
end

--- Removes the records of a node whose processes do not renew them and do not answer. How many; or nil and why none.
function nodes.forget(name)
  local own = host.nodes.own()
  if not own then return nil, "this gateway takes no part in a cluster" end
  local read, why = look(own)
  if not read then return nil, "the server of cluster: " .. why end
  local all, stale, gone = 0, 0, {}
  for _, one in ipairs(read.list) do
    if one.node == name then
      all = all + 1
      if read.stale[one.number] then stale, gone[#gone + 1] = stale + 1, is_gone(one.number) and one or nil end
    end
  end
  if all == 0 then return nil, "no record of the cluster has this node: see `moonpool cluster status`" end
  if stale == 0 then return nil, "its record is not stale yet: it was renewed, or the server was away, in the last 10 s" end
  if #gone == 0 then return nil, "it answers: it lives, and does not reach the server" end
  for _, one in ipairs(gone) do over[one.number] = one.text end
  read, why = look(own)
  if not read then return nil, "the server of cluster: " .. why end
  return #gone
end

--- Asks the processes of a node to leave. How many; or nil and why none.
function nodes.drain(name)
  local own = host.nodes.own()
  if not own then return nil, "this gateway takes no part in a cluster" end
  local count, why
  for _ = 1, TRIES do                                     -- a record that was renewed meanwhile is another text
    local read, failed = look(own)
    if not read then return nil, "the server of cluster: " .. failed .. "; `moonpool drain` on that node does the same" end
    count, why = 0, "no record of the cluster has this node: see `moonpool cluster status`"
    for _, one in ipairs(read.list) do
      if one.node == name and read.stale[one.number] then why = "its record is stale: it does not renew it" end
      if one.node == name and not read.stale[one.number] then
        local done, reply = cluster_operation.send({ "EVAL", LEAVE, "1", PREFIX .. "n", ("%d"):format(one.number), one.text }, server.deadline())
        why = "its record has changed meanwhile: try again"
        if done and reply == 1 then count = count + 1 end
      end
    end
    if count > 0 then return count end
  end
  return nil, why
end

return nodes
