-- What is known of a task, by everybody who may know it: kept in the shared store until its time is over, written by the
-- worker that runs it, read by all. In the newest revision's words.
--   record    { id, owner, status, message, created, updated, ttl, poll, ends, requests, is_error, outcome }
--   owner     who may see it: a principal; without one, in the eras that have them, the session that made it
--   outcome   the result, or of a failed task the error, as JSON: it goes to clients as it was written

local host = require "moonpool.host"
local call_library = require "moonpool.call"
local errors = require "moonpool.errors"
local json = require "moonpool.json"
local principal = require "moonpool.principal"
local registry = require "moonpool.registry"

local task_record = {}

local ended = { completed = true, failed = true, cancelled = true }

--- What a client of 2026-07-28 must have declared, as call.able takes it.
task_record.needs = { "extensions." .. registry.tasks_extension }
local tree = call_library.tree(task_record.needs)

--- The error for one that has not (TX-6).
function task_record.undeclared(what)
  return errors.new("missing_capability", what or "tasks need a client that declares " .. registry.tasks_extension, { requiredCapabilities = tree })
end

local function key(id) return "task:" .. id end
local function list_key(owner, id) return "tasks of " .. owner .. "\0" .. id end

local function owner_of(call)
  if not principal.is_named(call.principal) and call.has_session then return "session " .. host.session(call) end
  return "principal " .. principal.key(call.principal)
end

local function now() return os.date "!%Y-%m-%dT%H:%M:%SZ" end

local function hex(bytes)
  return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

--- A record that is not in the store yet. `ttl` in ms.
function task_record.new(call, ttl, poll)
  local at = now()
  return {
    id = hex(host.random(16)), owner = owner_of(call), is_listed = principal.is_named(call.principal) or nil, status = "working",
    created = at, updated = at, ttl = ttl, poll = poll, ends = host.now() + ttl / 1000, requests = {},
  }
end

--- Puts it into the store, with what has changed: true; or nil where there is no room.
function task_record.save(record)
  local left = record.ends - host.now()
  if left <= 0 then return true end
  record.updated = now()
  local outcome = record.outcome
  record.outcome, record.requests = nil, json.object(record.requests)
  local head = json.encode(record)
  record.outcome = outcome
  if not host.store_set(key(record.id), head .. "\n" .. (outcome or ""), left) then return nil end
  if record.is_listed and not host.store_set(list_key(record.owner, record.id), "", left) then return nil end
  return true
end

function task_record.delete(record)
  host.store_delete(key(record.id))
  host.store_delete(list_key(record.owner, record.id))
end

local function read(id)
  local text = host.store_get(key(id))
  if not text then return nil end
  local head, outcome = text:match "^([^\n]*)\n(.*)$"
  local record = json.decode(head)
  record.outcome = outcome ~= "" and outcome or nil
  return record
end

--- The task of this id, if the client of `call` may know of it (TA-6).
function task_record.find(call, id)
  if type(id) ~= "string" or #id ~= 32 then return nil end
  local record = read(id)
  return record and record.owner == owner_of(call) and record or nil
end

--- The ids of all tasks that the client of `call` may know of, sorted.
function task_record.ids(call)
  local prefix = list_key(owner_of(call), "")
  local ids = {}
  for i, name in ipairs(host.store_keys(prefix)) do ids[i] = name:sub(#prefix + 1) end
  return ids
end

function task_record.is_ended(record) return ended[record.status] or false end

--- As 2026-07-28 tells it (TX-2); with `whole`, what is asked and what came of it too (TX-3).
function task_record.modern(record, whole)
  local told = {
    taskId = record.id, status = record.status, statusMessage = record.message, createdAt = record.created,
    lastUpdatedAt = record.updated, ttlMs = record.ttl, pollIntervalMs = record.poll,
  }
  if not whole then return told end
  if record.status == "input_required" then told.inputRequests = record.requests end
  if record.status == "completed" then told.result = json.raw(record.outcome) end
  if record.status == "failed" then told.error = json.raw(record.outcome) end
  return told
end

--- As 2025-11-25 tells it: a result that is an error is a failure (TA-2).
function task_record.legacy(record)
  return {
    taskId = record.id, status = record.is_error and "failed" or record.status, statusMessage = record.message,
    createdAt = record.created, lastUpdatedAt = record.updated, ttl = record.ttl, pollInterval = record.poll,
  }
end

return task_record
