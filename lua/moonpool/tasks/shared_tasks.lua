-- The records of tasks in the server of `cluster`: each node writes those of its own tasks there, so that others can read
-- them. What counts is in the node's own store while its process lives: tasks go on while the server is away, and what has
-- changed meanwhile is written later. Who reads the record of a task whose process is gone (host.task.is_orphan) writes
-- there that the task has failed; a process that lives after all cannot write that record any more, and ends the task.
--
-- Keys in the server, each behind mp:NAME:
--   t:ID      a hash: text, the record as the store has it; its uid and version; gone, once a reader has ended it. It
--             expires with the record
--   tp:HASH   the ids of the tasks of a principal, sorted by when they expire; it expires with the last one

local bus = require "moonpool.runtime.bus"
local cluster_operation = require "moonpool.lib.cluster_operation"
local digest = require "moonpool.lib.digest"
local errors = require "moonpool.runtime.rpc_error"
local host = require "moonpool.host"
local json = require "moonpool.json"
local single_task = require "moonpool.runtime.single_task"
local task_record = require "moonpool.tasks.task_record"
local tasks = require "moonpool.tasks.tasks"

local fanout <const> = host.config.cluster.beat_ms > 0 and require "moonpool.cluster.fanout"
local now <const> = host.time.now            -- taken while this file loads: later, a recorder of calls replaces host.time.now
local PREFIX <const> = cluster_operation.PREFIX
local MAX_TEXT <const> = 1 << 20             -- bytes: a server does nothing else while it copies one
local BATCH <const> = 16                     -- records that are written at once
local RETRY_S <const> = 0.5
local AGAIN_S <const> = host.config.cluster.task_again_ms / 1000      -- seconds after which records of running tasks that the server has lost are written anew
local RUN_S <const>, MOST_RUN_S <const>, CPU_S <const> = 50, 60, 60
local TELL_S <const>, PAUSE_S <const> = 10, 0.02

local GONE <const> = json.encode(errors.new("internal", "the node that ran it is gone; it may have done part of its work"))
local RESULT_GONE <const> = json.encode(errors.new("internal", "the node that had its result is gone"))
local TOO_LARGE <const> = json.encode(errors.new("internal", "its result has more than 1 MiB: only the node that ran it has it"))

-- 1: the server has the record in this version, or a later one; or 0 and the record that a reader has ended.
local PUT <const> = cluster_operation.CLOCK .. [[
local uid, version, text, life, index, id = unpack(ARGV, 3)
local has = redis.call("HMGET", KEYS[1], "uid", "version", "gone", "text")
if has[1] then
  if has[3] or has[1] ~= uid then return { said, 0, has[4] } end
  if tonumber(has[2]) >= tonumber(version) then return { said, 1 } end
end
redis.call("HSET", KEYS[1], "uid", uid, "version", version, "text", text)
redis.call("PEXPIRE", KEYS[1], life)
if index ~= "" then
  redis.call("ZREMRANGEBYSCORE", index, "-inf", said)
  redis.call("ZADD", index, string.format("%.0f", now + tonumber(life)), id)
  redis.call("PEXPIREAT", index, redis.call("ZREVRANGE", index, 0, 0, "WITHSCORES")[2])
end
return { said, 1 }
]]

-- Ends a record, if it is still that of this uid in this version.
local FAIL <const> = cluster_operation.CLOCK .. [[
local has = redis.call("HMGET", KEYS[1], "uid", "version", "gone")
if has[1] ~= ARGV[3] or has[2] ~= ARGV[4] or has[3] then return { said, 0 } end
redis.call("HSET", KEYS[1], "text", ARGV[5], "gone", "1")
return { said, 1 }
]]

local DROP <const> = [[
local uid, index, id = unpack(ARGV)
if redis.call("HGET", KEYS[1], "uid") ~= uid then return 0 end
if index ~= "" then redis.call("ZREM", index, id) end
return redis.call("DEL", KEYS[1])
]]

local READ <const> = [[return { redis.call("PTTL", KEYS[1]), redis.call("HGET", KEYS[1], "text") }]]

local LIST <const> = [[
local time = redis.call("TIME")
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", string.format("%.0f", time[1] * 1000))
return redis.call("ZRANGE", KEYS[1], 0, -1)
]]

local function key(id) return PREFIX .. "t:" .. id end
local function owner_key(owner) return PREFIX .. "tp:" .. digest.sha256(owner):sub(1, 32) end
local function index_of(record) return record.is_listed and owner_key(record.owner) or "" end

-- -- other nodes are told --------------------------------------------------------------------------------------------------

local notify = single_task.each(function(id)
  local record = task_record.get(id)
  if record and record.is_far then tasks.notify_far(record) end
end, TELL_S)

-- Notifies those of this process that wait for a task of another node, or follow it.
local function tell(id)
  host.bus.broadcast("task far", id)
  if host.topic.audiences("task:" .. id)[1] then notify(id) end
end

local function publish(id)
  if fanout then fanout.publish("task", id) end
end

if fanout then
  fanout.on("task", tell)
  fanout.at_gap(function()
    host.job.begin_own(function()
      local names, from
      repeat
        names, from = host.topic.names("task:", from)
        for _, id in ipairs(names) do tell(id) end
        if from then host.time.sleep(PAUSE_S) end
      until not from
    end, TELL_S)
  end)
end

