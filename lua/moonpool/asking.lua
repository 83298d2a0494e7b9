-- Asking the client in the middle of a handler, one way in every era. Before 2026-07-28 the task waits while the question
-- travels on the call's stream. In 2026-07-28 the handler unwinds: the client gets `input_required` and asks again with the
-- answers, and the handler runs from the top, where what was answered returns at once (V-1 to V-10).
--   question   { method =, params =, read = function(answer) }: what is asked, and what its answer means
--   state      the answers and `once` values of a request so far, sealed for its client to carry

local host = require "moonpool.host"
local call_library = require "moonpool.call"
local content = require "moonpool.content"
local era = require "moonpool.era"
local errors = require "moonpool.errors"
local failure = require "moonpool.failure"
local json = require "moonpool.json"
local schema = require "moonpool.schema"
local types = require "moonpool.types"

local asking = {}

local LIFE = 10 * 60    -- seconds that a sealed state is good for

local question = { __name = "moonpool.question", __metatable = false }

-- -- questions ------------------------------------------------------------------------------------------------------

-- The fields of a form: a schema of its own, or properties as `input` of a tool has them.
local function form(fields)
  local made = fields.type == "object" and fields or types.fields(fields, true)
  local check, why = schema.compile(made)
  if not check then error("the form cannot be asked: " .. why, 4) end
  return made, check
end

local questions = {}

--- A form for the user.
function questions.elicit(message, fields)
  local requested, check = form(fields or {})
  return setmetatable({
    needs = { "elicitation.form" }, method = "elicitation/create",
    params = { message = message, requestedSchema = requested, mode = "form" },
    read = function(answer)
      if answer.action ~= "accept" then return nil, answer.action == "decline" and "declined" or "cancelled" end
      local filled_in = answer.content or {}
      if type(filled_in) ~= "table" or not check(filled_in) then return nil, "invalid" end
      return filled_in
    end,
  }, question)
end

--- A turn of the client's model. `request` is a text, or the parameters of sampling/createMessage.
function questions.sample(request)
  if type(request) == "string" then
    request = { messages = json.array { { role = "user", content = { type = "text", text = request } } } }
  end
  local params = { maxTokens = 1024 }
  for name, value in pairs(request) do params[name] = value end
  return setmetatable({
    needs = { params.tools and "sampling.tools" or "sampling" }, method = "sampling/createMessage", params = params,
    read = function(answer)
      if type(answer.content) ~= "table" then return nil, "invalid" end
      return answer
    end,
  }, question)
end

--- The client's roots.
function questions.roots()
  return setmetatable({
    needs = { "roots" }, method = "roots/list", params = {},
    read = function(answer)
      if type(answer.roots) ~= "table" then return nil, "invalid" end
      return answer.roots
    end,
  }, question)
end

-- -- states ----------------------------------------------------------------------------------------------------------

local states = setmetatable({}, { __mode = "k" })

-- What a sealed state is good for: this principal, this method, these parameters.
local function purpose(call, params)
  return table.concat({ "requestState", call.principal, call.method, params.name or params.uri or "",
    json.encode(params.arguments or json.null) }, "\0")
end

--- Whether a request is a retry that brings answers.
function asking.is_retry(params) return params.requestState ~= nil or params.inputResponses ~= nil end

--- Takes up what a retry brings; an error when its state is not ours, not for this request, or too old.
function asking.begin(call, params)
  local state = { answers = {}, done = {} }
  if params.requestState ~= nil and params.requestState ~= json.null then
    local text = type(params.requestState) == "string" and host.unseal(params.requestState, purpose(call, params))
    local carried = text and json.decode(text)
    if not carried or carried.expires < os.time() then
      return errors.new("invalid_params", "requestState is not valid for this request, or too old: send the request without it")
    end
    state.answers, state.done = carried.answers, carried.done
  end
  if type(params.inputResponses) == "table" then
    for key, answer in pairs(params.inputResponses) do
      if type(key) == "string" and type(answer) == "table" then state.answers[key] = answer end
    end
  end
  states[call] = state
