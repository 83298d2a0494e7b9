-- One request to an upstream, and its messages until the answer. The task that waits here answers the upstream's
-- questions, and passes progress and log messages to `listener`.

local ask = require "moonpool.upstream.ask"
local json = require "moonpool.json"
local message = require "moonpool.upstream.message"
local observer = require "moonpool.upstream.observer"

local exchange = {}

local function notified(options, event)
  local method, listener = event.method, options.listener
  if options.of then observer.note(options.of, event) end
  if not (listener and listener[method]) then return end
  local note = json.decode(event.bytes)
  local params = type(note) == "table" and note.params
  if type(params) == "table" then listener[method](params) end
end

-- Reads events until the answer. No client can be asked, so questions are refused.
local function wait(pending, options)
  while true do
    local event, failure = pending:next()
    if not event then return nil, failure end
    if event.kind == "answer" then return event end
    if event.kind == "request" then
      if options.asks_too_much and options.asks_too_much() then return nil, { outcome = "unknown", reason = "questions" } end
      ask.decline(pending, event, options.class or "none")
    else
      notified(options, event)
    end
  end
end

-- Reads events until the answer, while questions go to the client and answers come back.
local function wait_with_questions(pending, options)
  local asker <close> = options.asker
  asker:attach(pending)
  while true do
    local event, failure = pending:take()
    if failure then return nil, failure end
    if not event then
      asker:step()
      asker:wait()
    elseif event.kind == "answer" then
      asker:finish()
      return event
    elseif event.kind == "request" then
      asker:take(event)
    elseif not asker:note(event) then
      notified(options, event)
    end
  end
end

--- Sends a request, and waits for its answer. `options`: headers, revision, timeout, total, is_modern, transport,
--- is_opening, is_retry, is_trial, listener; of (see observer.note); asker (see upstream/ask.lua), or class, that of
--- the channel; asks_too_much() says of each question without an asker whether it is one too many; entry (see
--- upstream/repeated_requests.lua). Returns the event of the answer, whose `result` or `error` is JSON; or nil and a
--- failure.
function exchange.ask(channel, id, bytes, options)
  local asker = options.asker
  local pending <close>, failure = channel:send(bytes, {
    id = id, headers = options.headers, revision = options.revision, timeout = options.timeout, total = options.total,
    is_retry = options.is_retry, is_trial = options.is_trial, is_opening = options.is_opening, takes_questions = asker ~= nil, signal = asker and asker.signal,
    -- a stateless upstream over HTTP sees its stream end; any other upstream gets the notification `cancelled`, but never
    -- about `initialize` (Y-1)
    cancel = not options.is_opening and (not options.is_modern or options.transport ~= "http") and message.cancelled(id) or nil,
  })
  if not pending then return nil, failure end
  local entry = options.entry
  if entry then entry.pending, entry.id, entry.asker = pending, id, asker end
  if asker then asker.entry, asker.turns_at = entry, options.turns_at end
  local event
  event, failure = (asker and wait_with_questions or wait)(pending, options)
  if entry then entry.pending = nil end
  return event, failure
end

--- Continues a pending exchange that the retry of a client has resumed. `options`: listener, of, asker, class. Returns
--- what exchange.ask returns.
function exchange.resume(pending, options)
  if options.asker then return wait_with_questions(pending, options) end
  return wait(pending, options)
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
    local err = json.preserving(event.error)
    if type(err) == "table" then return nil, err end
  elseif event.result then
    local result = json.preserving(event.result)
    if type(result) == "table" and debug.getmetatable(result) ~= json.array_mt then return result end
  end
  return nil, nil, { outcome = "unknown", reason = "unreadable" }
end

return exchange
