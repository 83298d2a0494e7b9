-- Requests of calls whose upstream asks the client: sent again with the client's answers, or taken up again when the
-- client repeats its call. This file is long because one request can need both.
-- Results `input_required` of stateless upstreams, and errors of older ones that ask the user to open a page: for a
-- client of a revision with sessions each question becomes a request on the stream of its call, and the upstream is
-- asked again with the answers. A stateless client gets the questions under the upstream's own keys; the upstream's
-- requestState travels inside a sealed one, which is worth nothing to another principal, for another request, or later
-- (X-12).
--   send      f(more, total): sends the request of the call, with the members `more` of its params; gives what request.send gives
--   wanted    key -> question, as ask.send takes it
-- Calls of stateless clients that are repeated with answers: what the call has begun at upstreams is not begun again. A
-- request whose upstream asks, or that runs while another part of the handler asks the client, is pending; one that was
-- answered is kept in the call's journal. The repeated request, on whatever worker, takes the pending ones up and is
-- given the answers that there were.
--   journal   { places = the request's entries by place, done = list, found = list, size, is_full } of one call
--   entry     { upstream, method, name, digest, place, record } and what became of it:
--             pending, id, asker    the exchange runs
--             text, is_error, is_new, or failed    it has ended: the JSON of its result or error, or its failure
--   pending    what is kept of an entry whose exchange is pending: sealed within the requestState, so it is the client's, for this request, and for a while
--   found     entries of an earlier run that this run has not asked for yet

local ask = require "moonpool.upstream.ask"
local call_library = require "moonpool.protocol.call"
local class = require "moonpool.upstream.class"
local client_request = require "moonpool.calls.client_request"
local era = require "moonpool.protocol.era"
local errors = require "moonpool.runtime.rpc_error"
local exchange = require "moonpool.upstream.exchange"
local failure = require "moonpool.runtime.outcome"
local host = require "moonpool.host"
local json = require "moonpool.json"
local message = require "moonpool.upstream.message"
local principal = require "moonpool.access.principal"
local serial_calls = require "moonpool.upstream.serial_calls"
local sorted = require "moonpool.runtime.sorted_keys"

local repeated_requests = {}

local MAX_ROUNDS = host.limits.upstreams.rounds        -- requests after the first one (V-4)
local MAX_QUESTIONS = host.limits.upstreams.questions_per_result
local FIRST_WAIT_S, MAX_WAIT_S = 0.05, 0.25         -- seconds before the request is repeated for an upstream that sent only a requestState
local FIRST_PAGE_S, MAX_PAGE_S = 1, 32              -- seconds before the request is repeated for an upstream that waits until its user has opened a web page

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
function repeated_requests.read(result, class_text)
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
function repeated_requests.refuse_some(record, call, class_text, wanted)
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
function repeated_requests.answers_of(record, call, wanted, pages, ends_at)
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
  for key, answer in pairs(repeated_requests.refuse_some(record, call, class_text, asked)) do found[key] = answer end
  local answers = repeated_requests.answers_of(record, call, asked, pages, ends_at)
  if not answers then return nil end
  for key, answer in pairs(answers) do found[key] = answer end
  if pause and next(asked) == nil then host.time.sleep(math.max(0, math.min(pause, ends_at - host.time.now()))) end
  return found, pause ~= nil and next(asked) == nil
end

local function with_session(record, call, class_text, send, answer)
  local ends_at, pages, round = host.time.now() + record.total, {}, 0
  while true do
    local wanted, state = repeated_requests.read(answer.result, class_text)
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
    local wanted, state = repeated_requests.read(answer.result, class_text)
    if not wanted then return nil, state end
    local had_any = next(wanted) ~= nil
    local given = repeated_requests.refuse_some(record, call, class_text, wanted)
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

-- Sends a request of a call, and again with the client's answers as often as the upstream asks. `class_text`: the class
-- of the client that the upstream was sent; `place`: a text that is equal when a stateless client repeats the request.
-- Returns what `send` returns.
local function send_in_rounds(record, call, class_text, place, send)
  local is_stateless = era.is_stateless(call.revision) and not client_request.is_apart(call)
  local answer, failed, err = send(is_stateless and resumed(call, place) or nil)
  if err and err.code == errors.url_required then ask_for_pages(record, call, place, err, is_stateless) end
  if err and err.code == errors.missing_capability and not is_stateless then lacking(record, err) end
  if not answer or answer.result.resultType ~= "input_required" then return answer, failed, err end
  if not class.can_ask(class_text) then return nil, improper end
  if is_stateless then return pass(record, call, class_text, place, send, answer) end
  return with_session(record, call, class_text, send, answer)
end

local JOURNAL, PLACE = "upstream journal", "upstream pending "       -- keys of client_request.keep
local MAX_JOURNAL = host.limits.upstreams.journal
local SPARE = 1024                  -- bytes that each entry of a journal counts beside its text
-- seconds to wait for the upstream to withdraw a question that the client did not answer
local GATHER_S = 0.02

local journals = setmetatable({}, { __mode = "k" })       -- call -> its journal; false: the call cannot be repeated

local function owner(call) return principal.key(call.principal) end

local function is_same(a, b) return a.upstream == b.upstream and a.method == b.method and a.name == b.name end

local function complain(entry)
  error(("upstream '%s' is asked for something else than before the client's answer: until its question, a handler must do the same in each run"):format(
    entry.upstream), 0)
end

-- -- journals --------------------------------------------------------------------------------------------------------

-- Reads the journal of an earlier run. Raises the error for a state that was used or has expired, unless running the
-- call once more does no harm.
local function read_back(call)
  local handle = client_request.take(call, JOURNAL)
  if not handle then return {} end
  local bytes = type(handle) == "string" and host.upstream.fetch(handle, owner(call))
  if not bytes then
    if client_request.is_harmless(call) then return {} end
    failure.refuse(client_request.stale())
  end
  return json.decode(bytes)
end

-- `can_ask`: the client is known to be one that can be asked something.
local function journal_of(call, can_ask)
  local journal = journals[call]
  if journal == nil then
    journal = ask.way_of(call) == "retry" and (can_ask or class.can_ask(class.of(call))) and { running = {}, done = {}, size = 0 } or false
    journals[call] = journal
    if journal then journal.found = read_back(call) end
  end
  return journal
end

-- Takes the entry of an earlier run for an equal request from the journal; nil: there is none.
local function take_found(journal, entry)
  local other
  for i, found in ipairs(journal.found) do
    if is_same(found, entry) then
      if found.digest == entry.digest then return table.remove(journal.found, i) end
      other = found
    end
  end
  if other then complain(entry) end
end

-- Keeps the answer or failure of a request in the journal. A request that does no harm if it is sent again needs no
-- room.
local function note(journal, entry, answer, failed, err, may_repeat)
  local text = answer and answer.text or err and json.encode(err)
  local size = (text and #text or 0) + SPARE
  if journal.size + size > MAX_JOURNAL then
    if not may_repeat and not journal.is_full then
      journal.is_full = true
      host.upstream.count_refused "journals"
    end
    return
  end
  journal.size = journal.size + size
  journal.done[#journal.done + 1] = {
    upstream = entry.upstream, method = entry.method, name = entry.name, digest = entry.digest, text = text, is_error = err ~= nil or nil,
    is_new = answer and answer.is_new or nil,
    failed = failed and { outcome = failed.outcome, reason = failed.reason, status = failed.status, retry_after = failed.retry_after } or nil,
  }
end

-- Returns the results of request.send in an earlier run.
local function given_again(found)
  if found.failed then return nil, found.failed end
  local value = json.preserving(found.text)
  if found.is_error then return nil, nil, value end
  return { result = value, text = found.text, is_new = found.is_new }
end

-- -- pending ---------------------------------------------------------------------------------------------------------

-- True if a question of another exchange that waits for its answer has this key.
local function is_kept(call, key)
  for _, kept in pairs(client_request.kept(call)) do
    for _, question in ipairs(type(kept) == "table" and type(kept.questions) == "table" and kept.questions or {}) do
      if question.key == key then return true end
    end
  end
  return false
end

-- A key for a question: elicitation-1, sampling-1, roots-1 and so on.
local function key_for(call, question, open)
  local n = 0
  repeat
    n = n + 1
    local key = class.kind(question.method) .. "-" .. n
  until not open[key] and not client_request.has_answer(call, key) and not is_kept(call, key)
  return class.kind(question.method) .. "-" .. n
end

-- Makes the exchange of an entry pending, and puts its questions into `open`. False if the exchange goes on as before: it has
-- ended, or too many are pending.
local function make_entry_pending(call, entry, open)
  local asker, kept, cancel_messages = entry.asker, {}, {}
  for i, question in ipairs(asker and asker.gathered or {}) do
    if not question.key then
      ask.sign(entry.record, question)
      question.params.elicitationId = nil
      question.params = ask.fitting(call, question)
      question.key = key_for(call, question, open)
    end
    open[question.key] = question
    kept[i] = { key = question.key, id = question.id, method = question.method, params = json.object(question.params) }
    cancel_messages[i] = ask.no_answer(question.id, question.method, "the client gave no answer")
  end
  local handle = entry.pending and entry.pending:make_pending(host.limits.upstreams.pending, cancel_messages, owner(call))
  if not handle then
    for _, question in ipairs(kept) do open[question.key] = nil end
    return false
  end
  host.upstream.expect(call, handle)
  client_request.bind(call)
  entry.pending = nil
  if asker then asker.gathered, asker.gather_until = {}, nil end
  client_request.keep(call, PLACE .. entry.place, {
    handle = handle, id = entry.id, revision = entry.revision, questions = json.array(kept),
    upstream = entry.upstream, method = entry.method, name = entry.name, digest = entry.digest,
  })
  return true
end

local function refuse_all(asker, questions)
  for _, question in ipairs(questions) do asker.pending:reply(ask.no_answer(question.id, question.method, "too many calls wait for answers")) end
end

-- Ends this run of the handler with the questions of an upstream; returns if they were refused, and the exchange goes
-- on.
function ask.on_retry(asker, questions)
  local fitting = {}
  for _, question in ipairs(questions) do
    if ask.fitting(asker.call, question) then
      fitting[#fitting + 1] = question
    else
      refuse_all(asker, { question })
    end
  end
  local entry, open, journal = asker.entry, {}, journals[asker.call]
  if not fitting[1] then return end
  asker.gathered = fitting
  if not entry or journal.is_full or not make_entry_pending(asker.call, entry, open) then
    asker.gathered = {}
    return refuse_all(asker, fitting)
  end
  client_request.unwind(asker.call, open)
end

-- The handler of a call is about to end its run with the questions in `open`. Its requests that still run at upstreams
-- are kept for the next run, when the client repeats the call.
function client_request.leaving(call, open)
  local journal = journals[call]
  if not journal then return end
  if journal.is_full then failure.fail "the results of upstreams are too large to keep while the client is asked (1 MiB)" end
  for entry in pairs(journal.running) do
    if entry.pending and not make_entry_pending(call, entry, open) then
      client_request.keep(call, PLACE .. entry.place,
        { is_gone = true, upstream = entry.upstream, method = entry.method, name = entry.name, digest = entry.digest })
    end
  end
end

-- Keeps the journal of a call whose client is about to get questions. Returns an error if there is no room for the
-- journal; the call's pending exchanges end then.
function client_request.saving(call)
  local journal = journals[call]
  if not journal then return nil end
  local list = json.array(table.move(journal.done, 1, #journal.done, #journal.found + 1, journal.found))
  if not list[1] then return nil end
  local handle = host.upstream.keep(json.encode(list), host.limits.upstreams.pending, owner(call))
  if handle then
    host.upstream.expect(call, handle)
    client_request.bind(call)
    client_request.keep(call, JOURNAL, handle)
    return nil
  end
  for key, kept in pairs(client_request.kept(call)) do
    if key:sub(1, #PLACE) == PLACE and kept.handle then
      local _ <close> = host.upstream.take_up(kept.handle, owner(call)) -- luacheck: ignore 211
    end
  end
  return errors.new("internal", "too many calls wait for the answers of clients; what this call had begun may have run")
end

-- -- taking up -------------------------------------------------------------------------------------------------------

local function is_answer(question, answer)
  if type(answer) ~= "table" then return false end
  if question.method == "elicitation/create" then return answer.action == "accept" or answer.action == "decline" or answer.action == "cancel" end
  if question.method == "roots/list" then return type(answer.roots) == "table" end
  return type(answer.content) == "table" and type(answer.role) == "string"
end

-- Sends the client's answers upstream. Returns the questions that the client did not answer.
local function send_answers(call, server_info, pending, questions)
  local sent, missing = client_request.sent_answers(call), {}
  for _, question in ipairs(questions) do
    local answer = client_request.take_answer(call, question.key)
    if is_answer(question, answer) then
      answer = sent[question.key] or answer
      answer.resultType = nil
      pending:reply(ask.answer(server_info, question, answer))
    else
      missing[#missing + 1] = question
    end
  end
  return missing
end

-- Continues a pending exchange. Returns what request.send returns.
local function take_up(call, entry, kept, spec)
  if not is_same(kept, entry) or kept.digest ~= entry.digest then complain(entry) end
  if kept.is_gone then return nil, { outcome = "unknown", reason = "pending" } end
  local server_info = { revision = kept.revision }
  local asker = ask.new(entry.record, server_info, class.of(call, entry.record.asks), call)
  local pending <close> = host.upstream.take_up(kept.handle, owner(call), asker and asker.signal)
  if not pending then failure.refuse(client_request.stale()) end
  entry.pending, entry.id, entry.revision, entry.asker = pending, kept.id, kept.revision, asker
  local missing = send_answers(call, server_info, pending, kept.questions)
  if asker then
    asker.entry, asker.turns_at = entry, spec.turns_at
    if missing[1] then asker.gathered, asker.gather_until = missing, host.time.now() + GATHER_S end
  else
    for _, question in ipairs(missing) do pending:reply(ask.no_answer(question.id, question.method, "the client cannot be asked")) end
  end
  local event, failed = exchange.resume(pending, { asker = asker, listener = spec.listener and spec.listener(kept.id), class = class.none,
    of = { upstream = entry.record.name, key = spec.key } })
  entry.pending = nil
  if not event then return nil, failed end
  local result, err, wrong = exchange.read(event)
  if result then return { result = result, text = event.result } end
  return nil, wrong, err
end

-- -- the whole -------------------------------------------------------------------------------------------------------

--- True if an earlier run of a call has left its request number `place` to this one.
function repeated_requests.waits(call, place) return client_request.kept(call)[PLACE .. place] ~= nil end

--- A request of a call whose client can be asked was sent elsewhere, and answered with the result `text`: the repeated
--- call gets it again.
function repeated_requests.note_answered(record, call, method, name, text)
  local journal = journal_of(call, true)
  if journal then note(journal, { upstream = record.name, method = method, name = name, digest = "" }, { text = text }) end
end

--- Sends a request of a call, and again with the client's answers as often as the upstream asks, unless an earlier run
--- of the same call has begun or ended the request. `place`: the number of the request within the call; `class_text`:
--- the class of the client that the upstream was sent. `spec` is that of request.send; its member `entry` is set.
--- Returns what `send` returns.
function repeated_requests.run(record, call, place, class_text, options, spec, send)
  local journal = journal_of(call)
  local function send_rounds()
    return send_in_rounds(record, call, class_text, ("upstream %s %s %d"):format(record.name, options.method, place), send)
  end
  if not journal then return send_rounds() end
  local entry = { record = record, upstream = record.name, method = options.method, name = options.name or "", place = place,
    digest = options.digest and options.digest() or "" }
  local kept = client_request.take(call, PLACE .. place)
  local found = not kept and take_found(journal, entry)
  if found then
    journal.size = journal.size + (found.text and #found.text or 0) + SPARE
    journal.done[#journal.done + 1] = found
    return given_again(found)
  end
  journal.running[entry], spec.entry = true, entry
  local _ <close> = setmetatable({}, { __close = function() journal.running[entry] = nil end })
  local answer, failed, err
  local at = spec.turns_at
  local turn <close> = at and not kept and serial_calls.take(record, at) or nil       -- luacheck: ignore 211
  local mine <close> = at and serial_calls.count(record, at) or nil                   -- luacheck: ignore 211
  if kept then
    answer, failed, err = take_up(call, entry, kept, spec)
  else
    answer, failed, err = send_rounds()
  end
  note(journal, entry, answer, failed, err, options.may_repeat)
  return answer, failed, err
end

return repeated_requests
