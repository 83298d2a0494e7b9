-- Requests to the client in the middle of a handler, with one API for all revisions. In a revision with sessions the
-- task waits while the request travels on the call's stream. In a stateless revision the handler unwinds: the client
-- gets a result `input_required` and repeats its request with the answers; the handler runs again from the top, and
-- questions that have answers return at once (V-1 to V-10).
--   state      the answers and the values of `once` so far, sealed and carried by the client as requestState; before it, with a point, an id of this
--              process (of the scheme of sessions and tasks) if it stands for something that only this process has: the request is sent on to it
--   question   { needs =, method =, params =, read = function(answer) }: the capabilities that the client must have, the request in the base revision, and
--              a function that turns the client's answer into the script's value
--   asker      a function that sends the questions of a call which has no stream of its own: that of an MCP task

local host = require "moonpool.host"
local arguments = require "moonpool.things.arguments"
local call_library = require "moonpool.protocol.call"
local content = require "moonpool.things.tool_result"
local copied = require "moonpool.runtime.copied"
local era = require "moonpool.protocol.era"
local errors = require "moonpool.runtime.rpc_error"
local failure = require "moonpool.runtime.outcome"
local frozen = require "moonpool.runtime.frozen"
local json = require "moonpool.json"
local members = require "moonpool.runtime.members"
local principal = require "moonpool.access.principal"
local problem = require "moonpool.runtime.diagnostic"
local schema = require "moonpool.schema"
local typed = require "moonpool.things.type_schema"

local client_request = {}

local ID <const>, POINT <const> = 36, 0x2E      -- characters of an id, and what follows it
local STATE_LIFETIME_S = 10 * 60    -- seconds for which a sealed state is accepted

-- -- sealed states ---------------------------------------------------------------------------------------------------

local states = setmetatable({}, { __mode = "k" })      -- call -> { answers, done, pages = key -> elicitationId }

-- The context that a sealed state is bound to: its principal, method and parameters, and the id before it, or nil.
local function purpose(call, params, id)
  return table.concat({ "requestState", principal.key(call.principal), call.method, params.name or params.uri or "",
    json.encode(params.arguments or json.null), id }, "\0")
end

-- The text of a state; nil if it is forged, or belongs to another request.
local function unsealed(call, params, given)
  if type(given) ~= "string" then return nil end
  if given:byte(ID + 1) ~= POINT then return host.seal.open(given, purpose(call, params)) end
  return host.seal.open(given:sub(ID + 2), purpose(call, params, given:sub(1, ID)))
end

--- True if a request repeats an earlier one and brings answers.
function client_request.is_retry(params) return params.requestState ~= nil or params.inputResponses ~= nil end

--- The error for a state that is forged, belongs to another request, was used or has expired.
function client_request.stale()
  return errors.new("invalid_params", "requestState is not valid for this request, or too old: send the request without it")
end

--- Reads the state and the answers of a repeated request. `is_harmless`: running the handler from the top changes
--- nothing. Returns an error if the state is forged, belongs to another request, or has expired.
function client_request.begin(call, params, is_harmless)
  local state = { answers = {}, done = {}, pages = {}, again = {} }
  if params.requestState ~= nil and params.requestState ~= json.null then
    local text = unsealed(call, params, params.requestState)
    local carried = text and json.decode(text)
    if not carried or carried.expires < os.time() then
      return client_request.stale()
    end
    state.answers, state.done, state.again = carried.answers, carried.done, carried.again or {}
  end
  if type(params.inputResponses) == "table" then
    for key, answer in pairs(params.inputResponses) do
      if type(key) == "string" and type(answer) == "table" then state.answers[key] = answer end
    end
  end
  state.is_harmless = is_harmless
  states[call] = state
end

--- Drops the state of a call: its answers, and its values of `once`.
function client_request.forget(call) states[call] = nil end

local function state_of(call)
  local state = states[call]
  if not state then
    state = { answers = {}, done = {}, pages = {}, again = {} }
    states[call] = state
  end
  return state
end

--- Binds the call to this process: the client's repeated request needs state that only this process has.
function client_request.bind(call) state_of(call).is_bound = true end

