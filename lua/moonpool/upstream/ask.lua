-- Questions of upstreams (elicitation, sampling, roots) to the client whose call they belong to. An asker takes the
-- questions that come during one exchange; ask.put gives them to the client, and the client's answers go back upstream
-- under the upstream's own ids.
--   asker      { record, server_info, class, call, way, signal, pending = the exchange, channel, open = list of questions without an answer, gathered }
--   question   { id = JSON of the upstream's id, method, params = those of the base revision, handle = host.call.question's, is_guess = it came beside the
--              answer's own stream, so another request of this client may be the one that asks }
--   way        how the client of the call can be asked: "stream" for a revision with sessions, "retry" for a stateless one; nil: not at all

local call_library = require "moonpool.protocol.call"
local class = require "moonpool.upstream.class"
local client_request = require "moonpool.calls.client_request"
local config = require "moonpool.upstream.config"
local era = require "moonpool.protocol.era"
local errors = require "moonpool.runtime.rpc_error"
local failure = require "moonpool.runtime.outcome"
local host = require "moonpool.host"
local json = require "moonpool.json"
local message = require "moonpool.upstream.message"
local principal = require "moonpool.access.principal"
local roots = require "moonpool.upstream.roots"
local scripts = require "moonpool.upstream.scripts"
local serial_calls = require "moonpool.upstream.serial_calls"

local ask = {}

local GATHER_S = 0.02       -- seconds in which further questions join the first one of a stateless client's call

--- Set by the module that lets a call of a stateless client go on after an answer `input_required`: f(asker,
--- questions). It raises that answer, or returns once the questions were answered.
ask.on_retry = nil

-- The methods of a stateless revision whose answer may be `input_required` (V-1).
local may_ask = { ["tools/call"] = true, ["prompts/get"] = true, ["resources/read"] = true }

-- True if the call runs apart from the client's request, as an MCP task does, and no question can be put to the client
-- at the moment.
local function is_mute(call) return client_request.is_apart(call) and not client_request.putter(call) end

--- How the client of a call can be asked; nil: not at all. The questions of an MCP task are put like those of a call
--- with a stream.
function ask.way_of(call)
  if client_request.is_apart(call) then return client_request.putter(call) and "stream" or nil end
  if era.is_stateful(call.revision) then return call.has_session and "stream" or nil end
  return ask.on_retry and may_ask[call.method] and "retry" or nil
end

--- The class of the channel for a call's client: "none" if the client cannot be asked. A channel of a stateless
--- upstream has no class, since each request says what its client can be asked.
function ask.class_of(record, facts, call)
  if facts.is_modern or not (call.has_session or ask.on_retry) then return class.none end
  return class.of(call, record.asks)
end

--- The class that a request to a stateless upstream names.
function ask.class_of_request(record, call)
  local is_asked = call.has_session or may_ask[call.method] and era.is_stateless(call.revision) and not is_mute(call)
  if record.per == "gateway" or not is_asked then return class.none end
  return class.of(call, record.asks)
end

-- -- answers to the upstream -----------------------------------------------------------------------------------------

--- The answer to an upstream's question that no client answers (X-36).
function ask.no_answer(id, method, why)
  if method == "elicitation/create" then return message.answer(id, { action = "cancel" }) end
  return message.answer(id, nil, errors.new("internal", why))
end

local function answer_to_stray(event, class_text)
  local method, id = event.method, event.id
  if method == "ping" then return message.answer(id, json.object {}) end
  local word = class.kind(method)
  if not word or not class.can_ask(class_text) then
    return message.answer(id, nil, errors.new("unknown_method", "this client declared no capability for '" .. method .. "'"))
  end
  if word == "roots" then return message.answer(id, { roots = json.array {} }) end
  return ask.no_answer(id, method, "no call of a client is running that this question belongs to")
end

--- Answers a question of an upstream that belongs to no call of a client. `class_text`: what the clients of the channel
--- can be asked.
function ask.decline(pending, event, class_text) pending:reply(answer_to_stray(event, class_text)) end

-- -- one question ----------------------------------------------------------------------------------------------------

local hop_members = { progressToken = true, ["io.modelcontextprotocol/related-task"] = true }

-- The params of a question in the base revision, without the members that belong to the hop between upstream and
-- gateway.
local function lifted(method, params)
  local made = {}
  for name, value in pairs(type(params) == "table" and params or {}) do made[name] = value end
  made.task = nil
  if type(made._meta) == "table" then
    local meta = {}
    for name, value in pairs(made._meta) do
      if not hop_members[name] then meta[name] = value end
    end
    made._meta = next(meta) ~= nil and meta or nil
    message.strip(made)
  end
  if method == "elicitation/create" and made.mode == nil then made.mode = "form" end
  return made
end

--- The params of a question as the client's revision has them; nil if they cannot be expressed there.
function ask.fitting(call, question)
  local params = question.params
  local facts = era.facts(call.revision)
  local has_context = not facts.has_sampling_context or call_library.able(call, { "sampling.context" })
  if not has_context then params.includeContext = nil end
  if question.method == "elicitation/create" and type(params.requestedSchema) ~= "table" and params.mode ~= "url" then return nil end
  return era.request_params(call.revision, question.method, params)
end

--- With more than one upstream, adds the name of the upstream to the text of a question, so that the user sees which
--- one asks.
function ask.sign(record, question)
  if question.method == "elicitation/create" and config.list[2] and type(question.params.message) == "string" then
    question.params.message = record.name .. " asks: " .. question.params.message
  end
end

--- A question in the base revision, { method, params }; nil if clients cannot be asked this.
function ask.question(method, params)
  if type(method) ~= "string" or not class.kind(method) then return nil end
  return { method = method, params = lifted(method, params) }
end

--- Sends a question on the stream of the client's call, without waiting; its answer sets the signal. Returns what
--- host.call.question returns, and the params that were sent; nil if the client cannot be asked.
function ask.send(record, call, question, signal)
  ask.sign(record, question)
  local params = ask.fitting(call, question)
  if not params then return nil end
  local put = client_request.putter(call)
  local handle = put and put(question.method, params, signal)
  if not put then handle = host.call.question(call, question.method, params, signal) end
  if handle then return handle, params end
end

-- -- what an operator allows ------------------------------------------------------------------------------------------

local limits = host.limits.upstreams
local line_order = { __order = { "event", "call", "principal", "session", "revision", "upstream", "method", "outcome", "why" } }

local function hex(bytes) return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

-- Sampling makes the client's model work for the upstream: the audit has a line of each such question.
local function audit(record, call, question, why)
  if not host.config.audit or question.method ~= "sampling/createMessage" then return end
  local session = call.has_session and host.session.id(call)
  local line = setmetatable({
    event = "question", call = (host.call.mark(call)), principal = call.principal.id,
    session = session and hex(host.digest.sum("sha256", session):sub(1, 4)) or nil,
    revision = call.revision, upstream = record.name, method = question.method, outcome = why and "denied" or "ok", why = why,
  }, line_order)
  host.log.audit(json.encode(line):sub(2, -2))
end

-- The key of the rate of questions: that of a principal; without one, of a session or an address.
local function rate_key(call)
  if principal.is_named(call.principal) then return "l:asked:p" .. principal.key(call.principal) end
  return "visitor l:asked:" .. (call.has_session and "s" .. host.session.id(call) or "a" .. host.http.counted(call.address or ""))
end

-- Why the rates refuse one more question; nil if they do not.
local function too_often(call, open)
  local most = limits.questions_per_principal
  if open < limits.questions then
    local taken, why = host.store.take(rate_key(call), 60 / most, most)
    if taken then return nil end
    if taken == nil then host.log.write("warn", "question not counted", { why = why, hint = "it is refused" }) end
  end
  host.call.count_question()
  return "too many questions"
end

-- Why the operator's script refuses a question; nil if it does not. It may change the params.
local function refused_by(script, record, call, question)
  local ok, value, why = xpcall(script.ask, failure.handler, { method = question.method, params = question.params }, call)
  if not ok and host.task.is_ending(value) then error(value, 0) end
  if not ok then
    host.log.write("error", "ask function failed", { upstream = record.name, why = failure.reason(value),
      hint = "questions of this upstream are refused while its function 'ask' raises errors" })
    return "the gateway cannot decide about this question at the moment"
  end
  if type(value) ~= "table" or type(value.params) ~= "table" then
    return type(why) == "string" and why or "the operator of the gateway does not allow this question"
  end
  question.params = value.params
end

--- Why a question may not be put to the client of a call; nil if it may. The operator's script may change its params.
--- `open`: how many questions the call has open.
function ask.refusal(record, call, class_text, question, open)
  local script = scripts.of(record.name)
  local why = script and script.ask and refused_by(script, record, call, question) or nil
  if not why and not class.allows(class_text, question.method, question.params) then why = "the client cannot be asked this" end
  why = why or too_often(call, open)
  audit(record, call, question, why)
  return why
end

-- The client's result as the upstream's revision has it: in revisions without tools in sampling, the content of a message is one block.
local function older_result(server_info, text)
  local result = json.preserving(text)
  local content = type(result) == "table" and result.content
  if era.facts(server_info.revision).has_sampling_context or debug.getmetatable(content) ~= json.array_mt or content[2] then return json.raw(text) end
  result.content = content[1]
  return result
end

--- The message that answers a question of an upstream with the result of a client.
function ask.answer(server_info, question, result)
  local text = message.answer_text(json.encode(result))
  return message.answer(question.id, question.method == "sampling/createMessage" and older_result(server_info, text) or json.raw(text))
end

-- -- the asker of an exchange ----------------------------------------------------------------------------------------

local asker = {}
asker.__index = asker

--- The asker for one exchange of a call; nil if its client cannot be asked anything.
function ask.new(record, server_info, class_text, call)
  local way = class.can_ask(class_text) and ask.way_of(call)
  if not way then return nil end
  return setmetatable({
    record = record, server_info = server_info, class = class_text, call = call, way = way, signal = host.task.event(), open = {}, gathered = {}, pages = {},
  }, asker)
end

local function remove(list, item)
  for i, one in ipairs(list) do
    if one == item then return table.remove(list, i) end
  end
end

-- Sends a question on the stream of the client's call.
local function send_to_client(self, question)
  local handle, params = ask.send(self.record, self.call, question, self.signal)
  if not handle then return self.pending:reply(ask.no_answer(question.id, question.method, "the client cannot be asked this")) end
  if question.params.elicitationId then self.pages[question.params.elicitationId] = params.elicitationId end
  question.handle = handle
  if question.method == "roots/list" then roots.asked(self.record, self.server_info, self.call) end
  self.open[#self.open + 1] = question
end

--- Gives questions of an exchange to the client of the call `self.call`: on the stream of the call; or by ask.on_retry, for
--- stateless revisions.
function ask.put(self, questions)
  if self.way == "retry" then return ask.on_retry(self, questions) end
  for _, question in ipairs(questions) do send_to_client(self, question) end
end

--- Takes a question that the upstream asked.
function asker:take(event)
  local method = event.method
  if not class.kind(method) then return ask.decline(self.pending, event, self.class) end
  local whole = json.preserving(event.bytes)
  local question = ask.question(method, type(whole) == "table" and whole.params)
  question.id, question.is_guess = event.id, event.status == nil
  question.bytes = question.is_guess and event.bytes or nil
  if question.is_guess and self.turns_at then serial_calls.doubt(self.record, self.turns_at) end
  if not class.allows(self.class, method, question.params) then
    local name = method == "elicitation/create" and question.params.mode == "url" and "elicitation.url" or method
    local err = errors.new("invalid_params", "this client declared no capability for " .. name)
    return self.pending:reply(message.answer(event.id, nil, err))
  end
  local why = ask.refusal(self.record, self.call, self.class, question, #self.open + #self.gathered)
  if why then return self.pending:reply(ask.no_answer(event.id, method, why)) end
  self.gathered[#self.gathered + 1] = question
  self.gather_until = self.gather_until or host.time.now() + GATHER_S
end

-- The question with the id that a notification of the upstream names.
local function find(list, id)
  for _, question in ipairs(list) do
    if json.decode(question.id) == id then return question end
  end
end

--- Takes a notification of the upstream that is about a question. False for any other.
function asker:note(event)
  if event.method == "notifications/cancelled" then
    local note = json.decode(event.bytes)
    local id = type(note) == "table" and type(note.params) == "table" and note.params.requestId
    local question = find(self.gathered, id) or find(self.open, id)
    if question then
      remove(self.gathered, question)
      remove(self.open, question)
      if question.handle then question.handle:withdraw() end
      self.pending:reply()
    end
    return true
  elseif event.method == "notifications/elicitation/complete" then
    local note = json.decode(event.bytes)
    local id = type(note) == "table" and type(note.params) == "table" and self.pages[note.params.elicitationId]
    if id then self.call:send { jsonrpc = "2.0", method = event.method, params = { elicitationId = id } } end
    return true
  end
  return false
end

--- Sends the client's answers to the upstream, and puts gathered questions to the client.
function asker:step()
  for i = #self.open, 1, -1 do
    local question = self.open[i]
    local text, is_error = question.handle:answer()
    if text then
      table.remove(self.open, i)
      text = is_error and text or message.answer_text(text)
      local result = question.method == "sampling/createMessage" and not is_error and older_result(self.server_info, text) or json.raw(text)
      self.pending:reply(message.answer(question.id, not is_error and result or nil, is_error and result or nil))
    end
  end
  if self.gathered[1] and (self.way == "stream" or host.time.now() >= self.gather_until) then
    local questions = self.gathered
    self.gathered, self.gather_until = {}, nil
    ask.put(self, questions)
  end
end

--- Waits for a message of the upstream or an answer of the client.
function asker:wait(seconds)
  local left = self.gathered[1] and math.max(self.gather_until - host.time.now(), 0.001) or seconds
  self.signal:wait(left)
  self.signal:clear()
end

-- Gives up a question: one that may belong to another call goes on to that, or is refused if there is none; others are
-- refused.
local function give_up(self, question)
  if question.handle then question.handle:withdraw() end
  if question.bytes then return self.pending:hand_on(question.bytes) end
  self.pending:reply(ask.no_answer(question.id, question.method, "the call has ended"))
end

-- True for a question that the client answers without its user, beside the stream of a request.
local function is_for_program(self, question) return question.is_guess and self.way == "stream" and question.method == "roots/list" end

local function has_guess(list)
  for _, question in ipairs(list) do
    if question.is_guess then return true end
  end
  return false
end

--- The upstream has answered. Questions that may belong to another request and that the client does not have yet go on
--- to that request. Those that the client has are still answered, for at most the time that a request may take; others
--- are taken back from the client.
function asker:finish()
  for i = #self.gathered, 1, -1 do
    local question = self.gathered[i]
    if question.is_guess and not is_for_program(self, question) then give_up(self, table.remove(self.gathered, i)) end
  end
  local ends_at = host.time.now() + self.record.total
  while (has_guess(self.open) or has_guess(self.gathered)) and host.time.now() < ends_at do
    self:step()
    if has_guess(self.open) or has_guess(self.gathered) then self:wait(ends_at - host.time.now()) end
  end
end

-- The exchange ends: questions without an answer are taken back from the client, and refused upstream. Those that the
-- client did not get may go on to another call.
function asker:__close()
  for _, question in ipairs(self.open) do
    question.bytes = nil
    give_up(self, question)
  end
  for _, question in ipairs(self.gathered) do give_up(self, question) end
  self.open, self.gathered = {}, {}
end

--- Begins to take the questions of an exchange.
function asker:attach(pending) self.pending = pending end

return ask
