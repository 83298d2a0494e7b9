-- Opens channels: finds out which revision and transport an upstream speaks (PB-1 to PB-10), and does what the revision
-- demands before the first request. What was found out holds for this Lua state; every new one asks again, at most once
-- for each upstream.
--   server info   { revision, is_modern, transport, class?, session?, capabilities, server?,
--            instructions? }: what a channel has agreed with the upstream

local auth = require "moonpool.upstream.auth"
local class = require "moonpool.upstream.class"
local era = require "moonpool.protocol.era"
local errors = require "moonpool.runtime.rpc_error"
local exchange = require "moonpool.upstream.exchange"
local host = require "moonpool.host"
local json = require "moonpool.json"
local message = require "moonpool.upstream.message"

local open = {}

-- seconds for the answer to server/discover of a program and of a server over HTTP: older ones may never give it (PB-1)
local PROBE_S <const> = { command = 5, url = 10 }
local SILENT_KEPT_S = 3600  -- seconds for which the store remembers that an upstream has not answered server/discover, or opened no session
local SESSION_RETRY_S = 60  -- the same, where `initialize` got the status of a server with trouble

local known = {}            -- name of an upstream -> "modern", "legacy" or "sse"

local function silent_key(record) return "upstream:silent:" .. host.upstream.instance .. ":" .. record.name end

local function sessionless_key(record) return "upstream:sessionless:" .. host.upstream.instance .. ":" .. record.name end

--- True if an upstream of a stateless revision perhaps speaks an older one, too: it has not refused `initialize` lately.
function open.may_have_sessions(record) return record.revision == "auto" and host.store.get(sessionless_key(record)) == nil end

--- Forgets the facts about an upstream that opening a channel has found: its answers no longer match them.
function open.forget(record)
  known[record.name] = nil
  host.store.delete(silent_key(record))
  host.store.delete(sessionless_key(record))
end

local function listed(list, test)
  if type(list) ~= "table" then return nil end
  for _, date in ipairs(era.dates) do
    for _, offered in ipairs(list) do
      if offered == date and test(date) then return date end
    end
  end
end

local function text_or_nil(value) return type(value) == "string" and value or nil end
local function table_or_nil(value) return type(value) == "table" and value or nil end

-- -- server/discover -----------------------------------------------------------------------------------------------------

local function info_of_discover(revision, result, transport)
  local meta = table_or_nil(result._meta) or {}
  return {
    revision = revision, is_modern = true, transport = transport, capabilities = table_or_nil(result.capabilities) or {},
    server = table_or_nil(meta["io.modelcontextprotocol/serverInfo"]), instructions = text_or_nil(result.instructions),
  }
end

-- The error in the body of a refused request, if it is one of JSON-RPC.
local function error_in(body)
  local value = type(body) == "string" and json.decode(body)
  local err = type(value) == "table" and value.error
  return type(err) == "table" and math.type(err.code) == "integer" and err or nil
end

-- The kind of the upstream's revision, by an error: "modern" and perhaps the server info, or "legacy".
local function judge_error(err, revision, transport)
  if err.code == errors.unsupported_version then
    local data = table_or_nil(err.data) or {}
    local shared = listed(data.supported, era.is_stateless)
    return shared and "modern" or "legacy", shared
  end
  if err.code == errors.header_mismatch or err.code == errors.missing_capability then
    return "modern", nil, info_of_discover(revision, { capabilities = { tools = {}, prompts = {}, resources = {}, completions = {} } }, transport)
  end
  return "legacy"
end

-- Failures of a request that the upstream received, and whose answer did not come or cannot be read.
local no_answer = { timeout = true, closed = true, unreadable = true, too_large = true }

-- A failure of a request that opens a channel, whose limit is `open`.
local function of_opening(record, failure)
  if failure.reason == "timeout" then failure.after = record.open end
  return failure
end

-- True for failures that say nothing about the revision (PB-7).
local function is_undecided(failure)
  if failure.reason == "status" then
    local status = failure.status or 0
    return status == 401 or status == 403 or status == 429 or status >= 500 or (status >= 300 and status < 400)
  end
  return not no_answer[failure.reason]
end