-- -- writing ---------------------------------------------------------------------------------------------------------------

-- id -> record. unwritten: the server may not have it as it is; held: it has, and the task runs. Any task may be preempted
-- at any instruction: a record leaves `unwritten` before it is read, and what changes then comes again.
local unwritten, held = {}, {}
local is_retired = false
local wake = host.task.event()

-- A reader has ended the record, since it found this process gone: the task ends.
local function give_up(record, text)
  if task_record.is_ended(record) then return end
  local outcome = text and task_record.decode(text).outcome or GONE
  task_record.save(record, { status = "failed", outcome = outcome })
  host.bus.broadcast("task_message", json.encode { id = record.id, outcome = outcome })
end

local function put(record, text)
  if #text > MAX_TEXT then text = '{"is_too_large":true,' .. text:match "^{([^\n]*\n)" end
  local life = ("%d"):format(math.max(1, math.ceil((record.ends - now()) * 1000)))
  local done, other = cluster_operation.timed("task", PUT, function()
    return 0, math.maxinteger, "t:" .. record.id, { record.uid, ("%d"):format(record.version), text, life, index_of(record), record.id }
  end)
  if done == 0 then give_up(record, other) elseif done and record.version > 1 then publish(record.id) end
  return done ~= nil
end

-- Brings the server's record to what the store has, which may be none. True if that is done.
local function write(record)
  local id = record.id
  local _, has_joined = host.nodes.uid()
  if not has_joined then return false end
  local text, away = task_record.text(id)
  if away then return false end
  if not text then
    held[id] = nil
    return cluster_operation.ask("task", { "EVAL", DROP, "1", key(id), record.uid, index_of(record), id }) ~= nil
  end
  local stored = task_record.decode(text)
  held[id] = not task_record.is_ended(stored) and stored or nil
  return put(stored, text)
end

local function take_some()
  local batch = {}
  while #batch < BATCH do
    local id, record = next(unwritten)
    if not id then break end
    unwritten[id] = nil
    batch[#batch + 1] = record
  end
  return batch
end

-- A record that was not written. That of a Lua state which ends is written by the next one.
local function keep(record)
  if is_retired then
    host.bus.broadcast("task unwritten", json.encode { id = record.id, uid = record.uid, owner = record.owner, is_listed = record.is_listed })
  elseif not unwritten[record.id] then
    unwritten[record.id] = record
  end
end

-- Writes some records: true if the server has them.
local function write_some()
  local batch, is_done, works = take_some(), true, {}
  local _ <close> = setmetatable({}, { __close = function()
    for _, record in pairs(batch) do keep(record) end
  end })
  for i, record in ipairs(batch) do
    works[i] = function()
      if write(record) then batch[i] = nil else is_done = false end
      return true
    end
  end
  if works[1] then host.task.parallel(works, "tasks") end
  return is_done
end

local begin_task = single_task.new(function()
  local over, again = now() + RUN_S, now() + AGAIN_S
  while (next(unwritten) or next(held)) and now() < over do
    wake:clear()
    if not write_some() then host.time.sleep(RETRY_S) elseif not next(unwritten) and next(held) then wake:wait(math.max(again - now(), 0)) end
    if now() >= again then
      local round = held
      held, again = {}, now() + AGAIN_S
      for id, record in pairs(round) do unwritten[id] = record end
    end
  end
end, function() return (next(unwritten) or next(held)) ~= nil end, MOST_RUN_S, CPU_S)

local function begin()
  wake:set()
  begin_task()
end

function task_record.share(record, is_new)
  if not record.uid then return end                      -- other nodes cannot know this process
  if not (is_new and write(record)) then unwritten[record.id] = record end
  begin()
end

bus.on("task unwritten", function(text)
  if is_retired then return end
  local record = json.decode(text)
  unwritten[record.id] = record
  begin()
end)

bus.on("retired", function() is_retired = true end)

-- -- reading ---------------------------------------------------------------------------------------------------------------

-- Writes that the task has failed. Nil and why if that cannot be.
local function fail(record)
  local text = task_record.ended_text(record, { status = "failed", outcome = GONE })
  local done, why = cluster_operation.timed("task", FAIL, function()
    return 0, math.maxinteger, "t:" .. record.id, { record.uid, ("%d"):format(record.version), text }
  end)
  if done == 1 then
    host.log.write("warn", "node of a task gone", { name = record.tool, id = record.id })
    publish(record.id)
    tell(record.id)
  end
  return done, why
end

function task_record.elsewhere(id)
  if not host.task.current() then return nil, "unavailable" end
  local reply, why = cluster_operation.ask("get", { "EVAL", READ, "1", key(id) })
  if not reply then return nil, why end
  if type(reply[2]) ~= "string" then return nil end
  local record = task_record.decode(reply[2])
  record.is_far, record.ends = true, now() + math.max(reply[1], 0) / 1000
  local is_ended = task_record.is_ended(record)
  if is_ended and not record.is_too_large then return record end
  local is_gone = host.task.is_orphan(id, record.uid)
  if record.is_too_large then record.outcome = is_gone and RESULT_GONE or TOO_LARGE end
  if is_ended or not is_gone then return record end
  local done, away = fail(record)
  if not done then return nil, away end
  return task_record.elsewhere(id)
end

function task_record.ids_elsewhere(owner) return cluster_operation.ask("list", { "EVAL", LIST, "1", owner_key(owner) }) end
