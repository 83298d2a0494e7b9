-- Forwards a client's request to an upstream: tools/call, prompts/get, resources/read and completion/complete. The
-- params go on with the upstream's own names and a `_meta` of our own; the result comes back in the base revision. A
-- failure raises the error that the client gets.

local ask = require "moonpool.upstream.ask"
local auth = require "moonpool.upstream.auth"
local call_library = require "moonpool.protocol.call"
local catalogue = require "moonpool.upstream.catalogue"
local class_of_client = require "moonpool.upstream.class"
local config = require "moonpool.upstream.config"
local content = require "moonpool.things.tool_result"
local era = require "moonpool.protocol.era"
local errors = require "moonpool.upstream.errors"
local host = require "moonpool.host"
local failure = require "moonpool.runtime.outcome"
local json = require "moonpool.json"
local channel_key = require "moonpool.upstream.channel_key"
local message = require "moonpool.upstream.message"
local open = require "moonpool.upstream.open"
local repeated_requests = require "moonpool.upstream.repeated_requests"
local request = require "moonpool.upstream.request"
local shape = require "moonpool.upstream.shape"
local tasks = require "moonpool.upstream.tasks"
local wrapping = require "moonpool.upstream.wrapping"

local forward = {}

local HOP = "io.modelcontextprotocol/"
local NEW_CHANNEL = "dev.moonpool/channel"

-- The least level of the log messages that a client with a session gets which has set none. Other clients get none.
local UNSET_LEVEL <const> = call_library.level "info"

-- Marks a result of an upstream, which goes to the client of the call.
local function for_client(call, result)
  host.call.forwards(call)
  return content.forwarded(result)
end

local is_object = message.is_object

-- -- what comes during the request -----------------------------------------------------------------------------------

local function finite(value) return type(value) == "number" and value == value and math.abs(value) < math.huge and value or nil end

-- The functions that pass notifications of the request `id` on to the client of `call`. Progress keeps the request alive
-- also where the client has not asked for it.
local function listener_of(call, id)
  local listener, unset = {}, era.is_stateful(call.revision) and UNSET_LEVEL or nil
  listener["notifications/progress"] = call.meta and call.meta.progressToken ~= nil and function(params)
    local progress = finite(params.progress)
    if params.progressToken ~= id or not progress then return end
    call:progress(progress, finite(params.total), type(params.message) == "string" and params.message or nil)
  end
  listener["notifications/message"] = function(params)
    local level = call_library.level(params.level)
    if level and params.data ~= nil then call_library.tell(call, level, params.data, type(params.logger) == "string" and params.logger or nil, unset) end
  end
  return listener
end

-- -- the request -----------------------------------------------------------------------------------------------------

local function facts_of(record, identity)
  return catalogue.of(record.name, identity and catalogue.of_caller(identity.owner) or catalogue.class).facts
end

-- The facts about an upstream as they are for the client of a call. A server of a stateless revision asks by ending its
-- answer; in an older one, which most speak, too, it may ask in the middle of a call. So a client that has a session and
-- can be asked gets a session of the older revision, and every other client the stateless one.
local function facts_for(record, facts, call, options)
  local may_choose = facts.is_modern and not options.is_sessionless and record.per ~= "gateway" and call.has_session and era.is_stateful(call.revision)
  if not (may_choose and class_of_client.can_ask(class_of_client.of(call, record.asks)) and open.may_have_sessions(record)) then return facts end
  return { transport = facts.transport, has_session = true, wants_session = true }
end

--- The channel that calls of a call's client use: { key, is_modern, own, class, tells_roots, wants_session }; with
--- `own`, the id of the client's session, it belongs to that. It holds nothing of the call, and is also the options for
--- open.channel. Not for upstreams that get a token of each caller.
function forward.way_of(record, call)
  local facts = facts_for(record, facts_of(record), call, {})
  local key, is_own, class = channel_key.of(record, facts, call, ask.class_of(record, facts, call))
  return {
    key = key, is_modern = facts.is_modern, own = is_own and call.has_session and host.session.id(call) or nil, class = class,
    tells_roots = is_own and class_of_client.tells_roots(call) or nil, wants_session = facts.wants_session,
  }
