-- MCP tasks of upstreams. A call that an upstream runs as a task is a task of this gateway for a client that can have
-- one: the handler of the tool ends its run, and runs again as the body of that task, which polls the upstream. For
-- every other client the call itself polls, and its end cancels the upstream's task. Clients never see the ids of
-- upstreams. A notification of the upstream about the task brings the next poll at once; it is not relied on (TA-6),
-- and what it says is not used.
--   made   a task of an upstream: { id, is_stateless, status, poll = seconds or nil, ttl = milliseconds or nil, record, key, is_own, class, asks, identity,
--          wants_session, is_single, is_over, is_shown }; `key`, `is_own`, `class`, `identity` and `wants_session` are those of the channel on which it
--          was made, `asks` what the upstream was told that its client can be asked; `is_single`: the channel is there for this call alone; `is_shown`: a task
--          of this gateway shows its status

local bus = require "moonpool.runtime.bus"
local call_library = require "moonpool.protocol.call"
local client_request = require "moonpool.calls.client_request"
local errors = require "moonpool.runtime.rpc_error"
local era = require "moonpool.protocol.era"
local failure = require "moonpool.runtime.outcome"
local subscribe = require "moonpool.upstream.subscribe"
local host = require "moonpool.host"
local json = require "moonpool.json"
local channel_key = require "moonpool.upstream.channel_key"
local message = require "moonpool.upstream.message"
local observer = require "moonpool.upstream.observer"
local repeated_requests = require "moonpool.upstream.repeated_requests"
local policy = require "moonpool.things.policy"
local request = require "moonpool.upstream.request"
local sorted = require "moonpool.runtime.sorted_keys"

local tasks = {}

-- if the upstream names no interval, the pause between polls grows from the first to the second
local FIRST_POLL_S, MAX_POLL_S = 0.1, 5
local LEAST_POLL_S, MOST_POLL_S = 0.1, 60         -- a poll interval that the upstream names is raised or lowered to lie between these two
local MAX_ID_BYTES = 1024
local SUBSCRIBE_S = 1                                -- the gateway subscribes to a task of a stateless upstream whose polls are at least so far apart
local MOST_QUESTIONS = host.limits.upstreams.questions_per_request
local CANCEL_S = 10                               -- seconds that the cancellation of a task at an upstream may take

local KEPT = "upstream task "                     -- key of client_request.keep, before the id

local ended = { completed = true, failed = true, cancelled = true }

local is_object = message.is_object

local unreadable = { outcome = "unknown", reason = "unreadable" }

-- -- what an upstream can --------------------------------------------------------------------------------------------

local function at(value, ...)
  for _, name in ipairs { ... } do
    value = is_object(value) and value[name] or nil
  end
  return is_object(value)
end

--- True if an upstream with sessions runs a tool as a task when the call says so (TA-1).
function tasks.has_params(server_info) return not server_info.is_modern and at(server_info.capabilities, "tasks", "requests", "tools", "call") end

--- True if a stateless upstream may make a task of any call whose client declares the extension (TX-1).
function tasks.has_extension(server_info) return server_info.is_modern and at(server_info.capabilities, "extensions", call_library.tasks_extension) end

-- -- what a client wants ---------------------------------------------------------------------------------------------

local wishes = setmetatable({}, { __mode = "k" })       -- call -> { ttl }: its client can have a task
-- call of a task of this gateway -> the task that the upstream has made
local resumed = setmetatable({}, { __mode = "k" })

--- The client of a call can have a task. `ttl`: the lifetime in milliseconds that it wants, or nil.
function tasks.wish(call, ttl) wishes[call] = { ttl = math.type(ttl) and ttl or nil } end

function tasks.wish_of(call) return wishes[call] end

--- The handler runs again, for a task of this gateway: it gets the upstream's task `made`. Returns a value whose end
--- cancels the upstream's task unless that is over.
function tasks.resume(call, made)
  resumed[call] = made
  made.is_own, made.is_shown = nil, true          -- the gateway's task may outlive the session of the client
  policy.resume(call)
  return setmetatable({}, { __close = function() tasks.cancel(made) end })
