-- Reads the lists of an upstream: all pages, within limits. An entry that is not valid is left out and counted; the
-- others stay. Each list is read by itself: one that fails, or that is not answered for long, is missing, and the
-- others are served.

local apps = require "moonpool.protocol.apps"
local canonical_definition = require "moonpool.upstream.canonical_definition"
local catalogue = require "moonpool.upstream.catalogue"
local errors = require "moonpool.runtime.rpc_error"
local hops = require "moonpool.upstream.hops"
local host = require "moonpool.host"
local json = require "moonpool.json"
local characters = require "moonpool.runtime.characters"
local channel_key = require "moonpool.upstream.channel_key"
local message = require "moonpool.upstream.message"
local param_headers = require "moonpool.protocol.param_headers"
local pins = require "moonpool.upstream.pins"
local request = require "moonpool.upstream.request"
local json_schema = require "moonpool.schema"
local scan = require "moonpool.upstream.scan"
local shape = require "moonpool.upstream.shape"
local tasks = require "moonpool.upstream.tasks"

local lists = {}

lists.MAX_READ_S = 120       -- seconds that one reading of an upstream's lists may take

local MAX_PAGES = host.limits.upstreams.list_pages
local MAX_NAME_BYTES = 512
local MAX_PAGE_BYTES = 1024              -- bytes of the URI of a tool's page
local FACTS_BYTES = 1024                 -- bytes reserved for facts that are known only once the lists are read
local MAX_DROPPED <const> = 8            -- texts about one definition: they are stored with it
local MAX_DEFINITION_BYTES = host.limits.upstreams.definition

local MORE_CPU_S = 60        -- seconds of processor time for one reading beyond limits.call.cpu, which is set for the calls of scripts: lists can be long
local MORE_BYTES = 6 * host.limits.upstreams.list_bytes + 2 * host.limits.upstreams.answer     -- bytes of memory beyond limits.call.memory
local LEAST_PATIENCE_S = 0.5 -- seconds for the answers to all lists, after which those that have come are served: half of list_wait, or this
local LEAST_RETRY_S, MOST_RETRY_S = 1, 60      -- seconds after which lists are read again of which one failed
local NOTED_S = 3600         -- seconds beyond `keep` for which the store remembers since when a list is missing

local MAX_ITEMS, MAX_BYTES = host.limits.upstreams.list_items, host.limits.upstreams.list_bytes

-- For each list: its method, the member of the result, the capability that it needs, and the member that is the key of
-- an entry.
local kinds = {
  { kind = "tools", method = "tools/list", member = "tools", capability = "tools", key = "name" },
  { kind = "prompts", method = "prompts/list", member = "prompts", capability = "prompts", key = "name" },
  { kind = "resources", method = "resources/list", member = "resources", capability = "resources", key = "uri" },
  { kind = "templates", method = "resources/templates/list", member = "resourceTemplates", capability = "resources", key = "uriTemplate" },
}

-- -- one entry -------------------------------------------------------------------------------------------------------

local is_object = message.is_object

-- Forms that draft-07 has and 2020-12 lacks: a list under `items`, and two keywords.
local function is_older_schema(schema, depth)
  if type(schema) ~= "table" or depth > 32 then return false end
  if schema.definitions ~= nil or schema.dependencies ~= nil then return true end
  if type(schema.items) == "table" and debug.getmetatable(schema.items) == json.array_mt then return true end
  for _, inner in pairs(schema) do
    if is_older_schema(inner, depth + 1) then return true end
  end
  return false
end

-- Changes a schema of an older revision so that it means the same in the base revision (7.6).
local function lift_schema(schema)
  if schema["$schema"] == nil and is_older_schema(schema, 1) then schema["$schema"] = "http://json-schema.org/draft-07/schema#" end
end

local function plain_rows(rows)
  local made = {}
  for i, row in ipairs(rows) do made[i] = { header = row.header, name = row.name, path = row.path } end
  return made
