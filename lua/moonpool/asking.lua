-- Asking the client in the middle of a handler, one way in every era. Before 2026-07-28 the task waits while the question
-- travels on the call's stream. In 2026-07-28 the handler unwinds: the client gets `input_required` and asks again with the
-- answers, and the handler runs from the top, where what was answered returns at once (V-1 to V-10).
--   state      the answers and `once` values of a request so far, sealed for its client to carry
--   asker      asks in the place of the call, where the work has no request of its own

local host = require "moonpool.host"
local call_library = require "moonpool.call"
local content = require "moonpool.content"
local era = require "moonpool.era"
local errors = require "moonpool.errors"
local failure = require "moonpool.failure"
local json = require "moonpool.json"
local principal = require "moonpool.principal"
local questions = require "moonpool.questions"

local asking = {}

local LIFE = 10 * 60    -- seconds that a sealed state is good for

-- -- states ----------------------------------------------------------------------------------------------------------

local states = setmetatable({}, { __mode = "k" })      -- call -> { answers, done, pages = key -> elicitationId }

-- What a sealed state is good for: this principal, this method, these parameters.
local function purpose(call, params)
  return table.concat({ "requestState", principal.key(call.principal), call.method, params.name or params.uri or "",
    json.encode(params.arguments or json.null) }, "\0")
end

--- Whether a request is a retry that brings answers.
function asking.is_retry(params) return params.requestState ~= nil or params.inputResponses ~= nil end

--- Takes up what a retry brings; an error when its state is not ours, not for this request, or too old.
function asking.begin(call, params)
  local state = { answers = {}, done = {}, pages = {} }
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

--- The call begins anew: it has asked nothing, and done nothing once.
function asking.forget(call) states[call] = nil end

local function state_of(call)
  local state = states[call]
  if not state then
    state = { answers = {}, done = {}, pages = {} }
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

local askers = setmetatable({}, { __mode = "k" })

--- What `call` asks from now on goes to ask(open, found, whys): questions by key, and where their answers go, or why none came.
function asking.through(call, ask) askers[call] = ask end

-- Since 2025-11-25 giving a model context is an ability of its own.
local function fitting(call, asked)
  if not asked.params.includeContext or call.revision < "2025-11-25" or call_library.able(call, { "sampling.context" }) then return asked end
  return questions.without(asked, "includeContext")
end

-- Before 2026-07-28: one after the other, on the call's stream.
local function ask_now(call, key, asked)
  local told = era.asked(call.revision, asked.method, asked.params)
  if not told then return nil, "unsupported" end
  if told.elicitationId then state_of(call).pages[key] = told.elicitationId end
  local answer, refused = host.ask(call, asked.method, told)
  if answer == false then return nil, "unsupported" end
  if answer == nil then return nil, refused.message or "refused" end
  return asked.read(answer)
end

--- call:ask { key = question, … }: all of them at once; the answers by key, and beside them why one is missing.
local function ask(call, wanted)
  local found, whys, open = {}, {}, {}
  local asker, stateless = askers[call], call.revision == era.newest
  local state = state_of(call)
  for key, asked in pairs(wanted) do
    if not questions.is(asked) then error("call:ask takes questions: ask.elicit, ask.elicit_url, ask.sample, ask.roots", 2) end
    asked = fitting(call, asked)
    if not call_library.able(call, asked.needs) then
      whys[key] = "unsupported"
    elseif asker then
      open[key] = asked
    elseif not stateless then
      found[key], whys[key] = ask_now(call, key, asked)
    elseif state.answers[key] then
      found[key], whys[key] = asked.read(state.answers[key])
      if whys[key] == "invalid" then open[key], whys[key], state.answers[key] = asked, nil, nil end
    else
      open[key] = asked
    end
  end
  if next(open) == nil then return found, whys end
  if not asker then failure.ask(open) end
  asker(open, found, whys)
  return found, whys
end

local function ask_one(call, key, asked)
  if type(key) ~= "string" then error("a question needs a key: a name that stays the same from run to run", 3) end
  local found, whys = ask(call, { [key] = asked })
  if found[key] == nil then return nil, whys[key] end
  return found[key]
end

local make, methods = questions.makers, host.call_methods

--- call:elicit(key, message, fields): what the user filled in; or nil and why: "declined", "cancelled", "unsupported".
function methods.elicit(call, key, message, fields) return ask_one(call, key, make.elicit(message, fields)) end

--- call:elicit_url(key, message, url): true once the user goes there; or nil and why, as above.
function methods.elicit_url(call, key, message, url) return ask_one(call, key, make.elicit_url(message, url)) end

--- call:url_done(key): what the user did at that page is done. Heard where the revision has a word for it (EL-4).
function methods.url_done(call, key)
  local pages = state_of(call).pages
  local id = pages[key]
  pages[key] = nil
  if id then call:send { jsonrpc = "2.0", method = "notifications/elicitation/complete", params = { elicitationId = id } } end
end

--- call:needs_url(key, message, url): ends the call; the client shows the page to its user and calls again (EL-5, EL-6).
function methods.needs_url(call, key, message, url)
  local asked = make.elicit_url(message, url)
  if not askers[call] and call_library.able(call, asked.needs) then
    if call.revision == era.newest then
      local answers = state_of(call).answers
      local answer = answers[key]
      if answer and not asked.read(answer) then failure.fail(message .. ": " .. select(2, asked.read(answer))) end
      answers[key] = nil
      failure.ask { [key] = asked }
    end
    local told = era.asked(call.revision, asked.method, asked.params)
    if told then
      failure.refuse(errors.new("url_required", "URL elicitation required", { elicitations = json.array { told } }))
    end
  end
  failure.fail(message .. ": " .. url)
end

--- call:sample(key, request): the model's message; or nil and why.
function methods.sample(call, key, request) return ask_one(call, key, make.sample(request)) end

--- call:roots(): the client's roots; or nil and why.
function methods.roots(call, key) return ask_one(call, key or "roots", make.roots()) end

--- call:once(key, f): what f gives, JSON and no more; in a handler that runs again, f does not.
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

return asking