end

--- The task that an upstream has made of a call before its handler ran again; nil: the handler has not called the
--- upstream.
function tasks.resumed(call, record)
  local made = resumed[call]
  if not made or made.record ~= record then return nil end
  resumed[call] = nil
  return made
end

-- -- what an upstream has made ---------------------------------------------------------------------------------------

local function seconds(ms) return type(ms) == "number" and ms > 0 and ms < math.huge and ms / 1000 or nil end

--- The task that an upstream has made of a call, from its result; nil if the result is not one. False if it cannot be
--- read.
function tasks.made(result, channel)
  local shown = result.resultType == "task" and result or result.content == nil and is_object(result.task) and result.task
  if not shown then return nil end
  local id, is_stateless = shown.taskId, shown == result
  if type(id) ~= "string" or id == "" or #id > MAX_ID_BYTES then return false end
  local ttl = is_stateless and shown.ttlMs or shown.ttl
  local poll = seconds(is_stateless and shown.pollIntervalMs or shown.pollInterval)
  return {
    id = id, is_stateless = is_stateless, status = shown.status, ttl = type(ttl) == "number" and ttl or nil,
    poll = poll and math.min(math.max(poll, LEAST_POLL_S), MOST_POLL_S), record = channel.record, key = channel.key, is_own = channel.is_own,
    class = channel.class, asks = channel.asks, identity = channel.identity, is_single = channel.is_single, wants_session = channel.wants_session,
  }
end

local asked = setmetatable({}, { __mode = "k" })       -- call -> { count, from }: questions of its polls, and when they began (s)

-- Counts a question that an upstream asks in answer to a poll. Each poll is a request of its own, and the limit is one
-- of them all.
local function count_question(call)
  local polls = asked[call] or { count = 0, from = host.time.now() }
  asked[call] = polls
  polls.count = polls.count + 1
  if polls.count <= MOST_QUESTIONS + (host.time.now() - polls.from) then return false end
  host.upstream.count_refused "questions"
  return true
end

local function ask(made, call, method, more)
  return request.send(made.record, {
    method = method, key = made.key, call = call, may_repeat = true, asks_too_much = function() return count_question(call) end,
    options = { own = made.is_own and call or nil, class = made.class, identity = made.identity, wants_session = made.wants_session },
    build = function(server_info)
      local params = { taskId = made.id, inputResponses = more }
      params._meta = message.meta(server_info, nil, nil, nil, made.asks, true)
      return params
    end,
  })
end

--- Ends the channel of a key, if there is one. No call needs it any more.
function tasks.end_channel(record, key)
  host.job.begin(function()
    local channel, state = host.upstream.channel(record.name, key)
    if channel and state == "claimed" then
      channel:failed { reason = "closed" }
    elseif channel then
      channel:close()
    end
  end, CANCEL_S)
end

local function finish(made)
  if made.is_over then return false end
  made.is_over = true
  if made.is_single then tasks.end_channel(made.record, made.key) end
  return true
end

--- Cancels the task at its upstream, without waiting, unless it is over.
function tasks.cancel(made)
  if made.is_over then return end
  made.is_over = true
  host.job.begin(function(job_call)
    made.is_own = true                            -- a channel that is opened only for this task ends with it
    -- a task that a caller has begun is ended also after the caller's token has expired
    local of = made.identity
    made.identity = of and { owner = of.owner, subject = of.subject, id = of.id }
    ask(made, job_call, "tasks/cancel")
    if made.is_single then tasks.end_channel(made.record, made.key) end
  end, CANCEL_S)
end

-- -- questions of a task of a stateless upstream -----------------------------------------------------------------------