end

-- Whether a tool of the upstream runs as an MCP task: "optional" or "required"; nil: never (T-13). A stateless upstream
-- decides it for each call.
local function task_support(execution, server_info)
  local value = is_object(execution) and execution.taskSupport
  if (value == "optional" or value == "required") and tasks.has_params(server_info) then return value end
end

-- The URI of the page of a tool (MCP Apps); nil: it has none.
local function page_of(meta)
  local ui = is_object(meta) and meta.ui
  local uri = is_object(ui) and ui.resourceUri or is_object(meta) and meta["ui/resourceUri"]
  return type(uri) == "string" and apps.is_page(uri) and #uri <= MAX_PAGE_BYTES and uri or nil
end

-- The facts about a tool; nil and what is wrong with it. Changes its definition to the base revision.
-- `may_have_headers`: false if no argument has a header.
local function lift_tool(tool, server_info, may_have_headers)
  if tool.inputSchema.type == nil then tool.inputSchema.type = "object" end               -- without a type it means an object (X-46)
  if tool.inputSchema.type ~= "object" then return nil, "wrong: its input is not an object" end
  if not server_info.is_modern then
    lift_schema(tool.inputSchema)
    if tool.outputSchema then lift_schema(tool.outputSchema) end
  end
  local wrong
  local rows = may_have_headers and param_headers.rows(tool.inputSchema, function(what) wrong = wrong or what end)
  -- a tool whose header parameters are wrong is not served (H-9)
  if wrong and server_info.is_modern and server_info.transport == "http" then return nil, "wrong: " .. wrong end
  local hints, execution = is_object(tool.annotations) and tool.annotations or {}, tool.execution
  tool.execution = nil
  return {
    mirror = not wrong and rows and plain_rows(rows) or nil, reads = hints.readOnlyHint == true or nil, repeats = hints.idempotentHint == true or nil,
    task = task_support(execution, server_info), page = page_of(tool._meta),
  }
end

-- Takes what is wrong and not required out of an item of a list. Returns the facts about it, a text for each thing that
-- was taken out, and what is wrong with what is required, or nil.
local function shaped(kind, item, server_info, may_have_headers)
  local dropped, facts = {}, nil
  if kind == "tools" and (item.inputSchema == nil or item.inputSchema == json.null) then item.inputSchema = { type = "object" } end
  local wrong = shape.mend(item, kind, function(what)
    if #dropped < MAX_DROPPED then dropped[#dropped + 1] = what .. ", and is left out" end
  end)
  if not wrong and kind == "tools" then facts, wrong = lift_tool(item, server_info, may_have_headers) end
  return facts or {}, dropped, wrong
end

