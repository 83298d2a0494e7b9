-- One request to an upstream and what comes until its answer. The task that waits here answers the upstream's questions, and hands progress and log
-- messages to `listener`.

local errors = require "moonpool.runtime.rpc_error"
local json = require "moonpool.json"
local message = require "moonpool.upstream.message"

local exchange = {}

-- Answers a question of the upstream. No client can be asked yet, so every question but a ping is refused (X-36).
local function answer_question(pending, event)
  if event.method == "ping" then return pending:reply(message.answer(event.id, json.object {})) end
  pending:reply(message.answer(event.id, nil, errors.new("unknown_method", "this client declared no capability for '" .. tostring(event.method) .. "'")))
end

local function notified(listener, event)
  local method = event.method
  if not (listener and listener[method]) then return end
  local note = json.decode(event.bytes)
  local params = type(note) == "table" and note.params
  if type(params) == "table" then listener[method](params) end
end

-- Reads events until the answer.
local function wait(pending, listener)
  while true do
    local event, failure = pending:next()
    if not event then return nil, failure end
    if event.kind == "answer" then return event end
    if event.kind == "request" then
      answer_question(pending, event)
    else
      notified(listener, event)
    end
  end
end

--- Sends a request, and waits for its answer. `options`: headers, revision, timeout, total, is_modern, transport,
--- listener. Returns the event of the answer,
--- whose `result` or `error` is JSON; or nil and a failure.
function exchange.ask(channel, id, bytes, options)
  local pending <close>, failure = channel:send(bytes, {
    id = id, headers = options.headers, revision = options.revision, timeout = options.timeout, total = options.total,
    -- a stateless upstream over HTTP sees its stream end; another one gets a notification, but never about `initialize` (Y-1)
    cancel = not options.is_opening and (not options.is_modern or options.transport ~= "http") and message.cancelled(id) or nil,
  })
  if not pending then return nil, failure end
  return wait(pending, options.listener)
end

--- Sends a notification, and waits until the upstream has received it. True; or nil and a failure.
function exchange.tell(channel, bytes, options)
  local pending <close>, failure = channel:send(bytes, options)
  if not pending then return nil, failure end
  local event, why = pending:next()
  if not event then return nil, why end
  return true
end

--- The result of an answer as a table; or nil and the table of its error; or nil, nil and a failure if it is neither.
function exchange.read(event)
  if event.error then
    local err = json.faithful(event.error)
    if type(err) == "table" then return nil, err end
  elseif event.result then
    local result = json.faithful(event.result)
    if type(result) == "table" and debug.getmetatable(result) ~= json.array_mt then return result end
  end
  return nil, nil, { outcome = "unknown", reason = "unreadable" }
end

return exchange