-- The verdict "modern", "legacy", or "silent" for an upstream that gives no answer, if the revision `is_open`; and the
-- server info. nil and a failure: it is not known. `ended_by_probe` in it: the program has ended because of the request.
local function discover(record, channel, revision, may_repeat, is_open)
  local transport = record.kind == "url" and "http" or "stdio"
  local params = { _meta = message.meta({ is_modern = true, revision = revision }) }
  local id = channel:next_id()
  local event, failure = exchange.ask(channel, id, message.request(id, "server/discover", params), {
    headers = message.headers("server/discover", params), revision = revision,
    timeout = is_open and math.min(PROBE_S[record.kind], record.open) or record.open,
    is_modern = true, transport = transport, is_trial = is_open,
  })
  local result, err
  if event then
    result, err = exchange.read(event)
  elseif is_undecided(failure) then
    return nil, failure
  elseif failure.reason ~= "status" and failure.reason ~= "unreadable" or record.kind == "command" then
    if not is_open then return nil, of_opening(record, failure) end
    if record.kind == "url" or failure.reason == "timeout" then return "silent" end
    failure.ended_by_probe = true
    return nil, failure
  else
    err = error_in(failure.body)
  end
  if result then
    local shared = listed(result.supportedVersions, era.is_stateless)
    if shared then return "modern", info_of_discover(shared, result, transport) end
    return "legacy"
  end
  if not err then return "legacy" end
  local verdict, other, server_info = judge_error(err, revision, transport)
  if verdict == "modern" and not server_info then
    if may_repeat and other ~= revision then return discover(record, channel, other, false, is_open) end
    return nil, { outcome = "not_run", reason = "revision", says = "it answers server/discover with no revision that is known" }
  end
  return verdict, server_info
end

-- -- initialize ----------------------------------------------------------------------------------------------------------

-- True if an answer to `initialize` means that the address may be one of HTTP+SSE (PB-6).
local function may_be_sse(record, failure)
  local status = failure and failure.reason == "status" and failure.status or 0
  return record.kind == "url" and status >= 400 and status < 500 and status ~= 401 and status ~= 403 and status ~= 429
end

