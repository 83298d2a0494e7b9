-- One request to an upstream, from the choice of the channel to the answer, with the repetitions that are safe: a
-- request is sent again only if the upstream certainly did not run it, or if `may_repeat` says that running it twice
-- does no harm.
--   spec   { method, key, options, build = function(server info, id) -> params, rows = function() -> rows of param headers, call?, listener?, may_repeat,
--            level?, is_own?, asker? = function(server_info) -> the asker of its exchange, on_stale? = function() reads the lists again }

local auth = require "moonpool.upstream.auth"
local errors = require "moonpool.runtime.rpc_error"
local exchange = require "moonpool.upstream.exchange"
local hops = require "moonpool.upstream.hops"
local host = require "moonpool.host"
local json = require "moonpool.json"
local log_level = require "moonpool.upstream.log_level"
local message = require "moonpool.upstream.message"
local open = require "moonpool.upstream.open"

local request = {}

local MAX_RETRY_AFTER_S = 30        -- seconds that a repeatable request waits where an upstream asks for it

-- Codes with which servers say that they do not know a session. Servers use them for other errors too, so their words
-- decide.
local session_codes = { [errors.too_often] = true, [errors.too_often - 1] = true, [errors.invalid_request] = true }

-- Whole messages by which servers refuse every request that comes before `initialize`, with any code: a tool's error has
-- other words.
local unready = { ["received request before initialization was complete"] = true, ["server not initialized"] = true }

-- Whole messages about the session. With a code that neither JSON-RPC nor MCP has, such an error may be that of the server or
-- of the tool that was called: the session is opened anew, but what may have run is not sent again.
local sessionless = {
  ["session not found"] = true, ["session id not found"] = true, ["invalid session id"] = true, ["no valid session id provided"] = true,
  ["unknown session id"] = true,
}

-- The message of an error in lower case, without "Bad request:" before it and signs after it; "" for one that is no error
-- of JSON-RPC.
local function words_of(err)
  if type(err.message) ~= "string" or math.type(err.code) ~= "integer" then return "" end
  return (err.message:lower():gsub("^bad request: ", ""):gsub("[^%l]+$", ""))
end

-- True for an error by which the upstream perhaps no longer knows the channel's session.
local function may_be_lost(server_info, err)
  return server_info.session ~= nil and sessionless[words_of(err)] == true and not errors.is_reserved(err.code)
end

local function says_session_is_lost(text)
  if type(text) ~= "string" then return false end
  text = text:lower()
  if text:find "not initialized" or text:find "uninitialized" or text:find "not yet initialized" then return true end
  if not text:find "session" then return false end
  for _, word in ipairs { "not found", "invalid", "no valid", "expired", "unknown", "terminated", "does not exist", "missing", "required", "closed" } do
    if text:find(word, 1, true) then return true end
  end
  return false
end

local function error_in(body)
  local value = type(body) == "string" and json.decode(body)
  return type(value) == "table" and type(value.error) == "table" and value.error or nil
end

-- True if the upstream no longer knows the channel's session, so that it did not run the request (X-8).
local function is_lost(server_info, event, failure, err)
  if server_info.is_modern then return false end
  if failure then
    if not server_info.session or (failure.reason ~= "status" and failure.reason ~= "unreadable") then return false end
    if failure.status == 404 then return true end
    local told = error_in(failure.body)
    if told then return unready[words_of(told)] == true or session_codes[told.code] == true and says_session_is_lost(told.message) end
    return failure.status == 400 and says_session_is_lost(failure.body)
  end
  if not err then return false end
  if server_info.session and event.status == 404 then return true end
  if unready[words_of(err)] then return true end
  return session_codes[err.code] == true and says_session_is_lost(err.message) and (server_info.session ~= nil or err.message:lower():find "initialized" ~= nil)
end

-- Begins the span of a request, and lets its trace go on to the upstream; nil where the call is not recorded.
local function begin_span(record, server_info, spec, params)
  local named = params and type(params.name) == "string" and params.name or nil
  local span = host.trace.begin(spec.method, named, true)
  if not span then return nil end
  host.trace.set(span, "mcp.method.name", spec.method)
  host.trace.set(span, "moonpool.upstream", record.name)
  if server_info.revision then host.trace.set(span, "mcp.protocol.version", server_info.revision) end
  if named then host.trace.set(span, spec.method == "tools/call" and "gen_ai.tool.name" or "gen_ai.prompt.name", named) end
  local parent, state = host.trace.context(span)
  if parent and params then
    params._meta = params._meta or {}
    params._meta.traceparent, params._meta.tracestate = parent, state
  end
  return span
