-- The record of an MCP task, in the shared store until it expires. The worker that runs the task writes the record; all
-- workers read it. With `cluster` the other nodes read a copy of it (tasks/shared_tasks.lua).
-- Its fields are those of the base revision.
--   record    { id, owner, tool, principal = its id, for operators, status, message, created, updated, ttl, poll, ends, requests, is_error, outcome;
--             of a node: uid, of the process that runs the task, and version, how often it was stored }
--   owner     the principal that may see the task; without one, in revisions with sessions, the session that created it
--   outcome   the result of a completed task, or the error of a failed one, as JSON, which is sent to clients unchanged

local host = require "moonpool.host"
local call_library = require "moonpool.protocol.call"
local errors = require "moonpool.runtime.rpc_error"
local json = require "moonpool.json"
local principal = require "moonpool.access.principal"
local registry = require "moonpool.registry.registry"
local sorted = require "moonpool.runtime.sorted_keys"

local task_record = {}

local AWAY_S <const> = 1            -- seconds after which a client may try again

local ended = { completed = true, failed = true, cancelled = true }

--- The capabilities that a client of a stateless revision must declare for tasks, as call.able takes them.
task_record.needs = { "extensions." .. registry.tasks_extension }
local tree = call_library.tree(task_record.needs)

--- The error for a client that has not declared the capabilities for tasks (TX-6).
function task_record.undeclared(what)
  return errors.new("missing_capability", what or "tasks need a client that declares " .. registry.tasks_extension, { requiredCapabilities = tree })
end

local function key(id) return "task:" .. id end
local function list_key(owner, id) return "tasks of " .. owner .. "\0" .. id end

local function owner_of(call)
  if not principal.is_named(call.principal) and call.has_session then return "session " .. host.session.id(call) end
  return "principal " .. principal.key(call.principal)
end

-- Whom the store's room for tasks counts a task for: a principal; all callers without a name are one.
local function counted_of(call) return principal.is_named(call.principal) and principal.key(call.principal) or "" end

local function now() return os.date "!%Y-%m-%dT%H:%M:%SZ" end

--- A new record, not stored yet. `tool` is its name; `ttl` and `poll` are in milliseconds.
function task_record.new(call, tool, ttl, poll)
  local at, uid = now(), (host.nodes.uid())
  return {
    uid = uid,
    id = host.random.id(counted_of(call)), owner = owner_of(call), tool = tool, principal = principal.facts(call.principal).id,
    is_listed = principal.is_named(call.principal) or nil, status = "working",
    created = at, updated = at, ttl = ttl, poll = poll, ends = host.time.now() + ttl / 1000, requests = {},
  }
end

-- The stored form of a record: its status follows from its open questions, unless `final` gives the end of the task.
-- The time of change is now.
local function snapshot(record, final, version)
  local status = final and final.status or next(record.requests) and "input_required" or "working"
  return {
    uid = record.uid, version = record.uid and version, id = record.id, owner = record.owner, tool = record.tool,
    principal = record.principal, is_listed = record.is_listed, status = status, message = record.message, created = record.created,
    updated = now(), ttl = record.ttl, poll = record.poll, ends = record.ends, requests = json.object(final and {} or record.requests),
    is_error = final and final.is_error or nil, outcome = final and final.outcome,
  }
end

local function encode(shot)
  local outcome = shot.outcome
  shot.outcome = nil
  local head = json.encode(shot)
  shot.outcome = outcome
  return head .. "\n" .. (outcome or "")
end

--- A record of its stored text.
function task_record.decode(text)
  local head, outcome = text:match "^([^\n]*)\n(.*)$"
  local record = json.decode(head)
  record.outcome = outcome ~= "" and outcome or nil
  return record
end

local decode <const> = task_record.decode

--- The text of a record that has ended, as `final` says: { status, outcome }.
function task_record.ended_text(record, final) return encode(snapshot(record, final, record.version)) end

--- The text of a record of this node, or nil; and "unavailable" if the store does not tell.
function task_record.text(id) return host.store.get(key(id)) end

-- What a cluster adds, replaced by tasks/shared_tasks.lua.

--- A record of this node was stored or deleted. With `is_new` it waits until other nodes can read it, for a moment.
function task_record.share() end

--- The record of a task of another node; nil; or nil and "unavailable".
function task_record.elsewhere() end

--- Of a principal, the ids of the tasks of all nodes, in any order; nil and why if they are not known; nothing if there are no others.
function task_record.ids_elsewhere() end