-- The newest revision that both sides have, by an error that refuses `date`: its data lists those of the server, or its
-- message names them. nil: there is none, or the error is about something else.
local function shared_date(err, date)
  local data = table_or_nil(err.data) or {}
  local offered = table_or_nil(data.supported) or table_or_nil(data.supportedVersions)
  if not offered then
    offered = {}
    for named in tostring(err.message):gmatch "%d%d%d%d%-%d%d%-%d%d" do offered[#offered + 1] = named end
  end
  return listed(offered, function(one) return one ~= date and era.is_stateful(one) end)
end

-- Sends `initialize` with a revision. The event of its answer, and the result; or nil, a failure, and the error in the
-- answer.
local function ask_initialize(record, channel, transport, class_text, tells_roots, is_trial, date)
  local id = channel:next_id()
  local params = {
    protocolVersion = date, capabilities = record.capabilities or class.capabilities(class_text, tells_roots), clientInfo = message.client_info,
  }
  local event, failure = exchange.ask(channel, id, message.request(id, "initialize", params), {
    transport = transport, is_opening = true, is_trial = is_trial, timeout = record.open,
  })
  if not event then return nil, of_opening(record, failure), error_in(failure.body) end
  local result, err, unreadable = exchange.read(event)
  if unreadable then return nil, unreadable end
  if err then return nil, { outcome = "not_run", reason = "revision", says = text_or_nil(err.message) }, err end
  return event, result
end

local function initialize(record, channel, transport, class_text, tells_roots, is_trial)
  local date = record.date or era.newest_stateful
  local event, result, err = ask_initialize(record, channel, transport, class_text, tells_roots, is_trial, date)
  local shared = err and shared_date(err, date)
  if shared then event, result, err = ask_initialize(record, channel, transport, class_text, tells_roots, is_trial, shared) end
  if err and err.code == errors.unsupported_version then open.forget(record) end
  if not event then return nil, result end
  local revision = result.protocolVersion
  if not era.is_stateful(revision) then
    return nil, { outcome = "not_run", reason = "revision", says = "it answers initialize with the unknown revision " .. tostring(revision):sub(1, 40) }
  end
  local server_info = {
    revision = revision, is_modern = false, transport = transport, class = class_text, session = event.session,
    capabilities = table_or_nil(result.capabilities) or {}, server = table_or_nil(result.serverInfo), instructions = text_or_nil(result.instructions),
  }
  local sent, why = exchange.tell(channel, message.notification "notifications/initialized", {
    revision = era.facts(revision).has_version_header and revision or nil, session = server_info.session, timeout = record.open,
  })
  if not sent then return nil, why end
  return server_info
end

local function legacy(record, channel, mode, class_text, tells_roots)
  if record.kind == "command" then return initialize(record, channel, "stdio", class_text, tells_roots) end
  if mode ~= "sse" then
    local server_info, failure = initialize(record, channel, "http", class_text, tells_roots, mode ~= "legacy")
    if server_info or mode == "legacy" or not may_be_sse(record, failure) then return server_info, failure end
    if not channel:use "sse" then return nil, failure end
  elseif not channel:use "sse" then
    return nil, { outcome = "not_run", reason = "closed" }
  end
  return initialize(record, channel, "sse", class_text, tells_roots)
end

-- Opens a session at an upstream that speaks a stateless revision, too. Many such servers name no older revision in their
-- answer to server/discover, and programs take no `initialize` after that, so `initialize` comes first. Returns the server
-- info; or nil and a failure, whose reason is "sessionless" where the upstream is to be spoken to in the stateless
-- revision. Without a session id over HTTP a client's answer would reach no question.
local function open_session(record, channel, class_text, tells_roots)
  if open.may_have_sessions(record) then
    local server_info, failure = initialize(record, channel, record.kind == "url" and "http" or "stdio", class_text, tells_roots, true)
    if server_info and (server_info.transport ~= "http" or server_info.session) then return server_info end
    local is_open = failure and record.kind == "url" and failure.reason ~= "revision" and failure.reason ~= "unreadable"
      and (no_answer[failure.reason] or is_undecided(failure))
    if is_open and (failure.status or 0) < 500 then return nil, failure end
    host.store.set(sessionless_key(record), "", is_open and SESSION_RETRY_S or SILENT_KEPT_S)
  end
  return nil, { outcome = "not_run", reason = "sessionless" }
end

-- -- the whole -----------------------------------------------------------------------------------------------------------

-- Finds out the revision of an upstream if need be, and agrees on it. Returns the server info; or nil and a failure.
local function agree(record, channel, class_text, tells_roots, wants_session)
  if wants_session then return open_session(record, channel, class_text, tells_roots) end
  local mode = record.revision ~= "auto" and record.revision or known[record.name]
  local is_silent = mode == nil and host.store.get(silent_key(record)) ~= nil
  local verdict, server_info, failure
  if not is_silent and (mode == nil or mode == "modern") then
    verdict, server_info = discover(record, channel, era.newest_stateless, true, mode == nil)
    if not verdict then
      -- the program is started again, and gets `initialize` first
      if server_info.ended_by_probe then host.store.set(silent_key(record), "", SILENT_KEPT_S) end
      return nil, server_info
    end
    if verdict == "modern" then
      known[record.name] = "modern"
      return server_info
    end
    if record.revision == "modern" then
      return nil, { outcome = "not_run", reason = "revision", says = "it does not answer server/discover, and its entry has `revision: modern`" }
    end
  end
  server_info, failure = legacy(record, channel, mode, class_text, tells_roots)
  if server_info then
    known[record.name] = server_info.transport == "sse" and "sse" or "legacy"
    if verdict == "silent" then host.store.set(silent_key(record), "", SILENT_KEPT_S) end
  elseif is_silent and failure.reason ~= "revision" then
    open.forget(record)
  elseif is_silent or verdict == "silent" and failure.reason == "revision" then
    -- an upstream that refuses `initialize` was only slow to start, or is another one now
    open.forget(record)
    verdict, server_info = discover(record, channel, era.newest_stateless, true)
    if verdict == "modern" then
      known[record.name] = "modern"
      return server_info
    end
    return nil, failure
  end
  return server_info, failure
end

-- Opens the GET stream of a session, on which an upstream sends pings, questions, and notifications that belong to no request,
-- whatever its client can be asked. Many have none: they answer 405.
local function open_stream(channel, server_info)
  if server_info.is_modern or server_info.transport ~= "http" or not server_info.session then return end
  local state = channel:listen { revision = era.facts(server_info.revision).has_version_header and server_info.revision or nil }
  server_info.has_stream = state ~= "none"
end

--- Opens a channel that this task has claimed. Returns the server info; or nil and a failure.
--- `tells_roots`: the channel has one client alone, which notifies when its roots change. `wants_session`: an upstream that
--- speaks a stateless and an older revision is spoken to in the older one; the failure has the reason "sessionless" if it speaks none.
function open.establish(record, channel, class_text, tells_roots, wants_session)
  local server_info, failure = agree(record, channel, class_text, tells_roots, wants_session)
  if server_info then open_stream(channel, server_info) end
  return server_info, failure
end

local LOOP_STATUS <const> = 508        -- status of a gateway for a request that comes back to it

-- A refused credential bars the upstream until the credential is another one.
local function barred(failure)
  if failure.reason == "status" and failure.status == LOOP_STATUS then return { outcome = "not_run", reason = "loop", status = failure.status } end
  if failure.reason == "status" and (failure.status == 401 or failure.status == 403) then
    return { outcome = "not_run", reason = "barred", status = failure.status }
  end
  return failure
end

-- Opens a channel with a token; one that the upstream refuses is replaced once.
local function establish_as(record, channel, token, token_key, options)
  if token then channel:authorize(token) end
  local class_text, identity = options.class or class.none, options.identity
  local server_info, failure = open.establish(record, channel, class_text, options.tells_roots, options.wants_session)
  if server_info or not token or failure.status ~= 401 then return server_info, failure, token end
  auth.drop(token_key, token)
  local fresh, why = auth.token(record, identity)
  if not fresh then return nil, why end
  channel:authorize(fresh)
  server_info, failure = open.establish(record, channel, class_text, options.tells_roots, options.wants_session)
  if not server_info and failure.status == 401 then auth.bar(record, token_key, identity) end
  return server_info, failure, fresh
end

-- Returns the failure of a channel that needs a token and got none. If the server has refused the gateway's credential,
-- the upstream's state becomes "barred", so that people see it.
local function refuse_without(record, key, options, failure)
  if failure.reason ~= "barred" then return nil, failure end
  local channel, state = host.upstream.channel(record.name, auth.is_personal(record) and "token" or key, options)
  if channel and state == "claimed" then
    channel:failed(failure)
  elseif channel then
    channel:close()
  end
  return nil, failure
end

--- Called when a channel was opened. Replaced by federation/notifications.lua.
function open.on_opened(_, _) end

--- The channel of an upstream with this key, open, its server info, and true if the circuit is open and one harmless request
--- is to be tried first; or nil and a failure. `options` are those of host.upstream.channel; `is_open`: none is
--- opened, a channel that is not open is a failure; `class`: what the upstream is told that its client can be asked;
--- `identity`: what auth.identity gave for the call; `tells_roots` and `wants_session`: see open.establish.
--- Sets options.token and options.token_key to the token that the channel sends, and its key.
function open.channel(record, key, options)
  if options.is_open then
    local there = host.upstream.open_channel(record.name, key)
    if not there then return nil, { outcome = "not_run", reason = "closed" } end
    return there, there:server_info(), false
  end
  local token, token_key = auth.token(record, options.identity)
  if record.auth and not token then return refuse_without(record, key, options, token_key) end
  local channel, state = host.upstream.channel(record.name, key, options)
  if not channel then return nil, state end
  if token and state ~= "claimed" then channel:authorize(token) end
  if state == "claimed" then
    local server_info, failure
    server_info, failure, token = establish_as(record, channel, token, token_key, options)
    if not server_info and (failure.reason == "sessionless" or failure.ended_by_probe) then
      channel:close()
      if failure.ended_by_probe then return open.channel(record, key, options) end
      return nil, failure
    elseif not server_info then
      failure = barred(failure)
      failure.outcome = "not_run"           -- whatever became of the opening, the request itself was not sent
      failure.why = failure.why or failure.says
      channel:failed(failure)
      if failure.reason == "barred" and options.identity then failure.reason = "denied" end
      return nil, failure
    end
    if not channel:opened(server_info) then return nil, { outcome = "not_run", reason = "closed" } end
    open.on_opened(record, key)
  end
  options.token, options.token_key = token, token_key
  return channel, channel:server_info(), state == "probe"
end

return open
