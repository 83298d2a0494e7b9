-- Results `input_required` of stateless upstreams, and errors of older ones that ask the user to open a page. For a
-- client of a revision with sessions each question becomes a request on the stream of its call, and the upstream is
-- asked again with the answers. A stateless client gets the questions under the upstream's own keys; the upstream's
-- requestState travels inside a sealed one, which is worth nothing to another principal, for another request, or later
-- (X-12).
--   send      f(more, total): sends the request of the call, with the members `more` of its params; gives what request.send gives
--   wanted    key -> question, as ask.send takes it

local ask = require "moonpool.upstream.ask"
local call_library = require "moonpool.protocol.call"
local class = require "moonpool.upstream.class"
local client_request = require "moonpool.calls.client_request"
local errors = require "moonpool.runtime.rpc_error"
local era = require "moonpool.protocol.era"
local failure = require "moonpool.runtime.outcome"
local host = require "moonpool.host"
local json = require "moonpool.json"
local message = require "moonpool.upstream.message"
local sorted = require "moonpool.runtime.sorted_keys"

local rounds = {}

local MAX_ROUNDS = host.limits.upstreams.rounds        -- requests after the first one (V-4)
local MAX_QUESTIONS = host.limits.upstreams.questions_per_result
local FIRST_WAIT_S, MAX_WAIT_S = 0.05, 0.25         -- before an upstream that only gave a requestState is asked again
local FIRST_PAGE_S, MAX_PAGE_S = 1, 32              -- before an upstream that waits for a page is asked again

local is_object = message.is_object

local unreadable = { outcome = "unknown", reason = "unreadable" }

-- The failure for an upstream that has asked more than `most` times, or more than `most` questions.
local function too_often(most, what)
  host.upstream.count_refused "rounds"
  return { outcome = "unknown", reason = "asks", what = ("asked more than %d %s"):format(most, what) }
end

local improper = { outcome = "unknown", reason = "asks" }

--- The questions of a result, by key, and its requestState or nil; or nil and a failure: nothing is put to a client
--- that lacks the capability (X-3).
function rounds.read(result, class_text)
  local requests, state = result.inputRequests, result.requestState
  if requests == json.null then requests = nil end
  if state == json.null then state = nil end
  if requests == nil and state == nil or state ~= nil and type(state) ~= "string" then return nil, unreadable end
  if requests ~= nil and not is_object(requests) then return nil, unreadable end
  local wanted, count = {}, 0
  for key, one in pairs(requests or {}) do
    count = count + 1
    if type(key) ~= "string" or not is_object(one) then return nil, unreadable end
    if count > MAX_QUESTIONS then return nil, too_often(MAX_QUESTIONS, "questions at once") end
    local question = ask.question(one.method, one.params)
    if not question or not class.allows(class_text, question.method, question.params) then return nil, improper end
    wanted[key] = question
  end
  return wanted, state
end

-- -- clients with sessions -------------------------------------------------------------------------------------------

-- The answer to a question that no person gave: a form is cancelled. Other kinds have no such answer, so the call ends
-- (X 7.4.1).
local function without_answer(record, question, why)
  if question.method == "elicitation/create" then return { action = "cancel" } end
  failure.fail(("upstream '%s' asked for %s, and there is no answer: %s"):format(record.name, question.method, why))
end

local function reason_in(text)
  local err = json.decode(text)
  return type(err) == "table" and type(err.message) == "string" and err.message or "the client refused"
end

--- Takes from `wanted` what the operator does not allow. Returns the answers to these, by key.
function rounds.refuse_some(record, call, class_text, wanted)
  local given, open = {}, 0
  for _, key in ipairs(sorted(wanted)) do
    local why = ask.refusal(record, call, class_text, wanted[key], open)
    if why then
      given[key], wanted[key] = without_answer(record, wanted[key], why), nil
    else
      open = open + 1
    end
  end
  return given
end