end

local function send_once(record, channel, server_info, spec, is_retry)
  local id = channel:next_id()
  local params = spec.build(server_info, id)
  local span <close> = spec.call and not channel.is_begun and begin_span(record, server_info, spec, params) or nil
  local headers = server_info.is_modern and message.headers(spec.method, params or {}, spec.rows and spec.rows()) or {}
  if spec.call then hops.add_header(headers, spec.call) end
  if spec.call then message.add_passed(headers, record, spec.call, params and params._meta) end
  if spec.headers then table.move(spec.headers, 1, #spec.headers, #headers + 1, headers) end
  if spec.entry then spec.entry.revision = server_info.revision end
  local event, failed = exchange.ask(channel, id, message.request(id, spec.method, params), {
    headers = headers, is_modern = server_info.is_modern, transport = server_info.transport, is_retry = is_retry,
    timeout = spec.timeout, total = spec.total, class = server_info.class, asker = spec.asker and spec.asker(server_info),
    listener = spec.listener and spec.listener(id), of = { upstream = record.name, key = spec.key },
    entry = spec.entry, turns_at = spec.turns_at, asks_too_much = spec.asks_too_much,
  })
  if span and (failed or event.error) then host.trace.fail(span, failed and failed.reason or "_OTHER") end
  return event, failed
end

local begun = setmetatable({}, { __mode = "k" })        -- call -> { channel, exchange, id }: what C has sent

--- The first attempt of the next request of a call was sent already: `exchange_of` brings its answer.
function request.go_on(call, channel, exchange_of, id) begun[call] = { channel = channel, exchange = exchange_of, id = id } end

-- The channel on which the first attempt for `spec` was sent, and its server info; nil if it was not. The channel's first
-- send() gives that exchange.
local function begun_channel(spec)
  local first = spec.call and begun[spec.call]
  if not first then return nil end
  begun[spec.call] = nil
  spec.level = nil                                         -- a call that C has sent has none
  local channel, pending = first.channel, first.exchange
  return {
    is_begun = true,                                       -- C has begun its span, too
    next_id = function() return pending and first.id or channel:next_id() end,
    send = function(_, bytes, options)
      local given = pending
      pending = nil
      if given and options.signal then given:wake(options.signal) end
      if given then return given end
      return channel:send(bytes, options)
    end,
    lost = function(_, serial) return channel:lost(serial) end,
  }, channel:server_info()
end

-- The circuit is open: one harmless request decides whether it closes.
local function try_circuit(channel, server_info)
  local id = channel:next_id()
  local params = { _meta = message.meta(server_info) }
  local method = server_info.is_modern and "server/discover" or "ping"
  local event, failure = exchange.ask(channel, id, message.request(id, method, server_info.is_modern and params or nil), {
    headers = server_info.is_modern and message.headers(method, params) or nil, is_modern = server_info.is_modern, transport = server_info.transport,
  })
  -- A program or event stream that has not answered the probe would not answer the next one either: the channel is lost,
  -- and the next attempt opens another.
  if failure and failure.reason == "timeout" and server_info.transport ~= "http" then channel:lost(server_info.serial) end
  return event, failure
end

--- The channel of an upstream with this key, open, and its server info, for a task that sends several requests; or nil and
--- a failure. If the circuit is open, one harmless request has closed it. `options`: those of open.channel.
function request.channel(record, key, options)
  for _ = 1, 2 do
    local channel, server_info, is_probe = open.channel(record, key, options)
    if not channel or not is_probe then return channel, server_info end
    local event, failure = try_circuit(channel, server_info)
    local _, err
    if event then _, err = exchange.read(event) end
    if not is_lost(server_info, event, failure, err) then
      if event then return channel, server_info end
      failure.outcome = "not_run"
      return nil, failure
    end
    channel:lost(server_info.serial)
  end
  return nil, { outcome = "not_run", reason = "lost" }
end

-- Decides after a 401, which runs nothing: the request is sent once more, with another token.
local function renew(record, spec, tries)
  local token, key = spec.options.token, spec.options.token_key
  -- no token here: C has sent the request on the channel with the channel's token, which may be an old one
  local cause = token and "token" or "sent_before"
  if tries[cause] then
    if token then auth.bar(record, key, spec.options.identity) end
    return "done"
  end
  tries[cause] = true
  if token then auth.drop(key, token) end
  return "again"
end

-- What to do after an attempt: "again", or "done". `tries` counts the causes for which the request was sent again.
local function judge(record, channel, server_info, spec, tries, event, failure, err)
  local function once(cause)
    if tries[cause] then return "done" end
    tries[cause] = true
    return "again"
  end
  if record.auth and failure and failure.status == 401 then return renew(record, spec, tries) end
  if is_lost(server_info, event, failure, err) then
    channel:lost(server_info.serial)
    tries.is_new = true
    return once "lost"
  end
  if err and not failure and not tries.doubt and may_be_lost(server_info, err) then
    channel:lost(server_info.serial)
    tries.doubt, tries.is_new = true, true
    return spec.may_repeat and "again" or "done"
  end
  if failure then
    if failure.outcome == "not_run" then return (failure.reason == "closed" or failure.reason == "lost") and once "closed" or "done" end
    local wait = failure.reason == "status" and (failure.status == 429 or failure.status == 503) and failure.retry_after
    if not spec.may_repeat or record.retry == "never" or failure.reason == "questions" then return "done" end
    if wait and wait <= MAX_RETRY_AFTER_S and not tries.waited then
      host.time.sleep(wait)
      return once "waited"
    end
    return once "unknown"
  end
  if err and server_info.is_modern and err.code == errors.header_mismatch and spec.on_stale and not tries.headers then
    spec.on_stale()
    return once "headers"
  end
  if err and err.code == errors.unsupported_version and not tries.version then
    open.forget(record)
    channel:lost(server_info.serial)
    return once "version"
  end
  return "done"
end

-- Changes the failure to "not_run" where the upstream certainly ran nothing: a refused credential, or a session that
-- was lost twice.
local function sharpened(record, server_info, event, failure, err)
  if is_lost(server_info, event, failure, err) then return { outcome = "not_run", reason = "lost" } end
  if failure and failure.reason == "status" then
    if failure.status == 508 then return { outcome = "not_run", reason = "loop", status = failure.status } end
    if failure.status == 401 or failure.status == 403 then
      return { outcome = "not_run", reason = auth.is_personal(record) and "denied" or "barred", status = failure.status }
    end
    if failure.status == 429 or failure.status == 503 and failure.retry_after then
      return { outcome = "not_run", reason = "busy", status = failure.status, retry_after = failure.retry_after }
    end
  end
  return failure
end

-- The failure of a request: if an earlier attempt may have run, so may the request, though its last attempt did not.
local function failure_of(failure, may_have_run)
  if not may_have_run or failure.outcome ~= "not_run" then return failure end
  local made = {}
  for name, value in pairs(failure) do made[name] = value end
  made.outcome = "unknown"
  return made
end

--- Sends the request of `spec`. Returns { result, text, server_info, is_new }: the result as a table and as the upstream's
--- text, the server info, and true if the channel was opened again because the old one was lost; or nil and a failure; or nil,
--- nil and the upstream's error.
function request.send(record, spec)
  local tries, may_have_run = {}, false
  while true do
    local channel, server_info, is_probe = begun_channel(spec)
    if not channel then channel, server_info, is_probe = open.channel(record, spec.key, spec.options) end
    if not channel then return nil, failure_of(server_info, may_have_run) end
    local event, failure, _
    if is_probe then
      _, failure = try_circuit(channel, server_info)
    end
    local result, err, unreadable
    if not failure then
      if spec.level then log_level.ensure(record, channel, server_info, spec.level, spec.is_own) end
      event, failure = send_once(record, channel, server_info, spec, next(tries) ~= nil)
      if event then result, err, unreadable = exchange.read(event) end
      failure = failure or unreadable
    else
      failure.outcome = "not_run"
    end
    if result then return { result = result, text = event.result, server_info = server_info, is_new = tries.is_new } end
    local is_done = judge(record, channel, server_info, spec, tries, event, failure, err) == "done"
    failure = sharpened(record, server_info, event, failure, err)
    if is_done and failure then return nil, failure_of(failure, may_have_run) end
    if is_done then return nil, nil, err end
    may_have_run = may_have_run or failure ~= nil and failure.outcome ~= "not_run"
  end
end

--- Suspends the time limit of the call until the result is closed: while the call waits for an upstream, the limits of
--- that upstream count. The time limit of an MCP task is its lifetime, which is not suspended.
function request.pause_deadline(call)
  if call.task then return nil end
  host.call.clear_deadline(call)
  return setmetatable({}, { __close = function()
    if not call.cancelled then pcall(host.call.set_deadline, call, host.limits.call_seconds) end
  end })
end

return request