--- Keeps a value of JSON until the client repeats its request.
function client_request.keep(call, key, value) state_of(call).done[key] = value end

-- Takes a value from a member of the state of a call: "done" or "answers".
local function taken(call, member, key)
  local state = states[call]
  local value = state and state[member][key]
  if value ~= nil then state[member][key] = nil end
  return value
end

--- The value that was kept when the client's request was answered with questions; nil if there is none. It is not kept
--- any longer.
function client_request.take(call, key) return taken(call, "done", key) end

--- The client's answer with this key, or nil. It is not kept any longer.
function client_request.take_answer(call, key) return taken(call, "answers", key) end

--- The answers of the client's request by key, as it sent them.
function client_request.sent_answers(call)
  local text = host.call.params(call, true)
  local whole = text and json.preserving(text)
  local sent = type(whole) == "table" and whole.inputResponses
  return type(sent) == "table" and debug.getmetatable(sent) ~= json.array_mt and sent or {}
end

--- True if the client has answered a question with this key.
function client_request.has_answer(call, key)
  local state = states[call]
  return state ~= nil and state.answers[key] ~= nil
end

--- The values that are kept for the client's repeated request, by key.
function client_request.kept(call) return state_of(call).done end

--- True if running the handler of a repeated request from the top changes nothing.
function client_request.is_harmless(call)
  local state = states[call]
  return state ~= nil and state.is_harmless == true
end

--- f(call, questions by key), called before a handler ends its run with questions. Set by upstream/repeated_requests.lua.
client_request.leaving = nil

--- Set by what keeps more for the repeated request: f(call) gives nil, or an error that the client gets instead of the
--- questions.
client_request.saving = nil

--- Ends this run of the handler with the questions in `open`, by key.
function client_request.unwind(call, open)
  if client_request.leaving then client_request.leaving(call, open) end
  failure.ask(open)
end

--- The result `input_required` for the error value with which a handler unwound; or nil and an error.
function client_request.result(call, value, params)
  local state, requests = state_of(call), {}
  local wrong = client_request.saving and client_request.saving(call)
  if wrong then return nil, wrong end
  for key, asked in pairs(failure.questions(value)) do requests[key] = { method = asked.method, params = json.object(asked.params) } end
  local text = json.encode {
    expires = os.time() + STATE_LIFETIME_S, answers = json.object(state.answers), done = json.object(state.done), again = json.object(state.again),
  }
  local id = state.is_bound and host.random.id() or nil
  local sealed = host.seal.make(text, purpose(call, params, id))
  return {
    resultType = "input_required", inputRequests = requests, requestState = id and id .. "." .. sealed or sealed,
    _meta = content.meta,
  }
end

-- -- questions --------------------------------------------------------------------------------------------------------

local question = { name = "moonpool.question", what = "a question" }

local function is_question(value) return frozen.is(value, question) end

local function new(facts) return frozen.new(question, {}, facts) end

-- The functions that scripts have as `ask.…`.
client_request.makers = {}
local make = client_request.makers

-- The schema of a form's fields: one that the script wrote, or made of properties like those of a tool's `input`.
local function form(fields)
  local made = fields.type == "object" and fields or typed.fields(fields, true)
  local check, why = schema.compile(made)
  if not check then error("the form is not valid: " .. why, 4) end
  return made, check
end

local function refusal(answer) return answer.action == "decline" and "declined" or "cancelled" end

local function want(value, kind, what, hint)
  if type(value) ~= kind then problem.raise(3, what .. " must be a " .. kind .. ", got a " .. type(value), hint) end
end

--- A question that shows a form to the user.
function make.elicit(message, fields)
  want(message, "string", "a question's message", "as in call:elicit(\"sure\", \"Really?\", { confirm = t.boolean })")
  want(fields or {}, "table", "the fields of a form", "as in { confirm = t.boolean }")
  local requested, check = form(fields or {})
  local defaults = arguments.defaults(requested) or {}
  return new {
    needs = { "elicitation.form" }, method = "elicitation/create",
    params = { message = message, requestedSchema = requested, mode = "form" },
    read = function(answer)
      if answer.action ~= "accept" then return nil, refusal(answer) end
      local filled_in = type(answer.content or {}) == "table" and arguments.filled(defaults, answer.content or {})
      local fits, wrong = check(filled_in)
      if not fits then return nil, "invalid", ((wrong.path or "") == "" and "" or wrong.path .. " ") .. wrong.message end
      return filled_in
    end,
  }
