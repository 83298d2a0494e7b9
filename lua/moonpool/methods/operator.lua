-- Questions of the pages of the admin listener about tools, resources and prompts: the method "moonpool/inspect", which
-- only the gateway's own pages can send. A page of a list has PAGE entries; texts in lists are cut, those of a single
-- thing are whole.

local auth = require "moonpool.access.auth"
local errors = require "moonpool.runtime.rpc_error"
local host = require "moonpool.host"
local json = require "moonpool.json"
local policy = require "moonpool.things.policy"
local principal = require "moonpool.access.principal"
local registry = require "moonpool.registry.registry"
local suggest = require "moonpool.runtime.suggest"
local switches = require "moonpool.registry.switches"
local task_record = require "moonpool.tasks.task_record"
local tasks = require "moonpool.tasks.tasks"
local upstreams = require "moonpool.upstream.config"
local uris = require "moonpool.runtime.uris"

local operator = {}

local PAGE = 200
local MAX_TEXT_BYTES = 300
local TRIES, PAUSE_S = 10, 0.05 -- attempts, and the pause between them, while the store does not answer

-- For each kind in a question: the lists of the registry that have it, and its word in measurements and switches.
local lists = { tools = { "tools" }, prompts = { "prompts" }, resources = { "resources", "templates" } }
local kinds = registry.kinds

local function invalid(message) return nil, errors.new("invalid_params", message) end

local function cut(text)
  if type(text) ~= "string" or #text <= MAX_TEXT_BYTES then return text end
  return text:sub(1, (utf8.offset(text, 0, MAX_TEXT_BYTES + 1) or MAX_TEXT_BYTES + 1) - 1) .. "…"
end

-- Where a thing comes from: an upstream, or the file of a script.
local function origin_of(thing)
  if thing.upstream then return "upstream", thing.upstream end
  return "script", thing.path
end

-- True if a client must expect that the tool destroys something: it says so, or it does not say that it only reads.
local function is_destructive(definition)
  local hints = definition.annotations
  return type(hints) == "table" and hints.destructiveHint == true and hints.readOnlyHint ~= true
end

local function measured(kind, thing) return host.metrics.numbers(kinds[kind].word, thing.name) end

-- True, or nil. The store is asked, not the snapshot, which follows it a moment later on the other workers.
local function is_shown_off(kind, thing) return not registry.is_on(kinds[kind].word, thing) or nil end

local function entry(kind, key, thing)
  local definition, numbers = thing.definition, measured(kind, thing)
  local origin, from = origin_of(thing)
  return {
    name = thing.name, title = cut(definition.title), description = cut(definition.description or thing.description), origin = origin, from = from,
    off = is_shown_off(kind, thing), destructive = kind == "tools" and is_destructive(definition) or nil,
    uri = kind == "resources" and (thing.listed or key) or nil, uri_template = kind == "templates" and (definition.uriTemplate or key) or nil,
    calls = numbers.calls, errors = numbers.errors, p50_ms = numbers.p50_ms, p99_ms = numbers.p99_ms,
  }
end

-- True if the name, title or URI of a thing has the text, without regard to case.
local function fits(key, thing, search)
  if search == "" then return true end
  for _, text in ipairs { key, thing.name, thing.definition.title or "" } do
    if text:lower():find(search, 1, true) then return true end
  end
  return false
end

