-- MCP tasks: tool calls that run on after the answer to their request. The worker that got the call runs the task;
-- other workers, also those of other processes of the gateway, send it messages over the bus, to cancel it or to
-- deliver answers.
--   work      a task that this VM runs: its record, its job (a detached call), and the answers that arrived
-- Topics of the bus: "task" (the record with this id has changed), "task_message" (for the VM that runs the task:
-- cancel, answers), "ended" (its job is over) and "lost" (the client never got its id). After "missed" every waiter
-- looks again.

local host = require "moonpool.host"
local client_request = require "moonpool.calls.client_request"
local era_library = require "moonpool.protocol.era"
local errors = require "moonpool.runtime.rpc_error"
local failure = require "moonpool.runtime.outcome"
local bus = require "moonpool.runtime.bus"
local json = require "moonpool.json"
local problem = require "moonpool.runtime.diagnostic"
local single_task = require "moonpool.runtime.single_task"
local subscriptions = require "moonpool.registry.subscriptions"
local task_record = require "moonpool.tasks.task_record"

local tasks = {}

local POLL_INTERVAL_MS = 1000           -- milliseconds: the poll interval that clients are told to use
local MIN_TTL_MS = 1000       -- milliseconds: the shortest lifetime of a record
local MAX_MESSAGE_BYTES = 1024   -- limit of the bytes of a status message

local running = {}                                      -- id -> work
local works = setmetatable({}, { __mode = "k" })        -- the job's call -> work

-- The tasks that wait for a change of a record, in buckets by the first byte of its id: waiter -> true. A bucket is
-- never removed, so a waiter enters and leaves in one instruction; the task may be preempted between any two.
local waiting = {}
for byte = 0, 255 do waiting[byte] = {} end

local function bucket(id) return waiting[tonumber(id:sub(1, 2), 16)] end

-- -- notifying clients and workers --------------------------------------------------------------------------------------

-- Other processes get a notification of up to so many bytes whole; of a larger one they get the task's id, and read its
-- record in the store.
local MAX_RELAYED_BYTES = 16384
local RELAYED = "s4s4s4s4s4"

local function texts_of(record)
  local before, after = subscriptions.halves("notifications/tasks", task_record.modern(record, true))
  return "task:" .. record.id, subscriptions.plain("notifications/tasks/status", task_record.legacy(record)), before, after
end

-- Notifies clients that the record has changed. Sends nothing if `work` is given and is over, since its last
-- notification may have been sent already.
local function notify_changed(record, work)
  local topic, plain, before, after = texts_of(record)
  host.topic.publish(topic, plain, before, after, work)                                -- subscribers get the whole task, as tasks/get gives it (TX-7)
  host.bus.broadcast("task", record.id)
  local is_large = #plain + #before + #after > MAX_RELAYED_BYTES
  host.bus.relay("task elsewhere", RELAYED:pack(record.id, topic, is_large and "" or plain, before, is_large and "" or after), work)
end

--- The topic of a task for subscriptions/listen. That of a task of another node has an audience, the empty one, so that
--- host.topic.names and host.topic.audiences tell whether somebody follows it.
function tasks.topic(record) return "task:" .. record.id .. (record.is_far and "\0" or "") end

--- Notifies the clients of this process that follow a task of another node.
function tasks.notify_far(record)
  local _, plain, before, after = texts_of(record)
  host.topic.publish(tasks.topic(record), plain, before, after)
end

-- A task of another process has changed.
bus.on("task elsewhere", function(text)
  local id, topic, plain, before, after = RELAYED:unpack(text)
  if plain == "" then
    local record = task_record.get(id)
    if not record then return end
    topic, plain, before, after = texts_of(record)
  end
  host.topic.publish(topic, plain, before, after)
  host.bus.broadcast("task", id)
end)

local AWAY_S = 5          -- seconds for which a record is kept back while the store does not answer
local AWAY_PAUSE_S = 0.1
-- seconds between two reads of the record of a task of another process: the process sends a message about each change,
-- which may be lost
local FAR_PAUSE_S <const> = 1
local FAR_LOOK_S <const> = 10

-- As task_record.save. While the store does not answer, where the caller may wait, it is tried again and again for
-- AWAY_S.
local function save_record(work, final)
  local over = host.time.now() + AWAY_S
  while true do
    local record, is_new, away = task_record.save(work.record, final)
    if not away then return record, is_new end
    if host.time.now() >= over or running[work.record.id] ~= work or not pcall(host.time.sleep, AWAY_PAUSE_S) then
      host.log.write("error", "task not stored", { name = work.name, why = "the process that has the store does not answer" })
      return nil, false, away
    end
  end