--- Puts questions to the client, all at once. Returns the answers by key; or nil if they are not there at `ends_at`.
function rounds.answers_of(record, call, wanted, pages, ends_at)
  local signal, open, found = host.task.event(), {}, {}
  for _, key in ipairs(sorted(wanted)) do
    local question = wanted[key]
    local handle, params = ask.send(record, call, question, signal)
    if handle then
      open[key] = handle
      if question.params.mode == "url" then pages[key] = { url = question.params.url, id = params.elicitationId, wait = FIRST_PAGE_S } end
    else
      found[key] = without_answer(record, question, "the client cannot be asked")
    end
  end
  while next(open) do
    for key, handle in pairs(open) do
      local text, is_error = handle:answer()
      if text then
        open[key] = nil
        found[key] = is_error and without_answer(record, wanted[key], reason_in(text)) or json.raw(message.answer_text(text))
        local answer = pages[key] and json.decode(text)
        if pages[key] and not (type(answer) == "table" and answer.action == "accept") then pages[key] = nil end
      end
    end
    local left = ends_at - host.time.now()
    if next(open) and left <= 0 then
      for _, handle in pairs(open) do handle:withdraw() end
      return nil
    elseif next(open) then
      signal:wait(left)
      signal:clear()
    end
  end
  return found
end

-- Notifies the client of pages for which the upstream waits no more (EL-4).
local function end_pages(call, pages, wanted)
  for key, page in pairs(pages) do
    local again = wanted[key]
    if not again or again.params.url ~= page.url then
      pages[key] = nil
      if page.id then call:send { jsonrpc = "2.0", method = "notifications/elicitation/complete", params = { elicitationId = page.id } } end
    end
  end
end

-- The answers to the questions of one round, after the time for which a page or a state has to wait; nil at `ends_at`.
local function answer_round(record, call, class_text, wanted, pages, ends_at, round)
  local asked, found, pause = {}, {}, nil
  for key, question in pairs(wanted) do
    local page = pages[key]
    if page then
      pause, page.wait = math.min(pause or page.wait, page.wait), math.min(page.wait * 2, MAX_PAGE_S)
      found[key] = { action = "accept" }
    else
      asked[key] = question
    end
  end
  if next(wanted) == nil then
    host.time.sleep(math.min(FIRST_WAIT_S * 2 ^ (round - 1), MAX_WAIT_S))
    return found
  end
  for key, answer in pairs(rounds.refuse_some(record, call, class_text, asked)) do found[key] = answer end
  local answers = rounds.answers_of(record, call, asked, pages, ends_at)
  if not answers then return nil end
  for key, answer in pairs(answers) do found[key] = answer end
  if pause and next(asked) == nil then host.time.sleep(math.max(0, math.min(pause, ends_at - host.time.now()))) end
  return found, pause ~= nil and next(asked) == nil
end

local function with_session(record, call, class_text, send, answer)
  local ends_at, pages, round = host.time.now() + record.total, {}, 0
  while true do
    local wanted, state = rounds.read(answer.result, class_text)
    if not wanted then return nil, state end
    end_pages(call, pages, wanted)
    round = round + 1
    if round > MAX_ROUNDS then return nil, too_often(MAX_ROUNDS, "times") end
    local found, is_waiting = answer_round(record, call, class_text, wanted, pages, ends_at, round)
    local left = ends_at - host.time.now()
    if not found or left <= 0 then return nil, { outcome = "unknown", reason = "total" } end
    if is_waiting then round = round - 1 end                -- a person is at a page: `timeout_total` limits that
    local failed, err
    answer, failed, err = send({ inputResponses = next(wanted) ~= nil and json.object(found) or nil, requestState = state }, left)
    if not answer then return nil, failed, err end
    if answer.result.resultType ~= "input_required" then
      end_pages(call, pages, {})
      return answer
    end
  end
end

-- -- stateless clients -----------------------------------------------------------------------------------------------

-- The members that a repeated request has for the upstream; nil if this one is not repeated.
local function resumed(call, place)
  local kept = client_request.take(call, place)
  if not kept then return nil end
  local sent, found = client_request.sent_answers(call), {}
  for _, key in ipairs(kept.keys) do
    local answer = client_request.take_answer(call, key)
    found[key] = sent[key] ~= nil and sent[key] or answer
    message.strip(found[key])
    if kept.is_page and (type(answer) ~= "table" or answer.action ~= "accept") then
      failure.fail(kept.text .. ": " .. (type(answer) == "table" and answer.action == "decline" and "declined" or "cancelled"))
    end
  end
  if kept.is_page then return nil end
  for key, answer in pairs(kept.given or {}) do found[key] = answer end
  return { inputResponses = next(found) ~= nil and json.object(found) or nil, requestState = kept.state }
