-- The things that are served: tools and prompts by name, resources by URI and by template; and the pages of their lists
-- as JSON, made once for each revision and view. A thing that is switched off is in the registry and not in any list.
--   snapshot   what is served between two switches: the things that are on, and their lists. It is complete before it is published, and is then never
--              changed, except that its lists cache views. Any Lua code can be preempted, so a function takes the snapshot once and uses only that
--   view       the names in a list that a principal sees, and the pages made of them. Principals with the same scopes for that list
--              share a view; a list with a thing that has `visible` caches no views

local access = require "moonpool.access.access"
local apps = require "moonpool.protocol.apps"
local call_library = require "moonpool.protocol.call"
local content = require "moonpool.things.tool_result"
local errors = require "moonpool.runtime.rpc_error"
local hops = require "moonpool.upstream.hops"
local host = require "moonpool.host"
local listed_resources = require "moonpool.registry.listed_resources"
local json = require "moonpool.json"
local page = require "moonpool.protocol.cursor"
local plan = require "moonpool.registry.plan"
local principal = require "moonpool.access.principal"
local redact = require "moonpool.runtime.redact"
local sort = require "moonpool.runtime.stdlib.sort"
local sorted = require "moonpool.runtime.sorted_keys"
local suggest = require "moonpool.runtime.suggest"
local template = require "moonpool.things.template"
local upstreams = require "moonpool.upstream.config"
local uris = require "moonpool.runtime.uris"

local registry = {}

registry.tasks_extension = call_library.tasks_extension

-- Milliseconds for which a client may cache a list (Q-1): short, because the things of a saved script are served at
-- once.
local LIST_TTL_MS = 5000

local MAX_VIEWS = 64       -- limit of the cached views for each list

--- For each list: its method, the member of the result, and the word of its things in switches.
registry.kinds = {
  tools = { method = "tools/list", member = "tools", word = "tool" },
  prompts = { method = "prompts/list", member = "prompts", word = "prompt" },
  resources = { method = "resources/list", member = "resources", word = "resource" },
  templates = { method = "resources/templates/list", member = "resourceTemplates", word = "resource" },
}

-- What scripts and upstreams offer, switched on or not. The things of scripts are set while scripts load; those of
-- upstreams change while they are served: then `all` is replaced as a whole, so a function that uses two of its members
-- takes it once.
--   own          for each list, the things of scripts
--   everything   for each list, the things of scripts and of upstreams
--   by_word      "tool", "prompt", "resource" -> name -> the thing
--   offered      capabilities: a thing that is switched off counts as well
--   order        for each list, the names of the things of upstreams in their order
local all = { own = {}, everything = {}, order = {}, by_word = {}, offered = {}, has_lists = false }

local served = access.served      -- its member `now` is the snapshot

local function any(things, member)
  for _, thing in pairs(things) do
    if thing[member] then return true end
  end
  return false
end

local function has_pages(things)
  for uri in pairs(things) do
    if apps.is_page(uri) then return true end
  end
  return false
end

local OFF_KEYS = "kept:off:"      -- the store's file has keys that begin with "kept:"

--- The key of the store that has the switch of scripts for a thing.
function registry.switch_key(word, name) return "switch:" .. word .. ":" .. name end

--- The key that the store has while an operator has switched off a thing or an upstream (the word "upstream").
function registry.off_key(word, name) return OFF_KEYS .. word .. ":" .. name end

--- Limit of the things and upstreams that operators have switched off.
registry.MAX_OFF = 1000

-- The switches as they were read last: they hold while the store does not answer.
--   last_off      the keys of what operators have switched off
--   last_switch   thing -> the text at its switch_key, or false
--   unread        how many times they held
--   late          the things that were in the lists (thing -> true) when the store first did not answer; nil once the
--                 lists have followed
local last_off = {}
local last_switch = setmetatable({}, { __mode = "k" })
local unread = 0
local late

local function note_unread() unread = unread + 1 end

-- The keys of what operators have switched off: a list, which is not changed.
local function off_keys()
  local keys, why = host.store.keys(OFF_KEYS, registry.MAX_OFF)
  if why then note_unread() else last_off = keys end
  return last_off
end