-- The doubts about the schemas of a tool and about its name.
local function doubts_of_tool(tool, doubts)
  for _, member in ipairs { "inputSchema", "outputSchema" } do
    local check, why = json_schema.compile(tool[member] or true)
    if not check then doubts[#doubts + 1] = ("its %s is not a valid JSON Schema: %s"):format(member, why) end
  end
end

-- What stands for a definition that lacks what is required, so that people see its name.
local function stand_in(list, key)
  return { [list.key] = key, name = key, inputSchema = list.kind == "tools" and { type = "object" } or nil }
end

local function is_name(value) return type(value) == "string" and value ~= "" and #value <= MAX_NAME_BYTES end

-- A URI begins with its scheme. A template need not (RFC 6570): a variable may stand for it, and some servers have
-- paths for their own URIs.
local function is_address(value, is_template)
  return type(value) == "string" and #value <= 8192 and value:find(is_template and "^%g" or "^%a[%w+.-]*:") ~= nil
end

local CIRCLE <const> = "it comes from this gateway: gateways are upstreams of each other"

-- The entries of the catalogue that was read before: kind .. " " .. key -> entry.
local function known_entries(before)
  local known = {}
  for _, entry in ipairs(before.entries) do known[entry.kind .. " " .. entry.key] = entry end
  return known
end

-- An entry of the catalogue for one item of a list; nil and why it is left out.
local function entry_of(part, item, server_info, state, may_have_headers)
  local list, seen = part.list, part.seen
  if not is_object(item) then return nil, "it is not an object" end
  local key = item[list.key]
  if list.key ~= "name" then
    if not is_address(key, list.key == "uriTemplate") then return nil, "it has no valid " .. list.key end
    if type(item.name) ~= "string" then item.name = key end
  elseif not is_name(key) then
    return nil, "it has no valid name"
  end
  local through, is_circle = hops.take(item)
  message.strip_definition(item)
  if is_circle then return nil, CIRCLE end
  if seen[key] then return nil, "its " .. list.key .. " appears twice" end
  local facts, dropped, wrong = shaped(list.kind, item, server_info, may_have_headers)
  facts.hops = through
  seen[key] = true
  local ok, definition = pcall(json.encode, wrong and stand_in(list, key) or item)
  if not ok then return nil, "it cannot be encoded" end
  if #definition > MAX_DEFINITION_BYTES then
    host.upstream.count_refused "lists"
    return nil, ("its definition has more than %d bytes"):format(MAX_DEFINITION_BYTES)
  end
  local before = state.known[list.kind .. " " .. key]
  if wrong then
    facts.bad, facts.hash = "it is " .. wrong, canonical_definition.hash(definition)
  elseif before and before.definition == definition and not (before.facts.is_mended or before.facts.bad or dropped[1]) then
    facts.bad, facts.doubts, facts.hash = before.facts.bad, before.facts.doubts, before.facts.hash
  else
    local plain = json.decode(definition)
    if type(plain) ~= "table" then return nil, "it cannot be decoded" end
    local traits = host.upstream.traits(definition)
    facts.bad, facts.doubts = scan.definition(plain, definition, part.words, traits)
    facts.is_mended = dropped[1] and true or nil
    if dropped[1] and not (before and before.definition == definition) then
      state.repaired = state.repaired + 1
      state.repaired_why = state.repaired_why or ("%s '%s': %s"):format(pins.kinds[list.kind], key, dropped[1])
    end
    local doubts = table.move(facts.doubts or {}, 1, #(facts.doubts or {}), #dropped + 1, dropped)
    if list.kind == "tools" and not facts.bad then doubts_of_tool(plain, doubts) end
    facts.doubts = doubts[1] and doubts or nil
    facts.hash = canonical_definition.hash(canonical_definition.text(plain, not traits.has_odd_numbers))
  end
  return { kind = list.kind, key = key, facts = facts, definition = definition }
end

-- -- pages -----------------------------------------------------------------------------------------------------------

local function ask_page(record, list, cursor, way)
  local answer, failure, err = request.send(record, {
    method = list.method, key = way.key, options = way.options, may_repeat = true,
    build = function(server_info) return { cursor = cursor, _meta = message.meta(server_info, nil, nil, nil, way.class) } end,
  })
  return answer and answer.result, err, failure, answer and answer.text
end

-- A list is at its limit: the items of this page from the `i`th on are left out, and further pages are not read.
local function cut(state, items, i)
  state.is_cut = true
  state.left_out = state.left_out + #items - i + 1
  state.why = state.why or "the list is too long"
  return false
end

-- Adds the items of a page. False once a limit is reached.
local function add_items(state, part, items, server_info, may_have_headers)
  for i, item in ipairs(items) do
    if #part.entries >= MAX_ITEMS then return cut(state, items, i) end
    local entry, why = entry_of(part, item, server_info, state, may_have_headers)
    if entry then
      entry.line = catalogue.line(entry)
      state.bytes = state.bytes + #entry.line + 1
      if state.bytes > MAX_BYTES then return cut(state, items, i) end
      part.entries[#part.entries + 1] = entry
    elseif why == CIRCLE then
      state.in_circle = state.in_circle + 1
    else
      state.left_out = state.left_out + 1
      state.why = state.why or why
    end
  end
  return true
end

-- Notes how long a page may be kept, and whether by one user alone, as upstreams of stateless revisions say (Q-1). A page
-- that does not say may not be kept.
local function note_caching(part, result, server_info)
  if not server_info.is_modern then return end
  local ttl = math.type(result.ttlMs) == "integer" and math.max(result.ttlMs, 0) or 0
  part.caching = part.caching or {}
  catalogue.add_caching(part.caching, { caching = { [part.list.kind] = { ttl = ttl, is_private = result.cacheScope ~= "public" or nil } } })
end

-- Reads one list into `part`. Returns the failure of the upstream if it did not give the list.
local function read_list(record, server_info, part, state, way)
  local list, cursor, cursors = part.list, nil, {}
  for _ = 1, MAX_PAGES do
    local result, err, failure, text = ask_page(record, list, cursor, way)
    if failure then return failure end
    part.is_answered = true
    if not result then
      if err.code == errors.unknown_method then return nil end
      return { reason = "error", why = type(err.message) == "string" and err.message or nil }
    end
    local items = result[list.member]
    if type(items) ~= "table" or is_object(items) and next(items) ~= nil then return { reason = "unreadable", why = "the answer has no list" } end
    note_caching(part, result, server_info)
    local may_have_headers = text:find("x-mcp-header", 1, true) ~= nil or text:find("\\u", 1, true) ~= nil
    part.words = scan.words(text)
    if not add_items(state, part, items, server_info, may_have_headers) then return nil end
    cursor = result.nextCursor
    if type(cursor) ~= "string" or cursors[cursor] then return nil end
    cursors[cursor] = true
  end
  state.is_cut = true
end

-- -- all lists -------------------------------------------------------------------------------------------------------

local function facts_of(server_info, state, missing)
  return {
    revision = server_info.revision, is_modern = server_info.is_modern, transport = server_info.transport, has_session = server_info.session ~= nil,
    capabilities = json.object(server_info.capabilities), server = server_info.server, instructions = server_info.instructions,
    left_out = state.left_out > 0 and state.left_out or nil, left_out_why = state.why,
    in_circle = state.in_circle > 0 and state.in_circle or nil, is_cut = state.is_cut, caching = next(state.caching) and state.caching,
    missing = missing and json.array(missing) or nil,
  }
end

local function missing_key(record, state, kind)
  local start = catalogue.is_of_caller(state.class) and "callers:missing:" or "upstream:missing:"
  return start .. ("%s:%s:%s:%s"):format(host.upstream.instance, record.name, state.class, kind)
end

-- True while the entries of a list that fails are served as they were: for `keep` seconds. Sets state.retry_s: the
-- lists are read again after as long as the one that failed last has been missing.
local function is_kept(record, state, kind)
  local key, now = missing_key(record, state, kind), host.time.now()
  local since = tonumber(host.store.get(key) or "") or now
  if since == now then host.store.set(key, ("%.6f"):format(now), record.keep + NOTED_S) end
  state.retry_s = math.min(state.retry_s or record.refresh, math.max(now - since, LEAST_RETRY_S), MOST_RETRY_S)
  return now - since < record.keep
end

-- Logs that a list is missing, or is there again, once for each change.
local function log_part(record, state, part)
  local was_missing = state.was_missing[part.list.method]
  if part.failure and not was_missing then
    host.log.write("warn", "upstream list missing", { upstream = record.name, list = part.list.method, why = part.failure.reason,
      status = part.failure.status, detail = part.failure.why })
  elseif was_missing and not part.failure then
    host.store.delete(missing_key(record, state, part.list.kind))
    host.log.write("info", "upstream list is there again", { upstream = record.name, list = part.list.method })
  end
end

-- The entries of a list that failed, or is not there yet: those that were read before for this class of clients, or else
-- for those that cannot be asked; or else those that came before the failure.
local function entries_before(record, state, part)
  if part.failure and not is_kept(record, state, part.list.kind) then return {} end
  local found = {}
  local before = state.before.hash ~= "" and state.before or catalogue.of(record.name, catalogue.class)
  for _, entry in ipairs(before.entries) do
    if entry.kind == part.list.kind then found[#found + 1] = entry end
  end
  return found[1] and found or part.entries
end

-- The text of the catalogue of what has been read, and the seconds after which the lists are to be read again if one
-- failed, or nil.
local function text_of(record, server_info, state)
  local entries, missing = {}, nil
  state.caching = {}
  for _, part in ipairs(state.parts) do
    local is_there = part.is_done and not part.failure
    if not is_there then
      missing = missing or {}
      local why = part.failure or { reason = "no answer yet" }
      missing[#missing + 1] = { list = part.list.method, why = why.reason, status = why.status }
    end
    local list = is_there and part.entries or entries_before(record, state, part)
    table.move(list, 1, #list, #entries + 1, entries)
    local kept = { [part.list.kind] = (state.before.facts.caching or {})[part.list.kind] }
    catalogue.add_caching(state.caching, { caching = is_there and part.caching or kept })
  end
  return catalogue.encode(facts_of(server_info, state, missing), entries), state.retry_s
end

--- The lists that a catalogue lacks, as a sentence for people; nil: it has all.
function lists.missing_text(facts)
  if not facts.missing then return nil end
  local parts = {}
  for i, one in ipairs(facts.missing) do parts[i] = ("%s (%s%s)"):format(one.list, one.why, one.status and " " .. one.status or "") end
  return "these lists could not be read: " .. table.concat(parts, ", ")
end

--- Begins a task that may read long lists. Returns what host.job.begin returns.
function lists.begin(f) return host.job.begin(f, lists.MAX_READ_S, MORE_CPU_S, MORE_BYTES) end

-- Reads the lists, each in a task of its own, one after the other while their answers come. After `patience` seconds those
-- that are left begin at once, and on_late() is called, once.
local function read_parts(record, server_info, state, way, patience, on_late)
  local changed, ends_at = host.task.event(), host.time.now() + patience
  for _, part in ipairs(state.parts) do
    local function run()
      local _ <close> = setmetatable({}, { __close = function()
        part.is_done = true
        changed:set()                                       -- wakes the task that reads all lists
        changed:clear()
      end })
      part.failure = { reason = "stopped" }                 -- if this task is ended
      part.failure = read_list(record, server_info, part, state, way)
    end
    if not part.is_done and not lists.begin(run) then run() end
    local left = ends_at - host.time.now()
    while not part.is_done and left > 0 do
      changed:wait(left)
      left = ends_at - host.time.now()
    end
  end
  local function is_reading()
    for _, part in ipairs(state.parts) do
      if not part.is_done then return true end
    end
  end
  if is_reading() and on_late then on_late() end
  while is_reading() do changed:wait(lists.MAX_READ_S) end
end

local function log_whole(record, state)
  for _, part in ipairs(state.parts) do log_part(record, state, part) end
  if state.is_cut then host.upstream.count_refused "lists" end
  if state.left_out > 0 or state.is_cut then
    host.log.write("warn", "upstream list incomplete", { upstream = record.name, left_out = state.left_out > 0 and state.left_out or nil, why = state.why,
      hint = state.is_cut and "a list has at most 10,000 entries, 32 MiB and 100 pages" or nil })
  end
  if state.repaired > 0 then
    host.log.write("warn", "upstream definitions repaired", { upstream = record.name, count = state.repaired, why = characters.shown(state.repaired_why),
      hint = "tell the people who run this server: `moonpool check --connect` names all of them" })
  end
  if state.in_circle > 0 then
    host.log.write("warn", "upstream leads back here", { upstream = record.name, left_out = state.in_circle, why = "loop",
      hint = "remove one of the upstreams by which gateways lead to each other" })
  end
end

-- True if the lists of a catalogue can stand beside others that are read now: they are complete, and were read of the
-- same server.
local function is_whole(facts, server_info)
  return facts.revision == server_info.revision and facts.transport == server_info.transport and not (facts.missing or facts.left_out or facts.in_circle
    or facts.is_cut)
end

-- Takes the lists over from the catalogue before, without those whose capability is in the set `only`.
local function keep_parts(state, server_info, only)
  local facts = state.before.facts
  if not (only and is_whole(facts, server_info)) then return end
  for _, part in ipairs(state.parts) do
    local list = part.list
    if not only[list.capability] and (facts.capabilities or {})[list.capability] ~= nil then
      part.is_done, part.is_answered, part.is_kept = true, true, true
      part.caching = { [list.kind] = (facts.caching or {})[list.kind] }
      for _, entry in ipairs(state.before.entries) do
        if entry.kind == list.kind then
          part.entries[#part.entries + 1] = entry
          state.bytes = state.bytes + #entry.definition + #entry.key
        end
      end
    end
  end
end

local function new_state(record, server_info, class, before)
  before = before or catalogue.of(record.name, class)
  local state = {
    class = class, before = before, known = known_entries(before), was_missing = {}, parts = {}, bytes = 0, left_out = 0, in_circle = 0, repaired = 0,
    caching = {},
  }
  for _, one in ipairs(before.facts.missing or {}) do state.was_missing[one.list] = true end
  local can = server_info.capabilities or {}
  state.bytes = #json.encode(facts_of(server_info, state)) + FACTS_BYTES
  local says_nothing = can.tools == nil and can.prompts == nil and can.resources == nil
  for _, list in ipairs(kinds) do
    if can[list.capability] ~= nil or (says_nothing and list.kind == "tools") then
      state.parts[#state.parts + 1] = { list = list, entries = {}, seen = {} }
    end
  end
  return state
end

local shared = { key = channel_key.shared, options = {} }

-- The failure of the whole reading: no list was answered, or a reload has changed or removed the upstream meanwhile; nil
-- for none.
local function failure_of_all(state)
  local first, is_answered = nil, false
  for _, part in ipairs(state.parts) do
    local failure = part.failure
    if failure and (failure.reason == "unknown" or failure.reason == "stopped") then return failure end
    first, is_answered = first or failure, is_answered or part.is_answered
  end
  return not is_answered and first or nil
end

--- Reads all lists of an upstream. `way`: { key, options } of the channel, and the class of the clients that the lists
--- are for, `kept_as`, the class of the catalogue if that is another, and `is_once`: the channel ends with this task;
--- nil: the shared channel, for clients that cannot be asked. `on_part(text)` is called once if an answer takes
--- long, with the lists that are there. `only`: the set of the capabilities ("tools", "prompts", "resources") whose lists
--- have changed: the others are taken from the catalogue before, which is `way.before` if that is set; nil: all are read.
--- Returns the text of the catalogue and, if lists are missing, the seconds after which they are to be read again; or nil
--- and a failure.
function lists.read(record, way, on_part, only)
  way = way or shared
  local options = way.is_once and { once = true, class = way.class } or way.options
  local channel, server_info = request.channel(record, way.key, options) -- held while this task runs
  if not channel then return nil, server_info end
  local state = new_state(record, server_info, way.kept_as or way.class or catalogue.class, way.before)
  keep_parts(state, server_info, only)
  read_parts(record, server_info, state, way, math.max(record.list_wait / 2, LEAST_PATIENCE_S), on_part and function()
    for _, part in ipairs(state.parts) do
      if part.is_done and not part.is_kept and not part.failure then return on_part((text_of(record, server_info, state))) end
    end
  end)
  local failure = failure_of_all(state)
  if failure then return nil, failure end
  log_whole(record, state)
  return text_of(record, server_info, state)
end

return lists