end

-- call -> { channel, times, place, is_plain, class, takes_questions }: the key of the channel that it used last, and how
-- often it was sent; the number of the request within the call; and whether C can send others like it, and with what
local sent = setmetatable({}, { __mode = "k" })

--- How the request of a call was sent: { channel, times }; nil if it was not.
function forward.sent(call) return sent[call] end

-- The channel of a request: { record, key, is_own, class, is_single, identity, wants_session }, or nil and a failure. A channel for
-- one call only stays after a call of which the upstream may make a task.
local function channel_of(record, call, options)
  if options.channel then return options.channel end
  local identity, denied = auth.identity(record, call)
  if denied then return nil, denied end
  local facts = facts_for(record, facts_of(record, identity), call, options)
  local key, is_own, class = channel_key.of(record, facts, call, ask.class_of(record, facts, call), identity and identity.owner)
  local is_single = is_own and not call.has_session and options.can_be_task or nil
  return {
    record = record, key = key, is_own = is_own and not is_single, class = class, is_single = is_single, identity = identity,
    wants_session = facts.wants_session,
  }
end

-- For each method, edits that take the members of the protocol out of the params of a client's request.
local without_known = {}
for method, names in pairs {
  ["tools/call"] = { "name", "arguments", "task" }, ["prompts/get"] = { "name", "arguments" }, ["resources/read"] = { "uri" },
  ["completion/complete"] = { "ref", "argument", "context" },
} do
  local edits = {}
  for _, name in ipairs { "_meta", "inputResponses", "requestState", table.unpack(names) } do edits[#edits + 1] = { "drop", name } end
  without_known[method] = edits
end

-- The members of the params of a client's request that the protocol does not know, as JSON; nil: there are none. They go
-- on to the upstream as they are.
local function unknown_members(call, method)
  local text = call.method == method and host.call.params(call, true)
  local left = text and json.splice(text, without_known[method])
  return left and left ~= "{}" and left or nil
end

-- Sends a request of a call. `options`: those of forward.send; `is_sessionless`: the upstream opens no session.
local function send(record, call, options)
  local channel, denied = channel_of(record, call, options)
  if not channel then return nil, denied end
  local key, is_own, class, identity = channel.key, channel.is_own, channel.class, channel.identity
  if identity then
    local digest = options.digest                             -- a retry with other scopes is another caller's
    options.digest = function() return (digest and digest() or "") .. identity.owner end
  end
  local meta = call.meta
  local count = { channel = key, times = 0, place = (sent[call] and sent[call].place or 0) + 1 }
  sent[call] = count
  local class_of_request = ask.class_of_request(record, call)
  channel.asks = class_of_request
  -- a class that is only about pages is agreed with a stateful upstream when its channel is opened, but a stateless one
  -- is told in each request
  local asks = class_of_client.can_ask(class)
  local level = message.level_name(call)
  local _ <close> = request.pause_deadline(call)
  -- Calls of a stateless client's principal share a channel; a session has one of its own.
  local way = asks and ask.way_of(call) or nil
  local turns_at = way == "retry" and not is_own and key or nil
  count.is_plain = not turns_at and not (is_own and not call.has_session)
  count.class, count.takes_questions = class_of_request, way ~= nil or nil
  local unknown = options.is_of_client and unknown_members(call, options.method)
  local more                                                  -- members of the params that a repeated request has: the client's answers
  local spec = {
    method = options.method, key = key, call = call,
    options = {
      own = is_own and call or nil, class = class, tells_roots = is_own and class_of_client.tells_roots(call), identity = identity,
      wants_session = channel.wants_session,
    },
    level = level, is_own = is_own, may_repeat = options.may_repeat, rows = options.rows, on_stale = options.on_stale,
    timeout = options.timeout, headers = options.headers,
    asker = asks and function(server_info) return ask.new(record, server_info, server_info.class or class, call) end or nil, turns_at = turns_at,
    listener = options.wants_progress and function(id) return listener_of(call, id) end or nil,
    build = function(server_info, id)
      count.times = count.times + 1
      local params = options.make(server_info)
      if unknown then
        local whole = json.preserving(unknown)
        for name, value in pairs(params) do whole[name] = value end
        params = whole
      end
      local may_be_task = options.method == "tools/call" and tasks.has_extension(server_info) and not options.is_without_tasks
      params._meta = message.meta(server_info, meta, id, level, class_of_request, may_be_task)
      if more then params.inputResponses, params.requestState = more.inputResponses, more.requestState end
      return params
    end,
  }
  if not options.may_ask then return request.send(record, spec) end
  local answer, failed, err = repeated_requests.run(record, call, count.place, class_of_request, options, spec, function(given, total)
    more, spec.total = given, total
    if total then count.times = count.times - 1 end          -- a further round is no repetition
    return request.send(record, spec)
  end)
  return answer, failed, err, channel
end

--- Sends a request of a call. `make(server_info)` gives the params without `_meta`; `may_ask`: the upstream may answer with
--- questions; `is_of_client`: the request is the client's own, whose unknown members go on; `channel`: that of an
--- earlier request of the call, or nil; `can_be_task`: an MCP task may come of it;
--- `is_without_tasks`: the client cannot have one. Returns what request.send returns, and the channel.
function forward.send(record, call, options)
  local answer, failed, err, channel = send(record, call, options)
  if not (failed and failed.reason == "sessionless") then return answer, failed, err, channel end
  options.is_sessionless = true
  return send(record, call, options)
end

-- Raises the error for a request that gave no result.
local function refuse(record, call, failed, err)
  if failed then failure.refuse(errors.of(record, failed)) end
  wrapping.error(record, err)
  failure.refuse(errors.forwarded(record, err, era.facts(call.revision) or era.facts(era.newest)))
end

-- Changes an answer to the form for clients of this gateway: `_meta`, and members as in the base revision.
local function lift(record, answer)
  local result = answer.result
  local kind = result.resultType
  if kind ~= nil and kind ~= "complete" then
    failure.refuse(errors.of(record, { outcome = "unknown", reason = kind == "input_required" and "asks" or "result_type" }))
  end
  message.strip(result)
  local meta = is_object(result._meta) and result._meta or {}
  for name in pairs(meta) do
    if type(name) ~= "string" or name:sub(1, #HOP) == HOP then meta[name] = nil end
  end
  if answer.is_new then meta[NEW_CHANNEL] = "new" end
  result._meta = content.meta_of(meta)
  result.resultType = "complete"
  return result
end

-- Raises the error for an answer that cannot be read; `what` names the part of it that is wrong.
local function refuse_unreadable(record, what)
  failure.refuse(errors.of(record, { outcome = "unknown", reason = "unreadable", what = what }))
end

-- Checks that the member `name` of a result is a list. An empty object stands for an empty list.
local function check_list(record, result, name)
  local list = result[name]
  if type(list) ~= "table" or is_object(list) and next(list) ~= nil then refuse_unreadable(record, ("its %s is not a list"):format(name)) end
  if is_object(list) then result[name] = json.array {} end
end

local LOGGED_S <const>, MOST_LOGGED <const> = 60, 5     -- an upstream may answer each call like that: a line in LOGGED_S seconds, MOST_LOGGED at once

-- Logs that blocks of a result were replaced, as only the model reads the text in their place.
local function log_blocks(record, count, method)
  if count == 0 or not host.store.take("upstream:content", LOGGED_S, MOST_LOGGED) then return end
  host.log.write("warn", "upstream content replaced", { upstream = record.name, method = method, count = count,
    hint = "tell the people who run this server: a content block lacks what its type requires" })
end

-- -- the methods -----------------------------------------------------------------------------------------------------

--- True if the configuration lets a request be sent again that perhaps ran: `facts` are those of a tool, or nil for a
--- method that changes nothing.
function forward.may_repeat(record, facts)
  if record.retry == "never" then return false end
  if facts == nil then return true end
  return facts.reads == true or (record.retry == "hinted" and facts.repeats == true)
end

-- Sends the call of a tool, and returns what request.send returns; for a call that the upstream has made a task of, nil
-- and the task.
local function send_tool(record, name, facts, args, call, options, wish)
  local answer, failed, err, channel = forward.send(record, call, {
    method = "tools/call", name = name, digest = options.digest, may_ask = true, may_repeat = forward.may_repeat(record, facts),
    is_of_client = options.is_of_client, wants_progress = not options.is_quiet,
    timeout = options.timeout, headers = options.headers, on_stale = options.on_stale,
    rows = function() return (options.rows and options.rows() or facts.mirror) end, can_be_task = wish ~= nil,
    -- a stateless upstream is told what a client of its revision cannot do (X-2); for older clients the gateway waits
    -- for the task (X-52)
    is_without_tasks = options.can_be_task and not wish and era.is_stateless(call.revision),
    make = function(server_info)
      local wants_task = facts.task and (wish or facts.task == "required") and tasks.has_params(server_info)
      return { name = name, arguments = message.object(args), task = wants_task and json.object { ttl = wish and wish.ttl } or nil }
    end,
  })
  local made = answer and tasks.made(answer.result, channel)
  if made == false then return nil, nil, { outcome = "unknown", reason = "unreadable" } end
  if not made and channel and channel.is_single then tasks.end_channel(record, channel.key) end
  if made then return nil, made end
  return answer, nil, failed, err
end

--- Calls the upstream's tool `name`. Returns the result in the base revision; or nil, a failure; or nil, nil, the
--- upstream's error. `can_be_task`: the run of the handler may end with the error value of failure.become_task.
function forward.try_tool(record, name, facts, args, call, options)
  options = options or {}
  local answer, failed, err
  local made = tasks.resumed(call, record)
  if not made then
    local wish = options.can_be_task and tasks.wish_of(call) or nil
    answer, made, failed, err = send_tool(record, name, facts, args, call, options, wish)
    if made and wish then failure.become_task(made) end
  end
  if made then answer, failed, err = tasks.await(made, call, forward.send, (sent[call] and sent[call].place or 0) + 1) end
  if not answer then return nil, failed, err end
  local result = answer.result
  if result.content == nil or result.content == json.null then result.content = json.array {} end
  check_list(record, result, "content")
  log_blocks(record, shape.mend_blocks(result.content, record.name), "tools/call")
  -- a failure that is marked in the wrong type stays one
  if result.isError == "true" or result.isError == 1 then result.isError = true end
  shape.mend(result, "result")
  return lift(record, answer)
end

--- Calls the upstream's tool `name` for a client.
function forward.tool(record, name, facts, args, call, options)
  options.is_of_client = true
  local result, failed, err = forward.try_tool(record, name, facts, args, call, options)
  if not result then refuse(record, call, failed, err) end
  wrapping.tool_result(record, call, result)
  local count = sent[call]
  if options.learn and count and count.is_plain and facts.task ~= "required" then
    count.may_be_task, count.can_have_task = facts.task ~= nil or tasks.has_extension(facts_of(record)), tasks.wish_of(call) ~= nil
    options.learn(count)
  end
  return for_client(call, result)
end

--- Calls the upstream's tool `name` for the policies of a plain call, without Lua as far as that goes. `args`: nil for those
--- of the client. `handler(args)` calls it, or goes on with what has begun, where Lua is needed.
function forward.quick_tool(record, name, args, call, handler)
  local text, first, second, id
  do
    local _ <close> = request.pause_deadline(call)
    text, first, second, id = host.forward.call(call, args and json.encode(message.object(args)))
  end
  if text then
    local key, can_ask = first, second
    sent[call] = { channel = key, times = 1, place = (sent[call] and sent[call].place or 0) + 1 }
    if can_ask then repeated_requests.note_answered(record, call, "tools/call", name, text) end
    return content.forwarded(json.preserving(text))
  end
  local exchange, channel = first, second
  if channel then request.go_on(call, channel, exchange, id) end
  return handler(args or json.preserving(host.call.params(call, true)).arguments or {}, call)
end

--- Gets the upstream's prompt `name`. `is_of_client`: as for forward.send. Returns the result in the base revision; or nil,
--- a failure; or nil, nil, the upstream's error.
function forward.try_prompt(record, name, args, call, is_of_client)
  local answer, failed, err = forward.send(record, call, {
    is_of_client = is_of_client, method = "prompts/get", name = name, may_ask = true, may_repeat = forward.may_repeat(record), wants_progress = true,
    make = function() return { name = name, arguments = next(args) ~= nil and args or nil } end,
  })
  if not answer then return nil, failed, err end
  check_list(record, answer.result, "messages")
  shape.mend(answer.result, "prompt_result")
  local replaced = 0
  for i, one in ipairs(answer.result.messages) do
    if not is_object(one) or not shape.is_role(one.role) then refuse_unreadable(record, ("its message %d has no role"):format(i)) end
    local wrong = shape.mend_block(one.content)
    if wrong then one.content, replaced = shape.instead(record.name, wrong), replaced + 1 end
  end
  log_blocks(record, replaced, "prompts/get")
  return lift(record, answer)
end

--- Gets the upstream's prompt `name` for a client.
function forward.prompt(record, name, args, call)
  local result, failed, err = forward.try_prompt(record, name, args, call, true)
  if not result then refuse(record, call, failed, err) end
  wrapping.prompt_result(record, call, result)
  return for_client(call, result)
end

--- Reads a resource of the upstream. `is_of_client`: as for forward.send. Returns the result in the base revision; or nil,
--- a failure; or nil, nil, the upstream's error.
function forward.try_resource(record, uri, call, is_of_client)
  local answer, failed, err = forward.send(record, call, {
    is_of_client = is_of_client, method = "resources/read", name = uri, may_ask = true, may_repeat = forward.may_repeat(record), wants_progress = true,
    make = function() return { uri = uri } end,
  })
  if not answer then return nil, failed, err end
  check_list(record, answer.result, "contents")
  for i, one in ipairs(answer.result.contents) do
    if is_object(one) and type(one.uri) ~= "string" then one.uri = uri end
    local wrong = shape.mend(one, "contents")
    if wrong then refuse_unreadable(record, ("its part %d is %s"):format(i, wrong)) end
  end
  local result = lift(record, answer)
  if math.type(result.ttlMs) ~= "integer" or result.ttlMs < 0 then result.ttlMs = 0 end
  if result.cacheScope ~= "public" then result.cacheScope = "private" end
  return result
end

--- Reads a resource of the upstream for a client.
function forward.resource(record, uri, call)
  local result, failed, err = forward.try_resource(record, uri, call, true)
  if not result then refuse(record, call, failed, err) end
  wrapping.read_result(record, call, result, uri)
  return for_client(call, result)
end

--- Completes a value. `ref` is the reference with the upstream's own name or URI. Returns the member `completion` of
--- the answer.
function forward.complete(record, ref, argument, context, call)
  local answer, failed, err = forward.send(record, call, {
    is_of_client = true, method = "completion/complete", may_repeat = forward.may_repeat(record),
    make = function(server_info)
      local rules = era.facts(server_info.revision)
      return { ref = ref, argument = argument, context = rules and rules.has_completion_context and context or nil }
    end,
  })
  if not answer then refuse(record, call, failed, err) end
  local completion = answer.result.completion
  if not is_object(completion) then refuse_unreadable(record, "it has no completion") end
  check_list(record, completion, "values")
  local wrong = shape.mend(completion, "completion")
  if wrong then refuse_unreadable(record, "its completion is " .. wrong) end
  local result = lift(record, answer)
  return { completion = completion, resultType = "complete", _meta = result._meta }
end

--- The upstream of this name, or nil.
function forward.record(name) return config.by_name[name] end

return forward