end

-- True if a URL may be shown to a user: https or http, and no password in it (EL-7).
local function check_url(url)
  local authority = type(url) == "string" and not url:find "[%s%c]" and url:match "^[hH][tT][tT][pP][sS]?://([^/?#]+)"
  if not authority then problem.raise(3, "URL elicitation needs an http or https URL", "as in \"https://example.com/sign-in\"") end
  if authority:find("@", 1, true) then problem.raise(3, "the URL contains credentials", "the page at the URL can ask for them") end
end

--- A question that asks the user to open a page. The answer "accept" means that the user opened it, not that anything
--- was done there (EL-4).
function make.elicit_url(message, url)
  want(message, "string", "a question's message", "as in call:elicit_url(\"sign-in\", \"Please sign in\", \"https://example.com/sign-in\")")
  check_url(url)
  return new {
    needs = { "elicitation.url" }, method = "elicitation/create", params = { mode = "url", message = message, url = url },
    read = function(answer)
      if answer.action == "accept" then return true end
      return nil, refusal(answer)
    end,
  }
end

--- A question to the client's model. `request` is a text, or the parameters of sampling/createMessage.
function make.sample(request)
  if type(request) ~= "table" then want(request, "string", "the model's text", "as in call:sample(\"title\", \"A title for it\")") end
  if type(request) == "string" then
    request = { messages = json.array { { role = "user", content = { type = "text", text = request } } } }
  end
  local params = { maxTokens = 1024 }
  for name, value in pairs(request) do params[name] = value end
  return new {
    needs = { params.tools and "sampling.tools" or "sampling" }, method = "sampling/createMessage", params = params,
    read = function(answer)
      if type(answer.content) ~= "table" then return nil, "invalid" end
      return answer
    end,
  }
end

--- A question for the client's roots.
function make.roots()
  return new {
    needs = { "roots" }, method = "roots/list", params = {},
    read = function(answer)
      if type(answer.roots) ~= "table" then return nil, "invalid" end
      return answer.roots
    end,
  }
end

-- A copy of a question's content, with another value of a param; nil for none.
local function with(asked, name, value)
  local made, params = copied(asked), copied(asked.params)
  made.params, params[name] = params, value
  return made
end

-- The question once more; its message says why the last answer does not fit.
local function with_reason(asked, why)
  return why and with(asked, "message", ("%s (the last answer does not fit: %s)"):format(asked.params.message, why)) or asked
end

-- -- asking the client -------------------------------------------------------------------------------------------------------

local askers = setmetatable({}, { __mode = "k" })
local putters = setmetatable({}, { __mode = "k" })

--- From now on the questions of `call` go to ask(open, found, whys): `open` holds the questions by key; `ask` puts each
--- answer into `found`, or into `whys` the reason why there is none. `put` asks one question without waiting, with the
--- params and results of host.call.question but for the call.
function client_request.through(call, ask, put) askers[call], putters[call] = ask, put end

--- The function `put` of a call whose questions go another way than its own; or nil.
function client_request.putter(call) return putters[call] end

--- True if the questions of a call go another way than its own: those of an MCP task.
function client_request.is_apart(call) return askers[call] ~= nil end

-- The question without `includeContext`, if the revision has a capability for it that the client lacks.
local function fitting(call, asked)
  local facts = asked.params.includeContext and era.facts(call.revision)
  if not facts or not facts.has_sampling_context or call_library.able(call, { "sampling.context" }) then return asked end
  return with(asked, "includeContext", nil)
end

-- In a revision with sessions: sends one question on the call's stream and waits for the answer.
local function ask_now(call, key, asked)
  local sent = era.request_params(call.revision, asked.method, asked.params)
  if not sent then return nil, "unsupported" end
  if sent.elicitationId then state_of(call).pages[key] = sent.elicitationId end
  local answer, refused = host.call.ask(call, asked.method, sent)
  if answer == false then return nil, "unsupported" end
  if answer == nil then return nil, refused.message or "refused" end
  return asked.read(answer)