end

-- Stores the record of a running task. No effect if the task has ended.
local function save(work)
  local record, is_new = save_record(work)
  if not is_new or running[record.id] ~= work then return end
  if task_record.is_ended(record) then -- the store had no room for it
    work.is_over = true
    notify_changed(record)
    running[record.id] = nil
  else
    notify_changed(record, work)
  end
end

-- Ends the task, unless it has ended. True if this call ended it. A task that is cancelled in here is ended by left():
-- the record has ended in one step of the store, and the work is in `running` until the notification is sent.
local function finish(work, status, outcome, is_error)
  local id = work.record.id
  if running[id] ~= work then return false end
  local record, is_new, away = save_record(work, { status = status, outcome = outcome, is_error = is_error or nil })
  if away then return false end                        -- the bus message "ended" ends the work
  if record and running[id] == work then
    work.is_over = true
    notify_changed(record)
  end
  running[id] = nil
  return is_new
end

local function fail(work, why) finish(work, "failed", json.encode(errors.new("internal", why))) end

-- Ends the task with the tool's result, or with an error.
local function settle(work, call, result, err)
  local ok, text = pcall(json.encode, err or result)
  if not ok then return fail(work, failure.report(text, "tool failed", work.name)) end
  local over = host.call.over_output(call, err and "error" or "result", #text)
  if over then return fail(work, over) end
  if err then return finish(work, "failed", text) end
  finish(work, "completed", text, result.isError)
end

-- -- questions -----------------------------------------------------------------------------------------------------------

-- A key for a question that this task has not used before (TX-4).
local function new_key(work, key)
  local n = (work.used[key] or 0) + 1
  work.used[key] = n
  if n == 1 then return key end
  return new_key(work, key .. "-" .. n)
end

local function put(work, call, asked, key, open)
  local params = era_library.request_params(work.revision, asked.method, asked.params)
  if not params then return false end
  local over = host.call.over_output(call, "question", #json.encode(params))
  if over then problem.raise(2, over) end
  local name = new_key(work, key)
  work.record.requests[name], open[name] = { method = asked.method, params = json.object(params) }, key
  work.has_news = true
  return true
end

-- The value of one answer, { answer = … } or { refused = why }; or nil and why. The reason "again" means that the
-- answer is invalid and the question is asked again.
local function read(work, asked, said)
  if said.refused then return nil, said.refused end
  local value, why = asked.read(said.answer)
  if why == "invalid" and era_library.is_stateless(work.revision) then why = "again" end
  return value, why
end

-- Asks the questions of call:elicit and similar functions: the task has the status "input_required" until every
-- question has an answer.
local function ask(work, call, wanted, found, whys)
  local open = {}
  for key, asked in pairs(wanted) do
    if not put(work, call, asked, key, open) then whys[key] = "unsupported" end
  end
  while next(open) do
    if work.has_news then
      work.has_news = nil
      save(work)
    end
    work.signal:wait()
    work.signal:clear()
    for name, key in pairs(open) do
      local said = work.answers[name]
      if said then
        open[name], work.answers[name] = nil, nil
        found[key], whys[key] = read(work, wanted[key], said)
        if whys[key] == "again" then
          whys[key] = nil
          work.again[#work.again + 1] = key
        end
      end
    end
    for i, key in ipairs(work.again) do
      put(work, call, wanted[key], key, open)
      work.again[i] = nil
    end
  end
end

-- A question of an upstream within a task: asked without waiting, with the methods of host.call.question.
local question = {}
question.__index = question

--- JSON of the client's answer, or of an error and true; nothing before there is one.
function question:answer()
  local work, name = self.work, self.name
  local said = work.answers[name]
  if not said then return nil end
  work.answers[name], work.signals[name] = nil, nil
  if said.refused then return json.encode(errors.new("internal", tostring(said.refused))), true end
  return json.encode(said.answer), false
end

--- Withdraws the question: the client need not answer it any more.
function question:withdraw()
  local work, name = self.work, self.name
  work.answers[name], work.signals[name] = nil, nil
  if not work.record.requests[name] then return end
  work.record.requests[name] = nil
  save(work)
end

local function put_now(work, call, method, params, signal)
  local over = host.call.over_output(call, "question", #json.encode(params))
  if over then return nil end
  local name = new_key(work, method:match "^%l+")
  work.record.requests[name], work.signals[name] = { method = method, params = json.object(params) }, signal
  save(work)
  return setmetatable({ work = work, name = name }, question)
end

-- -- starting ------------------------------------------------------------------------------------------------------------

-- The lifetime of a record in milliseconds: `wanted`, at most limits.task_seconds; nil means as long as possible.
local function life(wanted)
  local most = math.floor(host.limits.task_seconds * 1000)
  if type(wanted) ~= "number" then return most end
  return math.max(math.min(math.floor(wanted), most), math.min(MIN_TTL_MS, most))
end

-- Removes a task whose job was not started: the store or the jobs had no room, or the call that starts it was
-- cancelled.
local work_mt = { __close = function(work)
  if work.job or work.has_begun then return end
  running[work.record.id] = nil
  task_record.delete(work.record)
end }

-- The error for a record that task_record.add did not store.
local function refused(why)
  if why ~= "full" then return task_record.away() end
  return errors.new("internal", "too many tasks are stored: try again later")         -- a task must be stored before the client gets its id (TX-2)
end

local function stop(work, why) host.job.stop(work.job, why or "cancelled by its client") end

local function new_work(call, tool, wanted)
  local record = task_record.new(call, tool.name, life(wanted), tool.poll and math.floor(tool.poll * 1000) or POLL_INTERVAL_MS)
  return setmetatable({
    record = record, name = tool.name, revision = call.revision, signal = host.task.event(), answers = {}, used = {}, again = {}, signals = {},
    abandon = tool.abandon,
    stops = tool.timeout and host.time.now() + tool.timeout,
  }, work_mt)
end

-- Called when the job of a task ends without a result of the tool: the job was cancelled, or reached a limit.
local function left(work)
  if work.is_cancelled then return finish(work, "cancelled") end -- no effect if the result is stored already
  local why = work.stops and host.time.now() >= work.stops - 0.001 and "the task took too long" or "the task was ended by the server"
  fail(work, why)
end

local function run(work, job_call, f)
  local _ <close> = setmetatable({}, { __close = function() left(work) end })
  work.has_begun = true
  if running[work.record.id] ~= work then return end -- the task was cancelled or removed before its job began
  works[job_call] = work
  host.call.name_task(job_call, work.record.id)
  client_request.through(job_call, function(...) ask(work, job_call, ...) end, function(...) return put_now(work, job_call, ...) end)
  settle(work, job_call, f(job_call))
end

--- Runs f(job_call), which returns a result, or nil and an error, as a task of `tool`: { name, poll, timeout, abandon =
--- called if the task is cancelled before f }. Returns the task's record; or nil and an error.
--- `wanted` is the ttl in milliseconds that the client asked for, or nil.
function tasks.start(call, tool, wanted, f)
  local work <close> = new_work(call, tool, wanted)
  local record = work.record
  running[record.id] = work
  local added, unstored = task_record.add(record)
  if not added then return nil, refused(unstored) end
  local job, why = host.job.spawn(call, function(job_call) run(work, job_call, f) end, math.min(tool.timeout or math.huge, record.ttl / 1000),
    record.id)
  if not job then return nil, errors.new("internal", why == "too many" and "too many tasks run: try again later" or why) end
  work.job = job
  if work.is_cancelled then stop(work) end
  if call.has_session then host.session.subscribe(call, "task:" .. record.id) end
  return record
end

--- The record of a task that has ended already, with this result; or nil and an error.
function tasks.ended(call, tool, wanted, result)
  local work <close> = new_work(call, tool, wanted)
  running[work.record.id] = work
  local added, unstored = task_record.add(work.record)
  if not added then return nil, refused(unstored) end
  local _ <close> = setmetatable({}, { __close = function() left(work) end })
  work.has_begun = true
  settle(work, call, result)
  return work.record
end

-- -- messages -------------------------------------------------------------------------------------------------------------

-- A message for the VM that runs the task: { id =, cancel = true, by_operator = true or nil },
-- { id =, answers = { key = { answer = } or { refused = } } }, or { id =, outcome = an error, as JSON }: another node has
-- found that this process has ended, and that the task has failed.
local function take(message)
  local work = running[message.id]
  if not work then return end
  if message.outcome then
    finish(work, "failed", message.outcome)
    if work.job then stop(work, "another node found its process gone") end
    return
  end
  if message.cancel then
    if message.by_operator then work.record.message = "cancelled by an operator" end
    -- While the store does not answer the work stays in `running`: the end of its job stores the cancellation.
    work.is_cancelled = finish(work, "cancelled") or running[message.id] == work
    if work.is_cancelled and work.job then stop(work, message.by_operator and "cancelled by an operator") end
    if work.is_cancelled and not work.has_begun and work.abandon then work.abandon() end
    return
  end
  local record, taken = work.record, false
  for key, said in pairs(message.answers) do
    if record.requests[key] then
      record.requests[key], work.answers[key], taken = nil, said, true
      if work.signals[key] then work.signals[key]:set() end
    end
  end
  if not taken then return end
  work.signal:set()
  save(work)
end

bus.on("task_message", function(text) take(json.decode(text)) end)

-- A bus message: the client of a stateless revision has disconnected without the id of the task that its call created.
-- No client can name that task, see its result, or cancel it. Another VM may run it: only a record that has ended is
-- removed here.
bus.on("lost", function(id)
  take { id = id, cancel = true }
  local record = task_record.get(id)
  if record and task_record.is_ended(record) then task_record.delete(record) end
end)

local was_ended = json.encode(errors.new("internal", "the task was ended by the server"))

-- A bus message: the job of the task with this id has ended. The record has ended before, unless the job was cancelled
-- before it began or its `<close>` handlers took too long.
bus.on("ended", function(id)
  local record, away = task_record.get(id)
  if away then running[id] = nil end
  if not record or task_record.is_ended(record) then return end
  local work = running[id]
  local final = work and work.is_cancelled and { status = "cancelled" } or { status = "failed", outcome = was_ended }
  local ended, is_new = task_record.save(record, final)
  if work then work.is_over = true end
  if is_new then notify_changed(ended) end
  running[id] = nil
end)

local function look_again(waiter)
  waiter.signal:set()
  waiter.on_change()
end

-- A bus message: the record with this id has changed.
bus.on("task", function(id)
  for waiter in pairs(bucket(id)) do
    if waiter.id == id then look_again(waiter) end
  end
end)

local function waiters_for(id)
  local waiters = {}
  for waiter in pairs(bucket(id)) do
    if waiter.id == id then waiters[#waiters + 1] = waiter end
  end
  return waiters
end

local look_far = single_task.each(function(id)
  local record = task_record.get(id)
  for _, waiter in ipairs(record and waiters_for(id) or {}) do
    waiter.signal:set()
    if bucket(id)[waiter] then waiter.on_change(record) end
  end
end, FAR_LOOK_S)

-- A bus message: the record with this id, of another node, has changed. Only a task can read it.
bus.on("task far", function(id)
  if waiters_for(id)[1] then look_far(id) end
end)

bus.on("missed", function()
  for _, waiters in pairs(waiting) do
    for waiter in pairs(waiters) do look_again(waiter) end
  end
end)

local waiter_mt = { __close = function(self) bucket(self.id)[self] = nil end }

local function nothing() end

--- Calls look(record) now and after every change of the record, until `look` returns a value, and returns that value.
--- Returns nil if the record no longer exists, or after `seconds`. look may wait; on_change(), if given, is called at
--- once for each change and may not wait; with the record if that is of another node.
function tasks.await(call, id, seconds, look, on_change)
  local over = host.time.now() + (seconds or math.huge)
  local self <close> = setmetatable({ id = id, signal = host.task.event(), on_change = on_change or nothing }, waiter_mt)
  bucket(id)[self] = true
  while true do
    -- messages about changes from the task's process may be lost on the way
    local is_far = host.bus.send_on(id)
    if is_far then self.on_change() end
    self.signal:clear()
    local record, away = task_record.find(call, id)
    if not record and not away then return nil end
    is_far = is_far or record and record.is_far
    local found
    if record then found = look(record) end
    if found ~= nil then return found end
    local most = (record and math.min(over, record.ends) or over) - host.time.now()
    if most <= 0 then return nil end
    self.signal:wait((away or is_far) and math.min(most, away and AWAY_PAUSE_S or FAR_PAUSE_S) or most)
  end
end

--- Sends a message to the worker that runs the task, perhaps of another process. Returns an error if the queue of a
--- worker is full, which may be that worker.
function tasks.send(message)
  local text = json.encode(message)
  local sent = host.bus.send_on(message.id, text)
  if sent == nil then sent = host.bus.broadcast("task_message", text) end
  if sent then return nil end
  return errors.new("internal", "a worker does not take messages now: try again later")
end

--- call:status(message): sets the status message of the task, for people. No effect in a call that is not a task.
function host.call.methods.status(call, message)
  local work = works[call]
  if not work or running[work.record.id] ~= work or message == nil then return end
  message = tostring(message)
  if not utf8.len(message) then problem.raise(2, "a status must be a UTF-8 string") end
  if #message > MAX_MESSAGE_BYTES then message = message:sub(1, (utf8.offset(message, 0, MAX_MESSAGE_BYTES + 1)) - 1) end
  if work.record.message == message then return end
  work.record.message = message
  save(work)
end

return tasks
