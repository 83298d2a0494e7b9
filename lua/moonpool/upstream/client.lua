-- The method "moonpool/client", for commands of the command line that are clients of a server: they start a gateway
-- that has this server as its only upstream, and send requests to it one at a time. The gateway opens the channel, and
-- passes on what the server says as it says it.
--   { open = { revision?, capabilities } }          answers { server_info } or { failure }
--   { method, params, has_progress? }                answers { result }, { error } or { failure }. Notifications of the server, and its questions, go to
--                                                   the command meanwhile. `has_progress`: asks for progress and log messages

local config = require "moonpool.upstream.config"
local era = require "moonpool.protocol.era"
local errors = require "moonpool.runtime.rpc_error"
local host = require "moonpool.host"
local json = require "moonpool.json"
local message = require "moonpool.upstream.message"
local open = require "moonpool.upstream.open"
local param_headers = require "moonpool.protocol.param_headers"

local client = {}

local OLDEST <const> = era.dates[#era.dates]
local CAPABILITIES <const> = "io.modelcontextprotocol/clientCapabilities"

local current            -- { record, key }: the channel of this process
local rows = {}          -- name of a tool -> the arguments that headers repeat

-- -- opening ---------------------------------------------------------------------------------------------------------

-- The attempts to open a channel in the order in which they are made: how the server is called, and the revision.
local function attempts_of(revision)
  if not revision then return { { "auto" } } end
  if era.is_stateless(revision) then return { { "modern" } } end
  if revision == OLDEST then return { { "sse", revision }, { "legacy", revision } } end
  return { { "legacy", revision } }
end

-- The channel of this process, open, and its server info; or nil and a failure.
local channel_of
function channel_of(one)
  local channel, state = host.upstream.channel(one.record.name, one.key, {})
  if not channel then return nil, state end
  if state == "claimed" then
    local server_info, failure = open.establish(one.record, channel)
    if not server_info then
      channel:failed(failure)
      if failure.ended_by_probe then return channel_of(one) end
      return nil, failure
    end
    if not channel:opened(server_info) then return nil, { outcome = "not_run", reason = "closed" } end
  end
  return channel, channel:server_info()
end

-- The members of a failure that the command uses.
local function facts_of(failure)
  return {
    reason = failure.reason, why = failure.why, status = failure.status, body = failure.body, says = failure.says,
  }
end

-- True if the server has no event stream at this address, so that it may accept messages by POST.
local function has_no_stream(failure)
  local status = failure.reason == "status" and failure.status or 500
  return status < 500 and status ~= 401 and status ~= 403 and status ~= 429
end

local function start(params)
  local base = config.list[1]
  local failed
  for i, attempt in ipairs(attempts_of(params.revision)) do
    local record = setmetatable({ revision = attempt[1], date = attempt[2], capabilities = json.object(params.capabilities) }, { __index = base })
    local one = { record = record, key = "client " .. i }
    local channel, server_info = channel_of(one)
    if channel then
      current = one
      return { server_info = { revision = server_info.revision, is_modern = server_info.is_modern, transport = server_info.transport,
        capabilities = json.object(server_info.capabilities), server = server_info.server } }
    end
    failed = failed or server_info
    if not has_no_stream(server_info) then break end
  end
  return { failure = facts_of(failed) }
end

-- -- requests --------------------------------------------------------------------------------------------------------

-- Answers a question of the server: the command asks its user.
local function answer_question(call, pending, event)
  if event.method == "ping" then return pending:reply(message.answer(event.id, json.object {})) end
  local question = json.decode(event.bytes)
  if event.method ~= "elicitation/create" or type(question) ~= "table" or current.record.capabilities.elicitation == nil then
    return pending:reply(message.answer(event.id, nil, errors.new("unknown_method", "moonpool call does not support this method")))
  end
  local answer, refused = host.call.ask(call, event.method, type(question.params) == "table" and json.object(question.params) or json.object {})
  if answer then return pending:reply(message.answer(event.id, answer)) end
  pending:reply(message.answer(event.id, nil, refused or errors.new("internal", "the user cannot be asked")))
end

local function pass_on(call, event)
  local note = json.decode(event.bytes)
  if type(note) == "table" then call:send { jsonrpc = "2.0", method = event.method, params = note.params } end
end

-- Stores, for each tool of a list, the arguments that headers must repeat.
local function read_rows(text)
  local result = json.decode(text)
  for _, tool in ipairs(type(result) == "table" and type(result.tools) == "table" and result.tools or {}) do
    if type(tool) == "table" and type(tool.name) == "string" and type(tool.inputSchema) == "table" then
      rows[tool.name] = param_headers.rows(tool.inputSchema, function() end)
    end
  end
end

-- The params of a request, with the `_meta` of the server's revision.
local function params_of(server_info, id, given)
  local params = type(given.params) == "table" and given.params or {}
  local meta = message.meta(server_info, params._meta, given.has_progress and id or nil, given.has_progress and "debug" or nil)
  if meta and server_info.is_modern then meta[CAPABILITIES] = current.record.capabilities end
  params._meta = meta
  return params
end

local function send(call, given)
  local channel, server_info = channel_of(current)
  if not channel then return { failure = facts_of(server_info) } end
  local id = channel:next_id()
  local params = params_of(server_info, id, given)
  local pending <close>, failure = channel:send(message.request(id, given.method, params), {
    id = id, headers = server_info.is_modern and message.headers(given.method, params, rows[params.name]) or nil,
    cancel = (not server_info.is_modern or server_info.transport ~= "http") and message.cancelled(id) or nil,
  })
  while pending do
    local event
    event, failure = pending:next()
    if not event then break end
    if event.kind == "answer" then
      if event.error then return { error = json.raw(event.error) } end
      if given.method == "tools/list" then read_rows(event.result) end
      return { result = json.raw(event.result) }
    elseif event.kind == "request" then
      answer_question(call, pending, event)
    else
      pass_on(call, event)
    end
  end
  return { failure = facts_of(failure) }
end

--- Handles a request of the method "moonpool/client".
function client.answer(call, params)
  if params.open then return start(params.open) end
  return send(call, params)
end

return client