-- One page of a list. The names before the page are only counted.
local function list(kind, number, search)
  local found, count, first = json.array {}, 0, number * PAGE
  for _, name in ipairs(lists[kind]) do
    local things, names = registry.everything(name)
    for _, key in ipairs(names) do
      local thing = things[key]
      if fits(key, thing, search) then
        count = count + 1
        if count > first and count <= first + PAGE then found[#found + 1] = entry(name, key, thing) end
      end
    end
  end
  return { [kind] = found, total = count, next = count > first + PAGE and number + 1 or nil, resultType = "complete" }
end

-- -- one thing --------------------------------------------------------------------------------------------------------------

-- The thing with exactly this name or URI: its list, its key there and itself.
local function find_exactly(kind, name)
  for _, of in ipairs(lists[kind]) do
    local things = registry.everything(of)
    if things[name] then return of, name, things[name] end
    for key, thing in pairs(things) do
      if thing.name == name or thing.listed == name or thing.definition.uriTemplate == name then return of, key, thing end
    end
  end
end

-- As find_exactly, also for a URI that a template serves.
local function find(kind, name)
  local of, key, thing = find_exactly(kind, name)
  if thing then return of, key, thing end
  if kind == "resources" then
    thing = registry.resource(uris.normal(name))
    if thing then return thing.template and "templates" or "resources", thing.uri, thing end
  end
end

-- The definition as the clients of each revision get it, by date.
local function definitions(kind, thing, eras)
  local made = {}
  for date, row in pairs(eras) do made[date] = registry.converted(kind, thing, row) end
  return made
end

local function unknown(word, name, names)
  return invalid(suggest.with_hint("there is no " .. word .. " '" .. name:sub(1, 128) .. "'", name, names))
end

local function unknown_thing(kind, name)
  local all = {}
  for _, each in ipairs(lists[kind]) do table.move(select(2, registry.everything(each)), 1, #select(2, registry.everything(each)), #all + 1, all) end
  return unknown(kinds[kind].word, name, all)
end

local function one(kind, name, eras)
  local of, key, thing = find(kind, name)
  if not thing then return unknown_thing(kind, name) end
  local definition, shown = thing.definition, entry(of, key, thing)
  shown.description, shown.title = definition.description or thing.description, definition.title
  shown.input, shown.output, shown.annotations = definition.inputSchema, definition.outputSchema, definition.annotations
  shown.arguments, shown.mime = definition.arguments, definition.mimeType
  shown.completes = thing.complete ~= nil or thing.forward_complete ~= nil or nil
  shown.scopes, shown.visible = thing.scopes and json.array { table.unpack(thing.scopes) } or json.array {}, thing.visible ~= nil or nil
  shown.timeout, shown.concurrency, shown.task = thing.timeout, thing.concurrency, thing.task
  shown.policies, shown.definitions = json.array(policy.names(of, thing)), definitions(of, thing, eras)
  shown.failures = json.array(measured(of, thing).failures)
  shown.resultType = "complete"
  return shown
end

-- -- switches ---------------------------------------------------------------------------------------------------------------

local kinds_of = { tool = "tools", prompt = "prompts", resource = "resources" }

-- How long switches of operators last: as long as the file of the store, or the process.
local function lasting(params) return (params.is_kept or host.config.cluster) and "store" or "process" end

-- The name by which a thing is switched: that of the registry, if `name` is another name or a URI of it. Nil if nothing
-- has the name.
local function switched_name(word, name)
  if word == "upstream" then return upstreams.by_name[name] and name end
  local thing = select(3, find_exactly(kinds_of[word], name))
  return thing and thing.name
end

-- Waits until the store answers, for a second at most: that of another process may not do so for a moment, and a switch
-- holds in all processes.
local function await_store(key)
  for _ = 1, TRIES do
    if select(2, host.store.get(key)) ~= "unavailable" then return end
    host.time.sleep(PAUSE_S)
  end
end

local function store_is_away() return nil, errors.new("internal", "the process that has the store does not answer: try again") end

-- Switches { kind, name, on } for the operator `by`.
local function switch(params)
  local word, on = params.kind, params.on
  await_store(registry.off_key(word, params.name))
  local name = switched_name(word, params.name) or host.store.get(registry.off_key(word, params.name)) and params.name
  if not name and word == "upstream" then return unknown(word, params.name, upstreams.by_name) end
  if not name then return unknown_thing(kinds_of[word], params.name) end
  if not on and #registry.held_off() >= registry.MAX_OFF then
    return nil, errors.new("internal", "more than " .. registry.MAX_OFF - 1 .. " things are switched off: switch some on first")
  end
  local note = json.encode { by = params.by, since = host.time.clock() // 1 | 0 }
  local done, why
  for _ = 1, TRIES do
    done, why = switches.note(word, name, on, note)
    if done then done, why = switches.operate(word, name, on, note) end
    if done or why == "full" then break end
    host.time.sleep(PAUSE_S)
  end
  if not done and why ~= "full" then return store_is_away() end
  if not done then return nil, errors.new("internal", "the store is full: see store.entries and store.bytes in the configuration") end
  local nodes = switches.operate_at_nodes(word, name)
  host.log.write("info", "switched by operator", { what = word .. " " .. name, on = on, caller = params.by })
  return { kind = word, name = name, on = on, lasts = lasting(params), nodes = nodes and json.array(nodes), resultType = "complete" }
end

-- Another worker has switched { kind, name }: this worker's lists follow before it answers.
local function follow_switch(params)
  await_store(registry.off_key(params.kind, params.name))
  if not switches.follow(params.kind, switched_name(params.kind, params.name) or params.name) then return store_is_away() end
  return { resultType = "complete" }
end

-- True if a thing has the name, on or off; for an upstream, if it is configured.
local function is_there(word, name)
  if word == "upstream" then return upstreams.by_name[name] ~= nil end
  return (registry.all(word) or {})[name] ~= nil
end

-- Lists the things that are switched off: by operators first, then by scripts.
local function switched_off(params)
  local found = json.array {}
  for _, held in ipairs(registry.held_off()) do
    local word, name = held[1], held[2]
    local note = json.decode(host.store.get(registry.off_key(word, name)) or "null")
    if type(note) == "table" then
      found[#found + 1] = { kind = word, name = name, by = note.by, since = note.since, gone = not is_there(word, name) or nil }
    end
  end
  for word in pairs(kinds_of) do
    for _, key in ipairs(host.store.keys(registry.switch_key(word, ""), registry.MAX_OFF)) do
      local name = key:sub(#registry.switch_key(word, "") + 1)
      if host.store.get(key) == "off" and is_there(word, name) and not host.store.get(registry.off_key(word, name)) then
        found[#found + 1] = { kind = word, name = name, by = "a script" }
      end
    end
  end
  return { switches = found, lasts = lasting(params), resultType = "complete" }
end

-- -- MCP tasks --------------------------------------------------------------------------------------------------------------

local MAX_TASKS = 10000      -- tasks that a list of all tasks may have

-- The first digits of a task's id: with the whole id, an operator would have half of the owner's credentials for the
-- task.
local function mark_of(record) return record.id:sub(1, 8) end

-- One page of all tasks, by their ids.
local function list_tasks(params)
  local found, first = json.array {}, (math.tointeger(params.page) or 0) * PAGE
  local ids, away = task_record.all("", math.min(first + PAGE + 1, MAX_TASKS))
  if away then return nil, task_record.away() end
  for i = first + 1, math.min(first + PAGE, #ids) do
    local record = task_record.get(ids[i])
    if record then
      found[#found + 1] = {
        task = mark_of(record), tool = record.tool, principal = record.principal, status = record.status, message = cut(record.message),
        created = record.created, updated = record.updated, ttl_ms = record.ttl, ended = task_record.is_ended(record) or nil,
      }
    end
  end
  return { tasks = found, next = #ids > first + PAGE and first // PAGE + 1 or nil, resultType = "complete" }
end

-- Cancels the task whose id begins with a mark.
local function cancel_task(params)
  local ids, away = task_record.all(params.name, 2)
  if away then return nil, task_record.away() end
  local record = ids[1] and task_record.get(ids[1])
  if not record then return invalid "no such task: GET /api/tasks lists them" end
  if ids[2] then return invalid "several tasks have this mark, none was cancelled: name more digits" end
  if task_record.is_ended(record) then return invalid("the task has ended: it is " .. record.status) end
  local refused = tasks.send { id = record.id, cancel = true, by_operator = true }
  if refused then return nil, refused end
  return { cancelled = true, task = mark_of(record), resultType = "complete" }
end

-- -- principals -------------------------------------------------------------------------------------------------------------

-- The principal that JSON describes in the form of `moonpool explain`: { id, scopes, claims }; or nil and the fault of
-- the JSON.
local function described(given)
  if type(given) ~= "table" then return nil, "a principal is \"local\", or an object with an id" end
  if given.id == "anonymous" then return principal.anonymous end
  local scopes, claims = given.scopes, given.claims
  return principal.new({ id = given.id, scopes = scopes ~= json.null and scopes or nil, claims = claims ~= json.null and claims or nil }, auth.declared())
end

local known = setmetatable({}, { __mode = "v" })

--- The principal of a call by a console, from JSON that the question "principal" has found right; anonymous if it is
--- not right any more.
function operator.principal(text)
  local made = known[text]
  if not made then
    made = described(json.decode(text)) or principal.anonymous
    known[text] = made
  end
  return made
end

-- -- answers ----------------------------------------------------------------------------------------------------------------

local questions = {}

for kind in pairs(lists) do
  questions[kind] = function(params) return list(kind, math.tointeger(params.page) or 0, (params.search or ""):lower()) end
  questions[kinds[kind].word] = function(params, eras) return one(kind, params.name, eras) end
end

function questions.principal(params)
  local p, why = described(params.principal)
  if not p then return invalid(why) end
  return { id = principal.facts(p).id, scopes = principal.held(p), resultType = "complete" }
end

questions.switch, questions["follow switch"], questions.switches = switch, follow_switch, switched_off
local function change_node(change, member)
  return function(params)
    if not host.config.cluster then return invalid "the gateway has no cluster" end
    local count, why = require("moonpool.lib.cluster_nodes")[change](params.name)
    if not count then return invalid(why) end
    return { [member] = count, resultType = "complete" }
  end
end

questions["forget node"], questions["drain node"] = change_node("forget", "removed"), change_node("drain", "drained")

-- Sign-ins: the store may not answer, or not take an ending.
local function about_sign_ins(what)
  return function(params)
    if not host.config.sign_in then return { sign_ins = json.array {}, total = 0, ended = 0, is_off = true, resultType = "complete" } end
    local ok, answer = pcall(require("moonpool.sign_in.operated")[what], params)
    if not ok and not (type(answer) == "table" and answer.sign_in_unavailable) then error(answer, 0) end
    if not ok or not answer then return nil, errors.new("internal", "the store, or its file, does not take it now: try again") end
    return answer
  end
end

questions["sign-ins"], questions["end sign-ins"] = about_sign_ins "list", about_sign_ins "finish"
questions.approve = function(params) return require "moonpool.methods.approvals" (params) end
questions["MCP tasks"], questions["cancel task"] = list_tasks, cancel_task

--- Answers "moonpool/inspect".
function operator.answer(params, eras) return questions[params.what](params, eras) end

return operator