end

--- call:ask { key = question, … }: asks all questions at once. Returns the answers by key, and by key why an answer is
--- missing.
local function ask(call, wanted)
  local found, whys, open = {}, {}, {}
  local asker, stateless = askers[call], era.is_stateless(call.revision)
  local state = state_of(call)
  for key, asked in pairs(wanted) do
    if not is_question(asked) then error("call:ask takes questions: ask.elicit, ask.elicit_url, ask.sample, ask.roots", 2) end
    asked = fitting(call, frozen.content(asked))
    if not call_library.able(call, asked.needs) then
      whys[key] = "unsupported"
    elseif asker then
      open[key] = asked
    elseif not stateless then
      found[key], whys[key] = ask_now(call, key, asked)
    elseif state.answers[key] then
      local wrong
      found[key], whys[key], wrong = asked.read(state.answers[key])
      if whys[key] == "invalid" and not state.again[key] then        -- once more, since clients stop after some rounds
        open[key], whys[key], state.answers[key], state.again[key] = with_reason(asked, wrong), nil, nil, true
      end
    else
      open[key] = asked
    end
  end
  if next(open) == nil then return found, whys end
  if not asker then client_request.unwind(call, open) end
  asker(open, found, whys)
  return found, whys
end

local function ask_one(call, key, asked)
  if type(key) ~= "string" then problem.raise(2, "a question needs a key: a name that stays the same from run to run") end
  local found, whys = ask(call, { [key] = asked })
  if found[key] == nil then return nil, whys[key] end
  return found[key]
end

local methods = members.of_object(host.call.methods)

--- call:elicit(key, message, fields): the fields that the user filled in; or nil and "declined", "cancelled" or
--- "unsupported".
function methods.elicit(call, key, message, fields) return ask_one(call, key, make.elicit(message, fields)) end

--- call:elicit_url(key, message, url): true once the user agrees to open the page; or nil and "declined", "cancelled"
--- or "unsupported".
function methods.elicit_url(call, key, message, url) return ask_one(call, key, make.elicit_url(message, url)) end

--- call:url_done(key): notifies the client that the user has finished at that page. No effect in revisions without that
--- notification (EL-4).
function methods.url_done(call, key)
  local pages = state_of(call).pages
  local id = pages[key]
  pages[key] = nil
  if id then call:send { jsonrpc = "2.0", method = "notifications/elicitation/complete", params = { elicitationId = id } } end
end

--- call:needs_url(key, message, url): ends the call; the client shows the page to its user and calls again (EL-5,
--- EL-6).
function methods.needs_url(call, key, message, url)
  local asked = frozen.content(make.elicit_url(message, url))
  if not askers[call] and call_library.able(call, asked.needs) then
    if era.is_stateless(call.revision) then
      local answers = state_of(call).answers
      local answer = answers[key]
      if answer and not asked.read(answer) then failure.fail(message .. ": " .. select(2, asked.read(answer))) end
      answers[key] = nil
      client_request.unwind(call, { [key] = asked })
    end
    local sent = era.request_params(call.revision, asked.method, asked.params)
    if sent then
      failure.refuse(errors.new("url_required", "URL elicitation required", { elicitations = json.array { sent } }))
    end
  end
  failure.fail(message .. ": " .. url)
end

--- call:sample(key, request): the message of the client's model; or nil and why there is none.
function methods.sample(call, key, request) return ask_one(call, key, make.sample(request)) end

--- call:roots(): the roots of the client; or nil and why there are none.
function methods.roots(call, key) return ask_one(call, key or "roots", make.roots()) end

--- call:once(key, f): returns the values of f(), which must be JSON. When the handler runs again, `once` returns the
--- same values and does not call f.
function methods.once(call, key, f)
  local done = state_of(call).done
  local kept = done[key]
  if kept == nil then
    kept = { f() }
    done[key] = json.array(kept)
  end
  return table.unpack(kept)
end

methods.ask = ask

return client_request