--- The things that operators have switched off: a list of { word, name }.
function registry.held_off()
  local list = {}
  for i, key in ipairs(off_keys()) do list[i] = { key:match("^(%a+):(.*)$", #OFF_KEYS + 1) } end
  return list
end

local function was_off(key)
  for _, off in ipairs(last_off) do
    if off == key then return true end
  end
  return false
end

-- True if an operator has switched off the thing or upstream that a key of the store names.
local function is_key_off(key)
  local note, why = host.store.get(key)
  if not why then return note ~= nil end
  note_unread()
  return was_off(key)
end

--- True if an operator has switched off the thing or its upstream. Scripts cannot switch it on then.
function registry.is_held_off(word, thing)
  if is_key_off(registry.off_key(word, thing.name)) then return true end
  return thing.upstream ~= nil and is_key_off(registry.off_key("upstream", thing.upstream))
end

--- True if scripts have a thing on: by its entry in the store, else by its option `enabled`.
function registry.is_on_by_scripts(word, thing)
  local kept, why = host.store.get(registry.switch_key(word, thing.name))
  if not why then
    last_switch[thing] = kept or false
  else
    note_unread()
    kept = last_switch[thing] or nil
  end
  if kept then return kept == "on" end
  return thing.enabled ~= false
end

--- True if a thing is on: scripts have it on, and no operator has switched it off.
function registry.is_on(word, thing) return registry.is_on_by_scripts(word, thing) and not registry.is_held_off(word, thing) end

-- The names of things: those of scripts, sorted, then those of upstreams in `order`, a list of names; and the place of
-- each name, if upstreams have any.
local function names_of(things, order)
  if not (order and order[1]) then return sorted(things) end
  local listed, own, place = {}, {}, {}
  for _, name in ipairs(order) do listed[name] = true end
  for name, thing in pairs(things) do
    if not (thing.upstream and listed[name]) then own[name] = thing end
  end
  local names = sorted(own)
  for _, name in ipairs(order) do
    if things[name] and not own[name] then names[#names + 1] = name end
  end
  for i, name in ipairs(names) do place[name] = i end
  return names, place
end

-- A list of a snapshot: its method and member; the things that are on, by name, and their names in order, with their
-- places; whether scopes decide who sees an entry, and the scopes; whether an entry has `visible`, or differs between
-- clients; and the cached views, by the scopes of their principals.
local function new_list(kind, things, order, caching)
  local names, place = names_of(things, order)
  local list = {
    method = kind.method, member = kind.member, things = things, names = names, place = place, needs = {}, has_visible = false, has_variants = false,
    views = {}, view_count = 0,
  }
  local seen = {}
  for _, name in ipairs(list.names) do
    local thing = things[name]
    local key = thing.scopes and table.concat(thing.scopes, " ")
    if key and not seen[key] then seen[key], list.needs[#list.needs + 1] = true, thing.scopes end
    list.has_visible = list.has_visible or thing.visible ~= nil
    list.has_variants = list.has_variants or thing.resolve ~= nil
  end
  list.is_private = list.has_visible or list.has_variants or list.needs[1] ~= nil
  list.ttl = math.min(LIST_TTL_MS, caching and caching.ttl or LIST_TTL_MS)
  list.scope = (list.is_private or caching and caching.is_private) and "private" or "public"
  return list
end

-- The templates, the one with the most fixed characters first. Those of scripts come before those of upstreams, which
-- could fit anything.
local function sort_by_fit(templates)
  local list = {}
  for i, uri in ipairs(templates.names) do list[i] = templates.things[uri] end
  sort(list, function(a, b)
    if (a.upstream == nil) ~= (b.upstream == nil) then return a.upstream == nil end
    local left, right = a.template.literals, b.template.literals
    if left ~= right then return left > right end
    return a.uri < b.uri
  end)
  return list
end

-- A new snapshot. Its generation is taken before the switches are read: a snapshot of a later generation has each
-- switch as it was then, or later.
local function new_snapshot()
  local made = { generation = host.served.begin(), on = {}, off = { upstream = {} }, has_visible = false, has_private = false }
  local everything, off = all.everything, made.off
  for _, held in ipairs(registry.held_off()) do
    off[held[1]] = off[held[1]] or {}
    off[held[1]][held[2]] = true
  end
  for name, kind in pairs(registry.kinds) do
    local things = {}
    local off_names = off[kind.word] or {}
    for key, thing in pairs(everything[name]) do
      local is_held = off_names[thing.name] or off.upstream[thing.upstream or false]
      if not is_held and registry.is_on_by_scripts(kind.word, thing) then things[key], made.on[thing] = thing, true end
    end
    local list = new_list(kind, things, all.order[name], all.caching[name])
    made[name], made.has_visible, made.has_private = list, made.has_visible or list.has_visible, made.has_private or list.is_private
  end
  made.by_fit = sort_by_fit(made.templates)
  return made
end

local AWAY_S, AWAY_PAUSE_S = 3600, 0.1      -- seconds: how long an older process lives at most; between two questions to a store that does not answer
local waits_until = 0      -- monotonic seconds, while a background task waits for the store

-- Publishes another snapshot once the store answers.
local function refresh_later()
  if host.time.now() < waits_until then return end
  local over = host.time.now() + AWAY_S
  local function wait()
    repeat
      host.time.sleep(AWAY_PAUSE_S)
      local _, why = host.store.keys(OFF_KEYS, 1)
    until not why or host.time.now() >= over
    waits_until = 0
    if host.time.now() < over then registry.refresh() end
  end
  waits_until = over
  if not host.job.begin_own(wait, AWAY_S) then waits_until = 0 end      -- a VM that does not serve yet refreshes when it does
end

--- Called with the things that were in the lists (thing -> true) once the lists follow switches of which their clients
--- may not have been notified: the store could not be read when they were, or `tells` is passed to refresh.
function registry.on_caught_up() end

--- Publishes a new snapshot by the switches in the store, with its call plans, unless one of a later generation is
--- published meanwhile. True if the store answered; else another one is published once it does. `tells`: clients are
--- notified of what changes.
function registry.refresh(tells)
  local before, was_on = unread, served.now.on
  local since = late or tells and was_on
  local made = new_snapshot()
  local rows, scopes = plan.rows(made.tools.things)
  made.plan_scopes = scopes
  host.served.publish(served, made, made.generation, rows, made.has_private)
  if unread == before then
    late = nil
    if since then registry.on_caught_up(since) end
    return true
  end
  late = late or was_on
  refresh_later()
  return false
end

--- Makes the lists follow the switch of one thing, which has changed in the store. Returns what registry.refresh
--- returns.
function registry.follow(word, thing)
  local is_settled = host.served.is_settled()      -- before the switch is read: no snapshot with an older switch can be published from here on
  local before = unread
  local is_on = registry.is_on(word, thing)
  if is_settled and unread == before and is_on == not registry.is_off(thing) then return true end
  return registry.refresh()
end

--- True if a thing is in no list because it is switched off.
function registry.is_off(thing) return not served.now.on[thing] end

-- The things of scripts with those of upstreams, which never replace one of a script.
local function merged(own, federated)
  local everything = {}
  for kind in pairs(registry.kinds) do
    local things = {}
    for key, thing in pairs(federated and federated[kind] or {}) do things[key] = thing end
    for key, thing in pairs(own[kind]) do things[key] = thing end
    everything[kind] = things
  end
  return everything
end

-- The capabilities that the server declares. An upstream may add anything at any time, so a gateway with upstreams
-- declares all lists.
local function offers_of(own, everything, resources, has_pages_elsewhere)
  local has_upstreams = upstreams.has_any
  return {
    tools = true, logging = true,
    prompts = has_upstreams or next(everything.prompts) ~= nil,
    resources = has_upstreams or next(resources) ~= nil,
    completions = has_upstreams or any(everything.prompts, "complete") or any(everything.templates, "complete"),
    tasks = has_upstreams or any(own.tools, "task"),
    apps = has_pages_elsewhere or has_pages(everything.resources) or has_pages(everything.templates),
  }
end

local function replace(own, federated, order, has_pages_elsewhere, caching)
  local everything = merged(own, federated)
  local by_word = { tool = everything.tools, prompt = everything.prompts, resource = {} }
  for _, kind in ipairs { "resources", "templates" } do
    for _, thing in pairs(everything[kind]) do by_word.resource[thing.name] = thing end
  end
  all = {
    own = own, everything = everything, order = order or {}, by_word = by_word, offered = offers_of(own, everything, by_word.resource, has_pages_elsewhere),
    has_lists = any(own.templates, "list"), caching = caching or {},
  }
  registry.refresh()
end

--- Replaces the things of scripts: { tools, prompts, resources, templates }, each by name or URI. There are none of
--- upstreams then.
function registry.set(found)
  local own = {}
  for kind in pairs(registry.kinds) do own[kind] = found[kind] or {} end
  replace(own)
end

--- Replaces the things of upstreams: { tools, prompts, resources, templates }, each by name or URI; and `order`, the
--- lists of these names or URIs in the order in which clients see them. `has_pages_elsewhere`: upstreams have pages of
--- MCP Apps that no list names. `caching`: for each kind, how long upstreams let clients keep their lists, as of catalogue.add_caching.
function registry.set_federated(found, order, has_pages_elsewhere, caching) replace(all.own, found, order, has_pages_elsewhere, caching) end

--- The things of scripts of a kind: name or URI -> thing.
function registry.own(kind) return all.own[kind] end

--- True if a script serves a key of a kind: by this name or URI, or a URI by a template.
function registry.is_own(kind, key)
  if all.own[kind][key] then return true end
  for _, thing in pairs(kind == "resources" and all.own.templates or {}) do
    if template.match(thing.template, key) then return true end
  end
  return false
end

local left_out = { tools = {}, prompts = {} }      -- for each kind, the default names of the tools and prompts of files that were left out because of errors
for _, path in ipairs(host.script.left_out) do
  local folder, name = path:match "^(%l+)/(.+)%.lua$"
  if left_out[folder] then table.insert(left_out[folder], (name:gsub("/init$", ""):gsub("/", "_"))) end
end

--- True if a script that is left out because of its errors may have served a key of a kind. A thing of an upstream must
--- not take its place: the script may be there to guard it.
function registry.is_left_out(kind, key)
  for _, name in ipairs(left_out[kind] or {}) do
    if key == name or key:sub(1, #name + 1) == name .. "_" then return true end
  end
  return false
end

--- The things that scripts call "tool", "prompt" or "resource": name -> thing, on or off; nil for other words.
function registry.all(word) return all.by_word[word] end

local sorted_names = setmetatable({}, { __mode = "k" })      -- the things of a kind -> their names, sorted

--- All things of a kind, on or off, and their names, sorted. The names are kept for the next caller, so a caller must not
--- change them. The tables are replaced when things change.
function registry.everything(kind)
  local things = all.everything[kind]
  local names = sorted_names[things]
  if not names then
    names = sorted(things)
    sorted_names[things] = names
  end
  return things, names
end

local order = { "tools", "resources", "templates", "prompts" }

--- Calls visit(word, key, thing, kind) for all things, on or off: kind by kind, in the order of their names and URIs.
function registry.each(visit)
  for _, kind in ipairs(order) do
    local things, names = registry.everything(kind)
    for _, name in ipairs(names) do visit(registry.kinds[kind].word, name, things[name], kind) end
  end
end

--- True if a resource or template serves this URI, on or off.
function registry.serves(uri)
  uri = uris.normal(uri)
  local everything = all.everything
  if everything.resources[uri] then return true end
  for _, thing in pairs(everything.templates) do
    if template.match(thing.template, uri) then return true end
  end
  return false
end

-- The thing as the client of `call` has it, or nil; without a call, as clients have it that cannot be asked.
local function resolved(thing, call)
  if not thing.resolve then return thing end
  if call then return thing.resolve(call) end
  return not thing.is_absent and thing or nil
end

local function seen_names(list, p, call)
  local names = {}
  for _, name in ipairs(list.names) do
    local thing = resolved(list.things[name], call)
    if thing and access.sees(p, thing) then names[#names + 1] = name end
  end
  return names
end

-- The view of a principal, and of the client of a call, on a list: { names, pages = the encoded pages by revision }.
local function view_of(list, p, call)
  if list.has_visible or list.has_variants then return { names = seen_names(list, p, call), pages = {}, call = call } end
  local key = ""
  for i, scopes in ipairs(list.needs) do key = key .. (principal.allows(p, scopes) and i .. "," or "") end
  local view = list.views[key]
  if view then return view end
  if list.view_count >= MAX_VIEWS then list.views, list.view_count = {}, 0 end
  view = { names = list.is_private and seen_names(list, p) or list.names, pages = {} }
  list.views[key], list.view_count = view, list.view_count + 1
  return view
end

--- The thing of a kind with a name or URI, if it is on: "tools", "prompts", "resources" or "templates".
function registry.thing(kind, name) return served.now[kind].things[name] end

--- The things of a kind that are on, by name or URI, and their names in the order of the list. Neither may be changed.
function registry.served(kind)
  local list = served.now[kind]
  return list.things, list.names
end

--- The names of a kind that a principal sees, in the order of the list: "tools", "prompts", and the URIs of "resources"
--- and "templates".
function registry.names(kind, p) return view_of(served.now[kind], p).names end

--- The error for a name that no tool or prompt has which the principal of a call sees: nil and the error.
function registry.unknown(kind, call, name)
  if type(name) ~= "string" then return nil, errors.new("invalid_params", "params.name must be a string") end
  local what = "unknown " .. registry.kinds[kind].word .. " '" .. name:sub(1, 128) .. "'"
  return nil, errors.new("invalid_params", suggest.with_hint(what, name, registry.names(kind, call.principal)))
end

--- True if the server declares a capability: "prompts", "resources", "completions", "tasks".
function registry.offers(capability) return all.offered[capability] end

local details = {
  tools = { listChanged = true }, prompts = { listChanged = true }, resources = { subscribe = true, listChanged = true },
}

--- The server's capabilities, as a new table that the caller may change.
function registry.capabilities()
  local declared, extensions, offered = {}, {}, all.offered
  for _, name in ipairs { "tools", "prompts", "resources", "completions", "logging" } do
    if offered[name] then declared[name] = details[name] or {} end
  end
  if offered.apps then extensions[apps.extension] = {} end
  if offered.tasks then extensions[registry.tasks_extension] = {} end
  if next(extensions) then declared.extensions = extensions end
  return declared
end

local function find_resource(snapshot, uri)
  local fixed = snapshot.resources.things[uri]
  if fixed then return fixed, {} end
  for _, thing in ipairs(snapshot.by_fit) do
    local values = template.match(thing.template, uri)
    if values then return thing, values end
  end
end

--- The resource that serves `uri`, which is normalized, and the values of the template's variables; nil if no resource
--- serves it.
function registry.resource(uri) return find_resource(served.now, uri) end

--- The resource for a URI in no list that a result gave to the principal of a call, or that is the page of a tool, or
--- nil. Replaced by federation/federated.lua.
function registry.linked(_, _) end

--- The resource that serves `uri` for the principal of a call, the values of the template's variables, and the
--- generation for registry.freeze; nil, or nil and an error, if the principal may not use it. If a URI is also a
--- spelling of a second resource, a principal that may not use the second is refused.
function registry.open(call, uri)
  local snapshot = served.now
  local found, values = find_resource(snapshot, uri)
  if not found then
    found, values = registry.linked(call, uri), {}
    if found and snapshot.off.upstream[found.upstream] then found = nil end
  end
  local plain = found and uris.plain(uri)
  if found and plain ~= uri then
    local other = find_resource(snapshot, plain)
    local open, forbidden = access.find(call, other)
    if other and not open then return nil, forbidden end
  end
  local open, forbidden = access.find(call, found)
  if open then return open, values, snapshot.generation end
  return nil, forbidden
end

local function copy(value)
  if type(value) ~= "table" then return value end
  local made = {}
  for k, v in pairs(value) do made[k] = copy(v) end
  return setmetatable(made, debug.getmetatable(value))
end

-- The text that a cursor of a list holds, or nil if the principal may not use it. A list that did not differ between
-- principals may differ now, or the other way round: the cursors that it had before are good.
local function mark_in(method, cursor, p) return page.open(method, cursor, principal.key(p)) or page.open(method, cursor) end

-- The text that a cursor holds about the last entry of a page: its name, and its place in a list that is not sorted.
local function mark_of(list, name) return list.place and name .. "\0" .. list.place[name] or name end

-- The index in `names`, which are names of the list in its order, of the first entry behind the one that a cursor
-- marks. If the entry has gone, others have moved to its place.
local function index_behind(list, names, mark)
  local name, place = mark:match "^(.*)%z(%d+)$"
  if not list.place then return page.behind(names, name or mark) end
  name = name or mark
  local from = list.place[name] and list.place[name] + 1 or tonumber(place) or 1
  return page.first_behind(names, function(other) return list.place[other] >= from end)
end

--- The definition of one thing as the clients of a revision get it in its list; nil if the revision has no such list.
function registry.converted(kind, thing, era)
  local member, method = registry.kinds[kind].member, era.methods[registry.kinds[kind].method]
  if not method then return nil end
  local result = { [member] = json.array { copy(thing.definition) } }
  local convert = method.convert_result
  if convert then convert(result, all.everything[kind]) end
  return result[member][1]
end

-- The entry of a thing in a list for the clients of a revision.
local function entry_of(list, thing, convert, call)
  local found = resolved(thing, call)
  if not convert then
    return found.raw_of and found.raw_of()
      -- the definition that `define` made is stored nowhere else
      or found.define and found.definition or copy(found.definition)
  end
  local result = { [list.member] = json.array { found.define and found.definition or copy(found.definition) } }
  convert(result, list.things)
  return result[list.member][1]
end

-- Makes the page that begins at `first`: as many entries as limits.page has room for, at least one. Returns it as
-- json.raw, and as a string; and the index of its last entry if more follow. The cursor is missing in a list whose
-- cursors are bound to a principal.
local function make_page(list, view, first, era)
  local names, convert = view.names, era.methods[list.method].convert_result
  local entries, bytes, last = json.array {}, 0, nil
  for i = first, #names do
    local text = json.encode(entry_of(list, list.things[names[i]], convert, view.call))
    bytes = bytes + #text + 1
    if bytes > host.limits.page and i > first then
      last = i - 1
      break
    end
    entries[#entries + 1] = json.raw(text)
  end
  local result = {
    [list.member] = json.array {}, ttlMs = list.ttl, cacheScope = list.scope, resultType = "complete",
    _meta = content.meta,
  }
  if last and not list.is_private then result.nextCursor = page.cursor(list.method, mark_of(list, names[last])) end
  if convert then convert(result, list.things) end
  result[list.member] = entries
  local text, raw = json.encoded(result)
  return { text = text, raw = raw, last = last }
end

-- True if C may keep answers: not for specs of scripts, nor where C cannot write the audit lines of the requests.
local can_freeze = not redact.audits_values() and not host.script.has_specs

--- Gives C the bytes of an answer that every plain request of the revision gets until another snapshot is published:
--- the result of a list, or of resources/read for a URI. C refuses the bytes if the snapshot from which they were made,
--- of this generation, is no longer the published one.
function registry.freeze(generation, method, date, uri, bytes, metrics)
  if can_freeze then host.answers.freeze(generation, method, date, uri, bytes, metrics) end
end

-- True if lists may differ between clients: an upstream may list more for those that it can ask. Which these are is not
-- known before they ask.
local can_differ = false
for _, record in ipairs(upstreams.list) do can_differ = can_differ or (record.per ~= "gateway" and next(record.asks) ~= nil) end

-- The page of a list of a snapshot that begins at `first`. Pages are cached at the positions that clients reach by
-- reading page after page.
local function cached_page(snapshot, list, view, first, era)
  local pages = view.pages[era.date]
  if not pages then
    pages = { begins = { true } } -- begins[i]: a page begins at entry i
    view.pages[era.date] = pages
  end
  if pages[first] then return pages[first] end
  local made = make_page(list, view, first, era)
  if not pages.begins[first] then return made end
  pages[first] = made
  if made.last then pages.begins[made.last + 1] = true end
  if first == 1 and not list.is_private and not can_differ and not (list == snapshot.resources and all.has_lists) then
    registry.freeze(snapshot.generation, list.method, era.date, nil, made.text)
  end
  if not list.is_private then made.text = nil end -- page_for() needs it of lists alone that are private
  return made
end

-- One page of a list in a revision for a principal: JSON bytes, or nil and an error. In a list that differs between
-- principals, a cursor is accepted only from the principal that received it.
local function page_for(kind, era, cursor, call)
  local snapshot, p = served.now, call.principal
  local list, first = snapshot[kind], 1
  local view, owner = view_of(list, p, call), list.is_private and principal.key(p) or nil
  if cursor ~= nil and cursor ~= json.null then
    local name = mark_in(list.method, cursor, p)
    if not name then return nil, errors.new("invalid_params", "unknown cursor") end
    first = index_behind(list, view.names, name)
  end
  local made = cached_page(snapshot, list, view, first, era)
  if not owner or not made.last then return made.raw end
  local next_cursor = page.cursor(list.method, mark_of(list, view.names[made.last]), owner)
  return json.raw(made.text:sub(1, -2) .. ',"nextCursor":' .. json.encode(next_cursor) .. "}")
end

local key_of = { tools = "name", prompts = "name", resources = "uri", templates = "uriTemplate" }

-- The things of a kind by the keys that their definitions have: URIs of resources there are not normalized.
local function by_definition(kind)
  local things = served.now[kind].things
  if key_of[kind] == "name" then return things end
  local made = {}
  for uri, thing in pairs(things) do made[thing.listed or uri] = thing end
  return made
end

--- One page of a list for the client of a call: JSON bytes, or nil and an error. A client that is a gateway learns
--- where each thing comes from.
function registry.page(kind, era, cursor, call)
  local bytes, err = page_for(kind, era, cursor, call)
  if not bytes or not hops.is_gateway(call) then return bytes, err end
  local result = json.preserving(json.encode(bytes))
  hops.mark(result[served.now[kind].member], by_definition(kind), key_of[kind])
  return json.raw(json.encode(result))
end

-- The templates of a snapshot that list their resources and that the principal sees.
local function listing(snapshot, p, call)
  local found, templates = {}, snapshot.templates
  for _, uri in ipairs(view_of(templates, p, call).names) do
    local thing = templates.things[uri]
    if thing.list then found[#found + 1] = thing end
  end
  return found
end

--- True if any template lists its resources.
function registry.has_lists() return all.has_lists end

--- One page of resources/list with the resources that templates list: a result, or nil and an error; only nil if the
--- principal sees no such template. The scripts' functions are called again for each page; a page begins after the last
--- URI of the previous page.
function registry.page_with_instances(call, era, cursor)
  local p, snapshot = call.principal, served.now
  local resources = snapshot.resources
  local method, things = resources.method, listing(snapshot, p, call)
  if not things[1] then return nil end
  local behind
  if cursor ~= nil and cursor ~= json.null then
    behind = mark_in(method, cursor, p)
    if not behind then return nil, errors.new("invalid_params", "unknown cursor") end
    behind = behind:match "^[^%z]*"
  end
  local entries, seen = {}, {}
  for _, uri in ipairs(view_of(resources, p, call).names) do
    local thing = resolved(resources.things[uri], call)
    entries[#entries + 1], seen[uri] = thing.define and thing.definition or copy(thing.definition), true
  end
  for uri in pairs(all.everything.resources) do seen[uri] = true end
  for _, entry in ipairs(listed_resources.of(things, seen, call, era)) do entries[#entries + 1] = copy(entry) end
  sort(entries, function(a, b) return a.uri < b.uri end)
  local result = { resources = json.array {}, ttlMs = resources.ttl, cacheScope = "private", resultType = "complete", _meta = content.meta }
  local listed, bytes = result.resources, 0
  for _, entry in ipairs(entries) do
    if not behind or entry.uri > behind then
      bytes = bytes + #json.encode(entry) + 1
      if bytes > host.limits.page and listed[1] then
        result.nextCursor = page.cursor(method, listed[#listed].uri, principal.key(p))
        break
      end
      listed[#listed + 1] = entry
    end
  end
  if hops.is_gateway(call) then hops.mark(listed, by_definition "resources", "uri") end
  return result
end

registry.set {}

return registry