end

-- Ends this run of the handler: the client gets the questions. If the operator allows none of them, the upstream gets
-- that as an answer at once.
local function pass(record, call, class_text, place, send, answer)
  for _ = 1, MAX_ROUNDS do
    local wanted, state = rounds.read(answer.result, class_text)
    if not wanted then return nil, state end
    local had_any = next(wanted) ~= nil
    local given = rounds.refuse_some(record, call, class_text, wanted)
    if next(wanted) ~= nil or not had_any then
      for _, question in pairs(wanted) do ask.sign(record, question) end
      client_request.keep(call, place, { keys = json.array(sorted(wanted)), state = state, given = next(given) ~= nil and given or nil })
      client_request.unwind(call, wanted)
    end
    local failed, err
    answer, failed, err = send({ inputResponses = json.object(given), requestState = state }, record.total)
    if not answer or answer.result.resultType ~= "input_required" then return answer, failed, err end
  end
  return nil, too_often(MAX_ROUNDS, "times")
end

-- -- errors that ask for a page, of upstreams with sessions (X-38) ---------------------------------------------------

-- The pages of an error, as questions; nil if it names none.
local function pages_of(err)
  local list = type(err.data) == "table" and err.data.elicitations
  if type(list) ~= "table" then return nil end
  local wanted, first = {}, nil
  for i, one in ipairs(list) do
    local question = i <= MAX_QUESTIONS and is_object(one) and type(one.url) == "string" and ask.question("elicitation/create", one)
    if not question or question.params.mode ~= "url" then return nil end
    question.params.elicitationId = nil
    wanted["page-" .. i], first = question, first or one
  end
  return first and wanted, first
end

-- What a client gets for the error `err`: the error itself where its revision has it, else questions or a text.
local function ask_for_pages(record, call, place, err, is_stateless)
  local wanted, first = pages_of(err)
  local facts = era.facts(call.revision)
  if not wanted or not facts then return end
  local text = type(first.message) == "string" and first.message or "this needs a page that you open"
  local able = facts.has_elicitation_modes and call_library.able(call, { "elicitation.url" })
  if not is_stateless then
    if able and not facts.stateless then return end
    failure.fail(text .. ": " .. first.url)
  end
  if not able then call_library.demand(call, call_library.tree { "elicitation.url" }, { "elicitation.url" }) end
  for _, question in pairs(wanted) do ask.sign(record, question) end
  client_request.keep(call, place, { keys = json.array(sorted(wanted)), is_page = true, text = text })
  client_request.unwind(call, wanted)
end

-- The error for a capability that the client lacks: it names the missing capability, since a client with a session
-- cannot declare more in the middle of it (X-27).
local function lacking(record, err)
  local wanted = type(err.data) == "table" and err.data.requiredCapabilities
  local names = {}
  for name, below in pairs(is_object(wanted) and wanted or {}) do
    local is_leaf = true
    for inner in pairs(is_object(below) and below or {}) do
      names[#names + 1], is_leaf = tostring(name) .. "." .. tostring(inner), false
    end
    if is_leaf then names[#names + 1] = tostring(name) end
  end
  table.sort(names)
  local list = names[1] and table.concat(names, ", ") or "it names none"
  failure.fail(("upstream '%s' needs a capability that this client lacks: %s"):format(record.name, list))
end

-- -- the whole -------------------------------------------------------------------------------------------------------

--- Sends a request of a call, and again with the answers of its client as often as the upstream asks. `class_text`:
--- what the upstream was told that the client can be asked; `place`: a text that is equal when the same request of a
--- stateless client is repeated. Returns what `send` returns.
function rounds.run(record, call, class_text, place, send)
  local is_stateless = era.is_stateless(call.revision) and not client_request.is_apart(call)
  local answer, failed, err = send(is_stateless and resumed(call, place) or nil)
  if err and err.code == errors.url_required then ask_for_pages(record, call, place, err, is_stateless) end
  if err and err.code == errors.missing_capability and not is_stateless then lacking(record, err) end
  if not answer or answer.result.resultType ~= "input_required" then return answer, failed, err end
  if not class.can_ask(class_text) then return nil, improper end
  if is_stateless then return pass(record, call, class_text, place, send, answer) end
  return with_session(record, call, class_text, send, answer)
end

return rounds