end

local function state_of(call)
  local state = states[call]
  if not state then
    state = { answers = {}, done = {} }
    states[call] = state
  end
  return state
end

--- The result that asks, for the error value of a handler that unwound.
function asking.result(call, value, params)
  local state, requests = state_of(call), {}
  for key, asked in pairs(value.questions) do requests[key] = { method = asked.method, params = json.object(asked.params) } end
  local text = json.encode {
    expires = os.time() + LIFE, answers = json.object(state.answers), done = json.object(state.done),
  }
  return {
    resultType = "input_required", inputRequests = requests, requestState = host.seal(text, purpose(call, params)), _meta = content.meta,
  }
end

-- -- asking ----------------------------------------------------------------------------------------------------------

-- A question without what this client could not do: since 2025-11-25 giving a model context is an ability of its own.
local function fitting(call, asked)
  if not asked.params.includeContext or call.revision < "2025-11-25" or call_library.able(call, { "sampling.context" }) then return asked end
  local made, params = {}, {}
  for name, value in pairs(asked) do made[name] = value end
  for name, value in pairs(asked.params) do params[name] = value end
  made.params, params.includeContext = params, nil
  return setmetatable(made, debug.getmetatable(asked))
end

-- Before 2026-07-28: one after the other, on the call's stream.
local function ask_now(call, asked)
  local told = era.asked(call.revision, asked.method, asked.params)
  if not told then return nil, "unsupported" end
  local answer, refused = host.ask(call, asked.method, told)
  if answer == false then return nil, "unsupported" end
  if answer == nil then return nil, refused.message or "refused" end
  return asked.read(answer)
end

--- call:ask { key = question, … }: all of them at once; the answers by key, and beside them why one is missing.
local function ask(call, wanted)
  local found, whys, open = {}, {}, {}
  local stateless = call.revision == era.newest
  local state = state_of(call)
  for key, asked in pairs(wanted) do
    if debug.getmetatable(asked) ~= question then error("call:ask takes questions: ask.elicit, ask.sample, ask.roots", 2) end
    asked = fitting(call, asked)
    if not call_library.able(call, asked.needs) then
      whys[key] = "unsupported"
    elseif not stateless then
      found[key], whys[key] = ask_now(call, asked)
    elseif state.answers[key] then
      found[key], whys[key] = asked.read(state.answers[key])
      if whys[key] == "invalid" then open[key], whys[key], state.answers[key] = asked, nil, nil end
    else
      open[key] = asked
    end
  end
  if next(open) then failure.ask(open) end
  return found, whys
end

local function ask_one(call, key, asked)
  if type(key) ~= "string" then error("a question needs a key: a name that stays the same from run to run", 3) end
  local found, whys = ask(call, { [key] = asked })
  if found[key] == nil then return nil, whys[key] end
  return found[key]
end

--- call:elicit(key, message, fields): what the user filled in; or nil and why: "declined", "cancelled", "unsupported".
function host.call_methods.elicit(call, key, message, fields) return ask_one(call, key, questions.elicit(message, fields)) end

--- call:sample(key, request): the model's message; or nil and why.
function host.call_methods.sample(call, key, request) return ask_one(call, key, questions.sample(request)) end

--- call:roots(): the client's roots; or nil and why.
function host.call_methods.roots(call, key) return ask_one(call, key or "roots", questions.roots()) end

--- call:once(key, f): what f gives, JSON and no more; in a handler that runs again, f does not.
function host.call_methods.once(call, key, f)
  local done = state_of(call).done
  local kept = done[key]
  if kept == nil then
    kept = { f() }
    done[key] = json.array(kept)
  end
  return table.unpack(kept)
end

host.call_methods.ask = ask
asking.questions = questions

return asking
