-- Calls of stateless clients that are repeated with answers: what the call has begun at upstreams is not begun again. A
-- request whose upstream asks, or that runs while another part of the handler asks the client, is parked; one that was
-- answered is kept in the call's journal. The repeated request, on whatever worker, takes the parked ones up and is
-- given the answers that there were.
--   journal   { places = the request's entries by place, done = list, found = list, size, is_full } of one call
--   entry     { upstream, method, name, digest, place, record } and what became of it:
--             pending, id, asker    the exchange runs
--             text, is_error, is_new, or failed    it has ended: the JSON of its result or error, or its failure
--   parked    what is kept of an entry whose exchange is parked: sealed within the requestState, so it is the client's, for this request, and for a while
--   found     entries of an earlier run that this run has not asked for yet

local ask = require "moonpool.upstream.ask"
local class = require "moonpool.upstream.class"
local client_request = require "moonpool.calls.client_request"
local errors = require "moonpool.runtime.rpc_error"
local exchange = require "moonpool.upstream.exchange"
local failure = require "moonpool.runtime.outcome"
local host = require "moonpool.host"
local json = require "moonpool.json"
local principal = require "moonpool.access.principal"
local serial_calls = require "moonpool.upstream.serial_calls"

local park = {}

local JOURNAL, PLACE = "upstream journal", "upstream park "       -- keys of client_request.keep
local MAX_JOURNAL = host.limits.upstreams.journal
local SPARE = 1024                  -- bytes that each entry of a journal counts beside its text
local GATHER_S = 0.02               -- seconds in which an upstream may have taken back a question that the client did not answer

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

local function journal_of(call)
  local journal = journals[call]
  if journal == nil then
    journal = ask.way_of(call) == "park" and class.can_ask(class.of(call)) and { running = {}, done = {}, size = 0 } or false
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

-- Returns what request.send returned in an earlier run.
local function given_again(found)
  if found.failed then return nil, found.failed end
  local value = json.faithful(found.text)
  if found.is_error then return nil, nil, value end
  return { result = value, text = found.text, is_new = found.is_new }
end

-- -- parking ---------------------------------------------------------------------------------------------------------

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

-- Parks the exchange of an entry, and puts its questions into `open`. False if the exchange goes on as before: it has
-- ended, or too many are parked.
local function park_entry(call, entry, open)
  local asker, kept, farewell = entry.asker, {}, {}
  for i, question in ipairs(asker and asker.gathered or {}) do
    if not question.key then
      ask.sign(entry.record, question)
      question.params.elicitationId = nil
      question.params = ask.fitting(call, question)
      question.key = key_for(call, question, open)
    end
    open[question.key] = question
    kept[i] = { key = question.key, id = question.id, method = question.method, params = json.object(question.params) }
    farewell[i] = ask.no_answer(question.id, question.method, "the client gave no answer")
  end
  local handle = entry.pending and entry.pending:park(host.limits.upstreams.park, farewell, owner(call))
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
function ask.park(asker, questions)
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
  if not entry or journal.is_full or not park_entry(asker.call, entry, open) then
    asker.gathered = {}
    return refuse_all(asker, fitting)
  end
  client_request.unwind(asker.call, open)
end

-- The handler of a call is about to end its run with the questions in `open`: what it has running at upstreams waits
-- for the next run.
function client_request.leaving(call, open)
  local journal = journals[call]
  if not journal then return end
  if journal.is_full then failure.fail "the results of upstreams are too large to keep while the client is asked (1 MiB)" end
  for entry in pairs(journal.running) do
    if entry.pending and not park_entry(call, entry, open) then
      client_request.keep(call, PLACE .. entry.place,
        { is_gone = true, upstream = entry.upstream, method = entry.method, name = entry.name, digest = entry.digest })
    end
  end
end

-- The client gets its questions: keeps the journal. Returns an error if there is no room for it; what is parked ends
-- then.
function client_request.saving(call)
  local journal = journals[call]
  if not journal then return nil end
  local list = json.array(table.move(journal.done, 1, #journal.done, #journal.found + 1, journal.found))
  if not list[1] then return nil end
  local handle = host.upstream.keep(json.encode(list), host.limits.upstreams.park, owner(call))
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
local function send_answers(call, card, pending, questions)
  local sent, missing = client_request.sent_answers(call), {}
  for _, question in ipairs(questions) do
    local answer = client_request.take_answer(call, question.key)
    if is_answer(question, answer) then
      answer = sent[question.key] or answer
      answer.resultType = nil
      pending:reply(ask.answer(card, question, answer))
    else
      missing[#missing + 1] = question
    end
  end
  return missing
end

-- Goes on with a parked exchange. Returns what request.send returns.
local function take_up(call, entry, kept, spec)
  if not is_same(kept, entry) or kept.digest ~= entry.digest then complain(entry) end
  if kept.is_gone then return nil, { outcome = "unknown", reason = "parked" } end
  local card = { revision = kept.revision }
  local asker = ask.new(entry.record, card, class.of(call, entry.record.asks), call)
  local pending <close> = host.upstream.take_up(kept.handle, owner(call), asker and asker.signal)
  if not pending then failure.refuse(client_request.stale()) end
  entry.pending, entry.id, entry.revision, entry.asker = pending, kept.id, kept.revision, asker
  local missing = send_answers(call, card, pending, kept.questions)
  if asker then
    asker.entry, asker.turns_at = entry, spec.turns_at
    if missing[1] then asker.gathered, asker.gather_until = missing, host.time.now() + GATHER_S end
  else
    for _, question in ipairs(missing) do pending:reply(ask.no_answer(question.id, question.method, "the client cannot be asked")) end
  end
  local event, failed = exchange.resume(pending, { asker = asker, listener = spec.listener and spec.listener(kept.id), class = class.none })
  entry.pending = nil
  if not event then return nil, failed end
  local result, err, unreadable = exchange.read(event)
  if result then return { result = result, text = event.result } end
  return nil, unreadable, err
end

-- -- the whole -------------------------------------------------------------------------------------------------------

--- True if an earlier run of a call has left its request number `place` to this one.
function park.waits(call, place) return client_request.kept(call)[PLACE .. place] ~= nil end

--- Runs a request of a call by send(), which gives what request.send gives, unless an earlier run of the same call has
--- begun or ended it. `place`: the number of the request within the call. `spec` is that of request.send; its member
--- `entry` is set.
function park.run(record, call, place, options, spec, send)
  local journal = journal_of(call)
  if not journal then return send() end
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
    answer, failed, err = send()
  end
  note(journal, entry, answer, failed, err, options.may_repeat)
  return answer, failed, err
end

return park