-- The answers to the questions of the task in the client's repeated request; nil if it has none.
local function brought(made, call)
  local kept = client_request.take(call, KEPT .. made.id)
  if not kept then return nil end
  local sent, found = client_request.sent_answers(call), {}
  for key, answer in pairs(kept.given or {}) do found[key] = answer end
  for _, key in ipairs(kept.keys) do
    local answer = client_request.take_answer(call, key)
    found[key] = sent[key] or answer
  end
  return found
end

local function update(made, call, answered, found)
  for key in pairs(found) do answered[key] = true end
  if next(found) ~= nil then ask(made, call, "tasks/update", json.object(found)) end
end

-- Puts open questions to the client of the call. Returns nil; or a failure.
local function put(made, call, requests, answered, ends_at)
  local wanted, why = repeated_requests.read({ inputRequests = requests, requestState = "" }, made.asks)
  if not wanted then return why end
  for key in pairs(wanted) do
    if answered[key] then wanted[key] = nil end
  end
  if next(wanted) == nil then return nil end
  local found = repeated_requests.refuse_some(made.record, call, made.asks, wanted)
  if next(wanted) ~= nil and era.is_stateless(call.revision) and not client_request.is_apart(call) then
    client_request.keep(call, KEPT .. made.id, { keys = json.array(sorted(wanted)), given = next(found) ~= nil and found or nil })
    client_request.unwind(call, wanted)
  end
  local answers = repeated_requests.answers_of(made.record, call, wanted, {}, ends_at)
  if not answers then return { outcome = "unknown", reason = "total" } end
  for key, answer in pairs(answers) do found[key] = answer end
  update(made, call, answered, found)
end

-- -- notifications of an upstream about its tasks ---------------------------------------------------------------------

local waiting = {}              -- name of an upstream, NUL, id of a task -> the watch of the task that this Lua state polls

bus.on("upstream task", function(place)
  local watch = waiting[place]
  if watch then watch.signal:set() end
end)

bus.on("missed", function()
  for _, watch in pairs(waiting) do watch.signal:set() end
end)

local function on_notification(event, params)
  local id = params.taskId
  if type(id) == "string" and #id <= MAX_ID_BYTES then host.bus.broadcast("upstream task", event.upstream .. "\0" .. id) end
end

observer.on("notifications/tasks/status", on_notification)
observer.on("notifications/tasks", on_notification)

local watch = {}
watch.__index = watch

function watch:__close()
  if waiting[self.place] == self then waiting[self.place] = nil end
  if self.is_subscribed then subscribe.task_ended(self.made.record, self.made.id) end
end

local function new_watch(made)
  local place = made.record.name .. "\0" .. made.id
  waiting[place] = setmetatable({ made = made, place = place, signal = host.task.event() }, watch)
  return waiting[place]
end

-- True if the upstream sends notifications about the task on subscriptions/listen. That request carries the gateway's
-- credential and goes to the program that reads lists: it gets none about a task that a caller's own token or another
-- program has made.
local function can_subscribe(made)
  return made.is_stateless and not made.identity and (made.key == channel_key.shared or made.record.kind == "url")
end

-- Waits for a notification about the task, at most `limit_s` and at least the interval between two polls.
function watch:wait(limit_s)
  local made, from = self.made, host.time.now()
  if limit_s >= SUBSCRIBE_S and not self.is_subscribed and can_subscribe(made) then
    self.is_subscribed = true
    subscribe.task(made.record, made.id)
  end
  self.signal:wait(limit_s)
  self.signal:clear()
  local left = math.min(LEAST_POLL_S, limit_s) - (host.time.now() - from)
  if left > 0 then host.time.sleep(left) end
end

-- -- waiting for the end -----------------------------------------------------------------------------------------------

-- Sets the status message of this gateway's task to that of the upstream's.
local function show(call, text)
  if type(text) == "string" and utf8.len(text) then call:status(text) end
end

-- The end of a task of a stateless upstream, as request.send gives it.
local function outcome_of(shown, answer)
  if shown.status == "completed" then
    if not is_object(shown.result) then return nil, unreadable end
    return { result = shown.result, server_info = answer.server_info }
  elseif shown.status == "failed" then
    if not is_object(shown.error) then return nil, unreadable end
    return nil, nil, shown.error
  end
  return nil, { outcome = "unknown", reason = "task_cancelled" }