--- Stores a new record. Returns true; or nil and the result of the store: "full", "unavailable" or "unknown".
function task_record.add(record)
  local left = record.ends - host.time.now()
  local done, why = host.store.set(key(record.id), encode(snapshot(record, nil, 1)), left)
  if done and record.is_listed then
    done, why = host.store.set(list_key(record.owner, record.id), "", left)
    if not done then task_record.delete(record) end
  end
  if done then task_record.share(record, true) end
  return done, why
end

--- The error for a client while the store does not answer.
function task_record.away()
  return errors.new("internal", "the tasks cannot be reached for the moment: try again later", { retryAfter = AWAY_S })
end

local no_room = { status = "failed", outcome = json.encode(errors.new("internal", "the store has no room for this task")) }

--- Stores the record as it is now, or with `final`, { status, outcome, is_error }, as one that has ended. A stored
--- record that has ended never changes: the first end is kept. Other tasks and orders may run between any two
--- instructions of this function, so the store compares and replaces in one step. If the store is full, the task fails.
--- Returns the stored record and whether this call stored it; or nil if there is none any more; or nil, false and
--- "unavailable" or "unknown".
function task_record.save(record, final)
  while true do
    local text, away = host.store.get(key(record.id))
    if not text then return nil, false, away end
    local stored = decode(text)
    if ended[stored.status] then return stored, false end
    local shot = snapshot(record, final, (stored.version or 0) + 1)
    local done, why = host.store.cas(key(record.id), text, encode(shot))
    if done then
      task_record.share(shot)
      return shot, true
    end
    if why and why ~= "full" then return nil, false, why end
    if why and final == no_room then return stored, false end
    if why then final = no_room end
  end
end

function task_record.delete(record)
  host.store.delete(key(record.id))
  host.store.delete(list_key(record.owner, record.id))
  task_record.share(record)
end

local restarted = { status = "failed", outcome = json.encode(errors.new("internal", "the gateway was restarted; the task may have run")) }

--- The record with this id, whoever owns it; nil; or nil and "unavailable". A task that ran when its process ended has failed.
function task_record.get(id)
  local text, why = host.store.get(key(id))
  if why then return nil, why end
  if not text then return task_record.elsewhere(id) end
  local record = decode(text)
  if ended[record.status] or not host.task.is_orphan(id, record.uid) then return record end
  local saved, _, away = task_record.save(record, restarted)
  return saved, away
end

-- The ids at the ends of keys of the store, behind a prefix; and `why` as it is.
local function ids_behind(prefix, keys, why)
  local ids = {}
  for i, name in ipairs(keys) do ids[i] = name:sub(#prefix + 1) end
  return ids, why
end

--- The ids of all tasks that begin so, at most `most`, sorted; and "unavailable" if the store does not tell.
function task_record.all(start, most) return ids_behind(key "", host.store.keys(key(start), most)) end

--- The record with this id, if the caller owns it; else nil (TA-6), and "unavailable" if the store does not tell.
function task_record.find(call, id)
  if type(id) ~= "string" or #id ~= 36 then return nil end
  local record, why = task_record.get(id)
  if not record then return nil, why end
  return record.owner == owner_of(call) and record or nil
end

--- The ids of all tasks that the caller owns, sorted; and "unavailable" if the store does not tell.
function task_record.ids(call)
  local prefix = list_key(owner_of(call), "")
  local ids, why = ids_behind(prefix, host.store.keys(prefix))
  local more, away = task_record.ids_elsewhere(owner_of(call))
  if why or away or not more then return ids, why or away end
  local all = {}
  for _, list in ipairs { ids, more } do
    for _, id in ipairs(list) do all[id] = true end
  end
  return sorted(all)
end

function task_record.is_ended(record) return ended[record.status] or false end

--- The record in a stateless revision (TX-2); with `whole`, open questions and the outcome are included (TX-3).
function task_record.modern(record, whole)
  local shown = {
    taskId = record.id, status = record.status, statusMessage = record.message, createdAt = record.created,
    lastUpdatedAt = record.updated, ttlMs = record.ttl, pollIntervalMs = record.poll,
  }
  if not whole then return shown end
  if record.status == "input_required" then shown.inputRequests = record.requests end
  if record.is_too_large then shown.status = "failed" end
  if shown.status == "completed" then shown.result = json.raw(record.outcome) end
  if shown.status == "failed" then shown.error = json.raw(record.outcome) end
  return shown
end

--- The record in 2025-11-25: a task whose result has isError is "failed" there (TA-2).
function task_record.legacy(record)
  return {
    taskId = record.id, status = record.is_error and "failed" or record.status, statusMessage = record.message,
    createdAt = record.created, lastUpdatedAt = record.updated, ttl = record.ttl, pollInterval = record.poll,
  }
end

return task_record