end

-- Waits for the end of a task of an upstream with sessions: tasks/result returns it, and brings the task's questions
-- (TA-4). nil, nil, nil if the upstream sends nothing for a while: the task runs.
local function fetch(made, call, send, has_ended)
  local answer, failed, err = send(made.record, call, {
    method = "tasks/result", name = made.id, may_ask = true, may_repeat = true, channel = made, make = function() return { taskId = made.id } end,
  })
  if failed and failed.reason == "timeout" and not has_ended then return nil end
  return answer, failed, err
end

-- Polls the upstream's task once. Returns its result as request.send does; nothing while the task runs.
local function look(made, call, send, answered, ends_at)
  local answer, failed, err = ask(made, call, "tasks/get")
  if failed and (failed.reason == "expired" or failed.reason == "questions") then return nil, { outcome = "unknown", reason = failed.reason } end
  if failed then return nil, failed, nil, true end
  if err then
    local is_lost = err.code == errors.invalid_params or err.code == errors.unknown_method
    return nil, { outcome = "unknown", reason = is_lost and "task_lost" or "unreadable" }, nil, not is_lost
  end
  local shown = answer.result
  if type(shown.status) ~= "string" then return nil, unreadable end
  if made.is_shown then show(call, shown.statusMessage) end
  if made.is_stateless then
    if ended[shown.status] then return outcome_of(shown, answer) end
    local requests = shown.inputRequests
    if shown.status == "input_required" and is_object(requests) and next(requests) ~= nil then
      return nil, put(made, call, requests, answered, ends_at)
    end
  elseif shown.status == "cancelled" then
    return nil, { outcome = "unknown", reason = "task_cancelled" }
  elseif ended[shown.status] or shown.status == "input_required" then
    return fetch(made, call, send, ended[shown.status])
  end
end

local function wait_for_end(made, call, send, place)
  local record, answered = made.record, {}
  local ends_at = host.time.now() + (call.task and math.huge or record.total)
  local pause, silent_since = made.poll or FIRST_POLL_S, nil
  local found = brought(made, call)
  if found then update(made, call, answered, found) end
  if not made.is_stateless and repeated_requests.waits(call, place) then
    local answer, failed, err = fetch(made, call, send)
    if answer or failed or err then return answer, failed, err end
  end
  local is_first = ended[made.status] or found ~= nil
  local watched <close> = new_watch(made)
  while true do
    if not call.task then host.call.clear_deadline(call) end
    local left = ends_at - host.time.now()
    if left <= 0 then return nil, { outcome = "unknown", reason = "total" } end
    if not is_first then watched:wait(math.min(pause, left)) end
    is_first = false
    if not made.poll then pause = math.min(pause * 1.5, MAX_POLL_S) end
    local answer, failed, err, is_silent = look(made, call, send, answered, ends_at)
    if answer or err then return answer, failed, err end
    if failed and not is_silent then return nil, failed end
    silent_since = failed and (silent_since or host.time.now()) or nil
    if failed and host.time.now() - silent_since >= record.timeout then return nil, failed end
  end
end

--- Waits until an upstream's task has ended, and cancels it if the call ends before. `send` is forward.send; `place`:
--- the number of the next request within the call. Returns what request.send returns; what cannot be read, or is lost,
--- is a failure.
function tasks.await(made, call, send, place)
  local _ <close> = request.pause_deadline(call)
  local _ <close> = setmetatable({}, { __close = function(_, why)
    if not failure.is_input(why) then tasks.cancel(made) end          -- a repeated request continues with the task
  end })
  local answer, failed, err = wait_for_end(made, call, send, place)
  if answer or err or failed.reason == "task_cancelled" or failed.reason == "task_lost" then finish(made) end
  return answer, failed, err
end

return tasks
