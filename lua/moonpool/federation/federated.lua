-- The things of upstreams in the registry, beside those of scripts. They are made from the catalogues, which C keeps
-- for all workers. One worker at a time reads the lists of an upstream; every worker makes its things anew when a
-- catalogue has changed, and then its clients are notified. This file is long because making, reading and waiting share
-- the table `now`.

local absent = require "moonpool.federation.absent"
local access = require "moonpool.access.access"
local auth = require "moonpool.upstream.auth"
local bus = require "moonpool.runtime.bus"
local caller_lists = require "moonpool.federation.caller_lists"
local catalogue = require "moonpool.upstream.catalogue"
local change_notices = require "moonpool.federation.change_notices"
local characters = require "moonpool.runtime.characters"
local class_library = require "moonpool.upstream.class"
local class_lists = require "moonpool.federation.class_lists"
local config = require "moonpool.upstream.config"
local errors = require "moonpool.upstream.errors"
local script_handle = require "moonpool.upstream.script_handle"
local host = require "moonpool.host"
local json = require "moonpool.json"
local result_links = require "moonpool.upstream.result_links"
local lists = require "moonpool.upstream.lists"
local own_lists = require "moonpool.federation.own_lists"
local owners = require "moonpool.federation.owners"
local app_pages = require "moonpool.federation.app_pages"
local pins = require "moonpool.upstream.pins"
local policy = require "moonpool.things.policy"
local registry = require "moonpool.registry.registry"
local routes = require "moonpool.upstream.routes"
local scripts = require "moonpool.upstream.scripts"
local server_instructions = require "moonpool.federation.server_instructions"
local served_names = require "moonpool.upstream.served_names"
local make_things = require "moonpool.upstream.make_things"
local uris = require "moonpool.runtime.uris"
local wrapping = require "moonpool.upstream.wrapping"

local federated = {}

local TICK_S = 5             -- maximum seconds between two checks for lists that are due
local CLAIM_S = 0.05         -- seconds between two attempts to claim a reading
local LOOK_S = 0.5           -- seconds between two reads of the store, which says whether another worker has failed to read lists of a class
local CLASS = catalogue.class

local kinds = { "tools", "prompts", "resources", "templates" }
local list_of = catalogue.list_of

-- What this Lua state serves: for each list, key -> thing; `withheld`, by upstream, the things that clients do not get:
-- { kind, key, why, hint }; `withheld_keys`, by list and key, the entries among them. By upstream: `hashes` and `facts`
-- of its catalogue, and `classes`, the set of those whose lists were read. `pages`: of app_pages. `looks`: of tools and
-- prompts, look -> key. `listed`: name -> true for upstreams whose lists were read, even if empty now. `routes`: key of
-- a decision of owners.of -> { kind, key }, while an upstream lists the name or URI that it is about. `absent`: see
-- absent.lua.
local now = {
  things = { tools = {}, prompts = {}, resources = {}, templates = {} }, views = {}, withheld = {}, withheld_keys = {}, hashes = {}, facts = {},
  classes = {}, hidden = {}, pages = {}, looks = {}, listed = {}, routes = {},
  absent = { tools = {}, prompts = {}, resources = {}, templates = {} },
}

local settled = {}                          -- name -> true once its lists were read, or could not be read
local wanted, done = 0, 0                   -- changes of catalogues seen so far; how many of them the served lists include
local counted = 0                           -- host.upstream.publications() when `wanted` last grew
local is_attached = false                   -- true once scripts are loaded and this Lua state serves clients
local is_making = false                     -- a task makes the things
local made_of                               -- source_of_things() for the things that are in the registry
local changed = host.task.event()           -- an event that is set when `settled` or the things change

federated.begin = lists.begin

-- -- making the things -----------------------------------------------------------------------------------------------

local function withhold(made, name, kind, key, why, hint)
  local list = made.withheld[name] or {}
  made.withheld[name] = list
  list[#list + 1] = { kind = kind, key = key, why = why, hint = hint }
end

local RENAME <const> = "give one of the two a prefix, or rename it"
local WRAP <const> = "set `uris: wrap` for an upstream that has it"

local function remedy(kind) return (kind == "tools" or kind == "prompts") and RENAME or WRAP end

-- How a name looks, with the list that it is in: of two names that a person would take for each other only one is
-- served.
local function look_of(kind, key) return (kind == "tools" or kind == "prompts") and kind .. " " .. characters.look(key) or nil end

-- Notes that a catalogue has changed, or may have, so that all things are made again.
local function want()
  counted = host.upstream.publications()
  wanted = wanted + 1
end

-- The upstream that now serves a thing with this key, or one whose name looks the same (`look`: characters.look of the
-- name); nil: none does.
local function holder_of(kind, key, look)
  local thing = now.things[kind][look and now.looks[look] or key]
  return thing and thing.upstream
end

local LOGGED_S <const>, MOST_LOGGED <const> = 3, 20      -- a log line for each name once in LOGGED_S seconds, and at most MOST_LOGGED lines at once

-- Counts and logs a name that two upstreams have, once for all workers.
local function tell_withheld(loser, kind, key, owner, hint)
  host.upstream.count_refused "routes"
  if not host.store.take("upstream:withheld lines", LOGGED_S, MOST_LOGGED) then return end
  host.log.write("warn", "name withheld", { upstream = loser, name = characters.shown(key), taken_by = owner, hint = hint or remedy(kind) })
end

local ALIKE <const> = "`rename` it, if both are right"
local MAX_ROUTES <const> = host.limits.upstreams.list_items     -- decisions that a Lua state makes for all workers; more are its own

-- Decides between a thing and that of another upstream, which has its key or looks like it. True if the thing takes its
-- place.
local function take_place(made, record, kind, key, thing, before, held)
  local look = look_of(kind, key)
  local had = holder_of(kind, key, look)
  -- an upstream's first list gets the names that the order of the configuration gives it; later lists take none from
  -- others
  if had ~= before.upstream and not now.listed[before.upstream] then had = nil end
  local owner, route, is_new = owners.of(kind, look or key, before.upstream, record.name, had, is_attached and made.route_count < MAX_ROUTES)
  if not made.routes[route] and not now.routes[route] then made.route_count = made.route_count + 1 end
  made.routes[route] = { kind = kind, key = key }
  local is_taken = owner ~= before.upstream
  local loser, lost = record.name, thing
  if is_taken then loser, lost = before.upstream, before end
  if held == key then
    withhold(made, loser, kind, lost.original, ("upstream '%s' has this name"):format(owner), remedy(kind))
  else
    withhold(made, loser, kind, lost.original, ("its name looks like '%s'"):format(is_taken and key or held), ALIKE)
  end
  if is_new then tell_withheld(loser, kind, is_taken and held or key, owner, held ~= key and ALIKE or nil) end
  return is_taken
end

-- Adds a thing, unless its key belongs to a script or to another upstream.
local function add(made, record, kind, key, thing)
  local found = made.things[kind]
  if registry.is_own(kind, key) then
    withhold(made, record.name, kind, thing.original, "a script has this name", remedy(kind))
    return
  end
  if registry.is_left_out(kind, key) then
    withhold(made, record.name, kind, thing.original, "a script that may have this name has errors", "correct the script: `moonpool check` shows them")
    return
  end
  local look = look_of(kind, key)
  local held = look and made.looks[look] or key
  local before = found[held]
  if before and before.upstream ~= record.name then
    if not take_place(made, record, kind, key, thing, before, held) then return end
    found[held] = nil
  elseif held ~= key then                       -- held by a script, or by this upstream
    withhold(made, record.name, kind, thing.original, ("its name looks like '%s'"):format(held), ALIKE)
    return
  elseif before then
    withhold(made, record.name, kind, thing.original, ("upstream '%s' has this name"):format(record.name), remedy(kind))
    return
  end
  if look then made.looks[look] = key end
  policy.wrap(list_of[kind], thing.name, thing)
  found[key] = thing
end

-- Keeps the routes that are still needed; forgets the decisions about names and URIs that no upstream lists any more.
local function carry_routes(made)
  for route, one in pairs(now.routes) do
    local look = look_of(one.kind, one.key)
    if made.things[one.kind][look and made.looks[look] or one.key] then
      made.routes[route] = one
    elseif is_attached then
      owners.forget(route)
    end
  end
end

-- The keys of the things that are served, for each list: in the order of the upstreams in the configuration, then in
-- the order of the upstream.
local function ordered(made)
  local order = { tools = {}, prompts = {}, resources = {}, templates = {} }
  for _, list in ipairs(made.lists) do
    for _, one in ipairs(list) do
      local keys = order[one.kind]
      if made.things[one.kind][one.key] == one.thing then keys[#keys + 1] = one.key end
    end
  end
  return order
end

-- For each list, a hash of the part that clients see of upstreams: the keys, and the definitions as the configuration
-- and scripts change them.
local function views_of(made, order)
  local views = {}
  for _, kind in ipairs(kinds) do
    local parts = {}
    for i, key in ipairs(order[kind]) do
      local thing = made.things[kind][key]
      parts[i] = table.concat({ key, thing.upstream, thing.original, thing.look, table.concat(thing.scopes or {}, " ") }, "\0")
    end
    if parts[1] then views[kind] = host.base64.encode(host.digest.sum("sha256", table.concat(parts, "\n"))) end
  end
  return views
end

-- The things of one upstream for clients of a class.
local function things_of(record, class)
  local from = catalogue.of(record.name, class)
  local made = { hash = from.hash, facts = from.facts, list = {}, hidden = 0 }
  local script = scripts.of(record.name)
  for _, entry in ipairs(from.entries) do
    local why, hint = pins.why(record.name, entry)
    local thing, key = make_things.of(record, entry, script)
    if not thing then made.hidden = made.hidden + 1 end
    if thing then made.list[#made.list + 1] = { kind = entry.kind, key = key, thing = thing, why = why, hint = hint } end
  end
  return made
end

-- For each tool and prompt of scripts, its name with look-alike characters made equal (characters.look).
local function own_looks()
  local looks = {}
  for _, kind in ipairs { "tools", "prompts" } do
    for key in pairs(registry.own(kind)) do looks[look_of(kind, key)] = key end
  end
  return looks
end

local function make()
  local made = { things = { tools = {}, prompts = {}, resources = {}, templates = {} }, withheld = {}, withheld_keys = {}, hashes = {},
    looks = own_looks(), facts = {}, classes = {}, lists = {}, hidden = {}, listed = {}, routes = {}, route_count = 0, caching = {} }
  for _ in pairs(now.routes) do made.route_count = made.route_count + 1 end
  for _, record in ipairs(config.list) do
    local of = things_of(record, CLASS)
    made.hashes[record.name], made.facts[record.name] = of.hash, of.facts
    local is_personal = auth.is_personal(record)
    local function wrap(kind, thing) policy.wrap(list_of[kind], thing.name, thing) end
    made.classes[record.name] = (is_personal and caller_lists or class_lists).merge(record, of, things_of, wrap)
    catalogue.add_caching(made.caching, of.facts)
    for class in pairs(made.classes[record.name]) do catalogue.add_caching(made.caching, catalogue.of(record.name, class).facts) end
    made.hidden[record.name] = of.hidden
    made.listed[record.name] = host.upstream.catalogue_hash(record.name, CLASS) ~= nil or next(made.classes[record.name]) ~= nil
    if of.hash ~= "" or is_personal then settled[record.name] = true end
    made.lists[#made.lists + 1] = of.list
    local instructions = server_instructions.entry(record, of.facts)
    local why, hint = nil, nil
    if instructions then why, hint = server_instructions.why(record, instructions) end
    if why then withhold(made, record.name, instructions.kind, instructions.key, why, hint) end
    for _, one in ipairs(of.list) do
      if one.why then
        withhold(made, record.name, one.kind, one.thing.original, one.why, one.hint)
        made.withheld_keys[one.kind .. " " .. one.key] = one.thing
      else
        add(made, record, one.kind, one.key, one.thing)
      end
    end
  end
  carry_routes(made)
  return made
end

-- -- changes ---------------------------------------------------------------------------------------------------------

local function wake()
  changed:set()
  changed:clear()
end

-- -- facts for people ------------------------------------------------------------------------------------------------

local MAX_TOLD <const> = 50           -- limit of the withheld things, and of the warnings about definitions, of one upstream in /status

local function word_of(kind) return pins.kinds[kind] end

-- The entries of the catalogue in force, with the instructions of the upstream if clients get them.
local function judged_entries(record)
  local of = catalogue.of(record.name, CLASS)
  local instructions = server_instructions.entry(record, of.facts)
  return instructions and table.move(of.entries, 1, #of.entries, 2, { instructions }) or of.entries
end

local function doubts_of(record)
  local list = json.array {}
  for _, entry in ipairs(judged_entries(record)) do
    local function add_doubt(why)
      if why and #list < MAX_TOLD then list[#list + 1] = { kind = word_of(entry.kind), name = entry.key, why = why } end
    end
    add_doubt(served_names.doubt(record, entry))
    for _, doubt in ipairs(entry.facts.doubts or {}) do add_doubt(doubt) end
    if #list == MAX_TOLD then break end
  end
  return list
end

-- Stores for /status the things of each upstream that clients see, and those that they do not see.
local function describe()
  local counts = federated.counts()
  for _, record in ipairs(config.list) do
    local withheld = json.array {}
    for i, one in ipairs(now.withheld[record.name] or {}) do
      if i > MAX_TOLD then break end
      withheld[i] = { kind = word_of(one.kind), name = one.key, why = one.why, hint = one.hint }
    end
    local doubts = doubts_of(record)
    local facts = json.encode { served = counts[record.name], is_pinned = pins.has(record.name) or nil, withheld = withheld[1] and withheld,
      doubts = doubts[1] and doubts }
    if not host.upstream.describe(record.name, facts:sub(2, -2)) then
      host.upstream.describe(record.name, json.encode({ served = counts[record.name] }):sub(2, -2))
    end
  end
end

-- Key of the store: for each list, a hash of its entries from upstreams as clients see them. After a reload that
-- changes filters or names, the hash differs.
local VIEWS <const> = "upstream:views"

local function keep_views()
  local text = json.encode(json.object(now.views))
  if host.store.get(VIEWS) ~= text then host.store.set(VIEWS, text) end
end

-- A text that differs if the things would be made of other catalogues.
local function source_of_things()
  local parts = {}
  for _, record in ipairs(config.list) do
    parts[#parts + 1] = host.upstream.catalogue_hash(record.name, CLASS) or "-"
    if auth.is_personal(record) then
      parts[#parts + 1] = caller_lists.fingerprint(record)
    else
      for _, name in ipairs(class_library.all) do parts[#parts + 1] = host.upstream.catalogue_hash(record.name, name) or "-" end
      parts[#parts + 1] = caller_lists.fingerprint(record)
    end
  end
  return table.concat(parts, "\0")
end

-- True if this Lua state has made the things of these catalogues already, as the worker that published them has when
-- the bus message arrives.
local function has_things_of(source, until_here)
  if made_of ~= source then return false end
  done = math.max(done, until_here)
  routes.suspend(done < wanted)
  wake()
  return true
end

-- Makes all tools, resources and prompts of upstreams again, from the lists that are known now.
local function rebuild()
  is_making = true                            -- set first: this task can be preempted, and no other task is to make the things meanwhile
  local _ <close> = setmetatable({}, { __close = function()
    is_making = false
    wake()
  end })
  local until_here, source = wanted, source_of_things()
  if has_things_of(source, until_here) then return end
  local made = make()
  local order = ordered(made)
  made.views, made.pages = views_of(made, order), app_pages.gather(made.things.tools, order.tools)
  registry.set_federated(made.things, order, app_pages.are_offered(made.pages, made.classes), made.caching)
  made.absent = absent.carry(now, made)
  now = made                                  -- set last: a task that waits for lists looks here, then in the registry
  if is_attached then
    describe()
    keep_views()
  end
  made_of = source
  done = math.max(done, until_here)
  routes.suspend(done < wanted)
end

-- Returns once the things have every change that this Lua state knows of. One task makes them, which others wait for;
-- if it is cancelled, another does.
local function catch_up()
  while done < wanted do
    if is_making then
      changed:wait(1)
    else
      rebuild()
    end
  end
end

-- -- reading the lists -----------------------------------------------------------------------------------------------

local function fresh_key(record) return "upstream:fresh:" .. record.name end
local function began_key(record, kind) return ("upstream:began:%s:%s:%s"):format(host.upstream.instance, record.name, kind) end
local function down_key(record) return "upstream:down:" .. record.name end

-- An entry that is there while the things of an upstream whose lists cannot be read stay.
local function keep_key(record) return "upstream:keep:" .. record.name end

local MAX_LOGGED <const> = 20         -- lines about one reading of lists

local line_order = { __order = { "event", "upstream", "kind", "name", "definition", "approved", "before" } }

local function log_definition(event, level, record, entry, facts)
  facts.upstream, facts.kind, facts.name = record.name, word_of(entry.kind), characters.shown(entry.key)
  host.log.write(level, event, facts)
  if host.config.audit then
    local line = setmetatable({ event = event, upstream = facts.upstream, kind = facts.kind, name = facts.name, definition = facts.now,
      approved = facts.approved, before = facts.before, why = facts.why }, line_order)
    host.log.audit(json.encode(line):sub(2, -2))
  end
end

-- Logs the definitions that have changed since the last reading, and those that are withheld because of their contents.
-- `before` and `after` are catalogues.
local function log_changes(record, before, after)
  local known, count = {}, 0
  for _, entry in ipairs(before) do known[entry.kind .. " " .. entry.key] = entry.facts.hash end
  for _, entry in ipairs(after) do
    local was, is = known[entry.kind .. " " .. entry.key], entry.facts.hash
    local why, hint = pins.why(record.name, entry)
    if count < MAX_LOGGED and was ~= is and (was or why) then
      count = count + 1
      if why then
        local approved = pins.hash(record.name, entry.kind, entry.key)
        log_definition("definition withheld", "warn", record, entry, { why = why, hint = hint, now = is, approved = approved })
      else
        log_definition("definition changed", pins.has(record.name) and "info" or "warn", record, entry, { before = was, now = is })
      end
    end
  end
end

-- Logs, once for each reading, that clients see new things under other names because of the characters of their own.
local function log_names(record, before, after)
  local known, count, first = {}, 0, nil
  for _, entry in ipairs(before) do known[entry.kind .. " " .. entry.key] = true end
  for _, entry in ipairs(after) do
    if not known[entry.kind .. " " .. entry.key] and served_names.doubt(record, entry) then count, first = count + 1, first or entry.key end
  end
  if count == 0 then return end
  host.log.write("warn", "upstream names changed", { upstream = record.name, count = count, name = characters.shown(first),
    seen_as = served_names.shown(record, first), hint = "many clients refuse such names; `names: as_is` keeps them, `rename` chooses others" })
end

-- Publishes a catalogue. Workers are notified before clients, so that no client gets an older list after its
-- notification.
local function publish(record, text, claim)
  local listed = judged_entries(record)
  if not host.upstream.publish(record.name, CLASS, text, claim) then return end
  want()
  catch_up()
  if text ~= "" then
    local entries = judged_entries(record)
    log_changes(record, listed, entries)
    log_names(record, listed, entries)
  end
end

-- Publishes the lists of a single channel, if they are not those of its class. Only its clients are notified.
local function publish_own(record, name, text, claim)
  local seen = own_lists.seen(record, name)
  text = own_lists.kept(record, name, text)
  if text == "" and catalogue.of(record.name, name).hash == "" then return end
  if not host.upstream.publish(record.name, name, text, claim) then return end
  want()
  catch_up()
  own_lists.tell(record, name, seen)
end

-- Publishes the lists of a class. Clients are notified of changes, but not of the first lists, since no client has seen
-- others.
local function publish_class(record, name, text, claim)
  if own_lists.is_own(name) then return publish_own(record, name, text, claim) end
  local before, things_before = catalogue.of(record.name, name), now.things
  if not host.upstream.publish(record.name, name, text, claim) then return end
  want()
  catch_up()
  change_notices.of_class(record, before, catalogue.of(record.name, name), things_before, now.things)
end

-- Reads the lists of a class; see class_lists.read. False if another task does.
local function read_class(record, name, is_awaited, since, only)
  local facts = now.facts[record.name] or {}
  local is_mine = class_lists.read(record, facts, name, function(text, claim) publish_class(record, name, text, claim) end, is_awaited, since, only)
  if is_mine and not now.classes[record.name][name] and catalogue.of(record.name, name).hash ~= "" then -- another worker has published these lists just now
    want()
    catch_up()
  end
  return is_mine
end

-- Reads the lists of the classes that are due, each in a task of its own, and returns when all were read, or an
-- upstream's `list_wait` is over.
local function read_classes(record, began)
  local left, ends_at = 0, host.time.now() + record.list_wait
  for _, name in ipairs(class_lists.known(record)) do
    local has_begun = federated.begin(function()
      local _ <close> = setmetatable({}, { __close = function()
        left = left - 1
        wake()
      end })
      -- another task may be reading them for a client
      while not read_class(record, name, false, began - record.refresh / 2) and host.time.now() < ends_at do changed:wait(CLAIM_S) end
    end)
    left = left + (has_begun and 1 or 0)
  end
  while left > 0 and host.time.now() < ends_at do changed:wait(ends_at - host.time.now()) end
end

-- The things that this Lua state serves, with all that was published until now.
local function things_now()
  federated.keep_up()
  return now.things
end

-- The lists of an upstream cannot be read: its things stay for `keep` seconds, then they are removed. The next tick
-- reads the lists again.
local function on_failure(record, failure, claim)
  host.store.delete(fresh_key(record))
  absent.note(record, failure)
  if host.store.add(down_key(record), "1") then
    if not host.store.set(keep_key(record), "1", math.max(record.keep, 0.001)) then host.store.delete(down_key(record)) end
    host.log.write("warn", "upstream lists cannot be read", { upstream = record.name, why = failure.reason, status = failure.status, detail = failure.why })
  end
  local hash, size = host.upstream.catalogue_hash(record.name, CLASS)
  if hash and size > 0 and host.store.get(down_key(record)) and not host.store.get(keep_key(record)) then publish(record, "", claim) end
end

--- Called after the lists of an upstream were read, and at an interval. Replaced by federation/notifications.lua.
function federated.on_read(_) end
function federated.on_tick(_) end

-- Reads the lists for clients that cannot be asked; `only`: as for federated.read. Returns true if there are lists.
local function read_base(record, claim, held, only, began)
  local _, _, was_stale = host.upstream.catalogue_hash(record.name, CLASS)
  if was_stale or not host.store.get(fresh_key(record)) then only = nil end
  for _, kind in ipairs(class_lists.kinds) do
    if not only or only[kind] then host.store.set(began_key(record, kind), ("%.6f"):format(began)) end
  end
  local _ <close> = setmetatable({}, { __close = function() host.bus.broadcast("upstream settled", record.name) end })
  -- `rest`: the seconds after which lists that are missing are tried again; without `text`, the failure
  local text, rest = lists.read(record, nil, function(part)
    publish(record, part, claim)
    held.notify_of_base()
  end, only)
  if not text then
    on_failure(record, rest, claim)
    return false
  end
  host.store.delete(down_key(record))
  absent.note(record, nil)
  if rest or not only then host.store.set(fresh_key(record), "", rest or record.refresh) end
  publish(record, text, claim)
  if was_stale then class_lists.forget(record, began) end -- a reload has changed the connection
  return true
end

--- Reads the lists of an upstream now, then those of each class of clients, and notifies the clients. False if another
--- task, of any worker, is reading them. `only`: the set of the lists that may have changed; nil: all. Lists that belong
--- to single callers are read when such a caller needs them.
function federated.read(record, only)
  if auth.is_personal(record) then return true end
  local claim <close> = host.upstream.claim(record.name, CLASS)
  if not claim then return false end
  local began, is_passed_on = host.time.now(), false
  local held = change_notices.hold(record, things_now, lists.MAX_READ_S + record.list_wait)
  local _ <close> = setmetatable({}, { __close = function()
    if not is_passed_on then held.drop() end
  end })
  local has_lists = read_base(record, claim, held, only, began)
  local function finish()
    local _ <close> = setmetatable({}, { __close = held.drop })
    if has_lists then read_classes(record, began) end
    held.notify()
  end
  is_passed_on = federated.begin(finish)
  if not is_passed_on then finish() end
  if has_lists then federated.on_read(record) end
  return true
end

--- The lists of an open channel that clients use may have changed, those of the set `only`, or nil: all. They are read in
--- it, unless they were since `since`. `class`: that of own_lists.of_event.
function federated.read_own(record, class, since, only)
  while not read_class(record, class, false, since or math.huge, only) do changed:wait(LOOK_S) end
end

--- True if a reading of the lists of the set `only`, or nil: of all, began after `since` (host.time.now()), in any worker.
function federated.has_begun(record, since, only)
  for _, kind in ipairs(class_lists.kinds) do
    if (not only or only[kind]) and (tonumber(host.store.get(began_key(record, kind)) or "") or 0) <= since then return false end
  end
  return true
end

--- True while clients are not notified yet of lists that were read.
federated.is_notifying = change_notices.are_held

--- Makes the lists due: the next tick reads them.
function federated.forget(record) host.store.delete(fresh_key(record)) end

local function read_soon(record) federated.begin(function() federated.read(record) end) end

local function is_due(record)
  if auth.is_personal(record) then return false end
  if not host.store.get(fresh_key(record)) then return true end
  local hash, _, is_stale = host.upstream.catalogue_hash(record.name, CLASS)
  return hash == nil or is_stale
end

local function read_due()
  for _, record in ipairs(config.list) do
    if is_due(record) then read_soon(record) end
  end
end

--- Reads the lists that are due. One worker calls it at an interval.
function federated.tick()
  read_due()
  for _, record in ipairs(config.list) do federated.on_tick(record) end
  owners.refresh(now.routes)
  host.store.delete("job:running:" .. federated.job)
end

-- Reads the lists of a caller in this task.
local function read_caller(record, identity, class)
  caller_lists.read(record, identity, class, function(text, claim) publish_class(record, class, text, claim) end)
end

--- The answer to a request has shown that the lists are out of date: they are read before the request is sent again.
function make_things.on_stale(record, call)
  local identity = auth.identity(record, call)
  if identity then return read_caller(record, identity, catalogue.of_caller(identity.owner)) end
  local ends_at = host.time.now() + record.list_wait
  host.store.delete(fresh_key(record))
  -- a reading that is in progress may have begun before the error: then the lists are read again
  while not federated.read(record) and host.time.now() < ends_at do changed:wait(0.05) end
end

function make_things.facts_now(record, entry, call)
  for _, one in ipairs(catalogue.of(record.name, caller_lists.class_of(record, call) or CLASS).entries) do
    if one.kind == entry.kind and one.key == entry.key then return one.facts end
  end
  return entry.facts
end

-- -- this Lua state --------------------------------------------------------------------------------------------------

local function on_catalogue()
  want()
  routes.suspend(true)
  federated.begin(catch_up)
end

bus.on("catalogue", on_catalogue)

bus.on("upstream settled", function(name)
  settled[name] = true
  wake()
end)

bus.on("missed", function()
  if not config.has_any then return end
  -- It is not known which upstreams were read: no request waits for their lists any more. A list that is still being
  -- read is published when it arrives.
  for _, record in ipairs(config.list) do settled[record.name] = true end
  wake()
  on_catalogue()
end)

-- True while lists of an upstream are read for the first time.
local function is_waiting()
  for _, record in ipairs(config.list) do
    if not settled[record.name] then return true end
  end
  return false
end

local is_settled = not config.has_any
local began

local reading = {}          -- name .. " " .. class -> true while a task of this Lua state reads the lists of the class
local tried = {}            -- name .. " " .. class -> true once the lists of the class were read, or could not be read

-- Begins to read the lists of a class for a client, in a task that continues if the client's call ends first.
local function read_class_soon(record, name, id)
  if reading[id] then return end
  reading[id] = federated.begin(function()
    local is_mine = true
    local _ <close> = setmetatable({}, { __close = function()
      reading[id], tried[id] = nil, is_mine or nil
      wake()
    end })
    is_mine = read_class(record, name, true)
  end)
  if not reading[id] then tried[id] = true end
end

-- Waits until is_there(key, value) is true for each entry of `missing`, at most until the time `ends_at`.
local function await_lists(missing, ends_at, is_there)
  while true do
    for key, value in pairs(missing) do
      if is_there(key, value) then missing[key] = nil end
    end
    local left = ends_at - host.time.now()
    if next(missing) == nil or left <= 0 then return end
    changed:wait(math.min(left, LOOK_S))
  end
end

-- Waits until the lists of the class of a call's client were read; older lists are read again meanwhile.
local function settle_class(call)
  local missing, ends_at = {}, host.time.now()
  for _, record in ipairs(config.list) do
    local facts = now.facts[record.name] or {}
    local name = facts.revision and not auth.is_personal(record) and class_lists.of(record, facts, call) or CLASS
    if name ~= CLASS then
      local id, is_known = record.name .. " " .. name, now.classes[record.name][name]
      if not is_known and not class_lists.has_failed(record, name) or class_lists.is_due(record, name) then
        tried[id] = is_known and tried[id] or nil
        read_class_soon(record, name, id)
        if not is_known then missing[id], ends_at = { record, name }, math.max(ends_at, host.time.now() + record.list_wait) end
      end
      class_lists.want(record, name)
    end
  end
  await_lists(missing, ends_at, function(id, one)
    return tried[id] or now.classes[one[1].name][one[2]] or class_lists.has_failed(one[1], one[2])
  end)
end

-- Waits until the lists of a call's caller were read at these upstreams, or could not be read; older lists are read
-- again meanwhile.
local function settle_callers(call, records)
  local missing, ends_at = {}, host.time.now()
  local function is_there(record, class) return now.classes[record.name][class] or caller_lists.failure_of(record, class) ~= nil end
  for _, record in ipairs(records) do
    local identity = auth.identity(record, call)
    local class = identity and catalogue.of_caller(identity.owner)
    if class and caller_lists.is_due(record, class) then
      federated.begin(function()
        local _ <close> = setmetatable({}, { __close = wake })
        read_caller(record, identity, class)
      end)
    end
    if class and not is_there(record, class) then missing[record], ends_at = class, math.max(ends_at, host.time.now() + record.list_wait) end
  end
  await_lists(missing, ends_at, is_there)
end

local is_list = { ["tools/list"] = true, ["prompts/list"] = true, ["resources/list"] = true, ["resources/templates/list"] = true }
local list_of_method = { ["tools/call"] = "tools", ["prompts/get"] = "prompts" }

-- True if a request is about a thing that this Lua state knows, so that no list must be read for it.
local function is_known(method, params)
  if list_of_method[method] then return registry.thing(list_of_method[method], params.name) ~= nil end
  return not is_list[method]
end

-- True if a thing is not known, or belongs to the lists of callers.
local function may_be_of_caller(thing) return thing == nil or thing.upstream ~= nil and auth.is_personal(config.by_name[thing.upstream]) end

-- The upstreams with lists for each caller that may have the thing of a request, where no other list has it.
local function callers_for(method, params)
  local kind, key, found = list_of_method[method], params.name, {}
  if kind then
    local is_open = type(key) == "string" and may_be_of_caller(registry.thing(kind, key))
    for _, record in ipairs(is_open and caller_lists.records or {}) do
      if key:sub(1, #record.prefix) == record.prefix then found[#found + 1] = record end
    end
    return found
  end
  local ref = type(params.ref) == "table" and params.ref or params
  if type(ref.uri) == "string" and not may_be_of_caller((registry.resource(uris.normal(ref.uri)))) then return found end
  if type(ref.name) == "string" and not may_be_of_caller(registry.thing("prompts", ref.name)) then return found end
  return caller_lists.records
end

--- Waits until the lists that clients see are complete, or an upstream's `list_wait` is over: called before a request
--- that depends on them. If the lists of an upstream could not be read, also those for this caller alone, it may have the
--- requested thing: returns an error with the reason that they could not be read.
function federated.settle(call, method, params)
  federated.settle_base()
  if config.has_any and not is_known(method, params) then settle_class(call) end
  local is_found = list_of_method[method] and is_known(method, params)
  local refusal = config.has_any and not is_found and not is_list[method] and absent.refusal(now, method, params)
  if refusal then return refusal end
  if not caller_lists.records[1] then return nil end
  local records = callers_for(method, params)
  settle_callers(call, records)
  for _, record in ipairs(list_of_method[method] and records or {}) do
    local class, denied = caller_lists.class_of(record, call)
    local is_there = class and now.classes[record.name][class]
    if not is_there then return errors.of(record, denied or caller_lists.failure(record, class)) end
  end
end

-- Waits until a task of the gateway has made the things: a client's call does not pay for that.
local function wait_for_things()
  while done < wanted do
    if not is_making and not federated.begin(catch_up) then return catch_up() end
    changed:wait(1)
  end
end

--- Waits until this Lua state has made the things of the lists that were published last, also if the bus message about
--- them has not arrived yet: a client may have seen them through another worker.
function federated.keep_up()
  if counted ~= host.upstream.publications() then want() end
  if done < wanted then wait_for_things() end
end

--- Waits until the lists for clients that can answer no question were read.
function federated.settle_base()
  federated.keep_up()
  if is_settled then return end
  began = began or host.time.now()
  while is_waiting() do
    local left = 0
    for _, record in ipairs(config.list) do
      if not settled[record.name] then left = math.max(left, began + record.list_wait - host.time.now()) end
    end
    if left <= 0 then return end
    changed:wait(left)
  end
  is_settled = true
  if done < wanted then wait_for_things() end
end

--- Waits until the first reading of an upstream's lists is over, for at most its `list_wait`: `upstream "NAME"`:tools()
--- needs them. The lists of a caller whose own token is sent are those for the call.
function script_handle.settle(record, call)
  if host.script.has_specs then return end                      -- in specs of scripts no list is read
  if auth.is_personal(record) then return settle_callers(call, { record }) end
  local ends_at = host.time.now() + record.list_wait
  while not settled[record.name] and not host.upstream.catalogue_hash(record.name, CLASS) do
    local left = ends_at - host.time.now()
    if left <= 0 then return end
    changed:wait(left)
  end
end

--- Makes the things of the catalogues that are known already, and plans the reading of lists. Called while scripts
--- load.
function federated.load()
  if not config.has_any then return end
  rebuild()
  local every = TICK_S
  for _, record in ipairs(config.list) do every = math.min(every, math.max(record.refresh / 2, 0.1), math.max(record.keep / 2, 0.1)) end
  if not host.script.has_specs then host.job.schedule(federated.job, every, lists.MAX_READ_S) end
end

federated.job = "moonpool/upstreams"

-- This Lua state begins to serve. Its things are made again, as a catalogue may have changed meanwhile; lists that were
-- never read are read.
if not config.has_any and not host.script.has_specs then
  bus.on("attached", function()
    if host.store.get(VIEWS) then host.store.delete(VIEWS) end
  end)
end
if config.has_any and not host.script.has_specs then
  bus.on("attached", function()
    is_attached, made_of = true, nil
    began = host.time.now()
    federated.begin(function()
      want()
      catch_up()
      read_due()
    end)
  end)
end

--- The kinds of upstreams' things whose definitions differ from those of the generation that serves now: for reloads.
function federated.changed_kinds()
  local before, changed_list = json.decode(host.store.get(VIEWS) or "{}"), {}
  for _, kind in ipairs(kinds) do
    if before[kind] ~= (now.views or {})[kind] then changed_list[#changed_list + 1] = kind end
  end
  return changed_list
end

--- Facts for `moonpool upstreams`: by name, how many things clients see, and how many are withheld.
function federated.counts()
  local counts = {}
  for _, record in ipairs(config.list) do
    counts[record.name] = { tools = 0, prompts = 0, resources = 0, withheld = #(now.withheld[record.name] or {}), hidden = now.hidden[record.name] or 0 }
  end
  for _, kind in ipairs(kinds) do
    for _, thing in pairs(now.things[kind]) do
      local of, list = counts[thing.upstream], list_of[kind]
      of[list] = of[list] + 1
    end
  end
  return counts
end

--- The hashes of a thing of an upstream: of its definition, and of the approved one, by the list and the name or URI
--- that clients use. nil for others.
function federated.hashes(kind, key, call)
  local served = now.things[kind][key]
  local thing = served or now.withheld_keys[kind .. " " .. key]
  if not thing then return nil end
  thing = thing.resolve and thing.resolve(call) or thing
  local approved = pins.hash(thing.upstream, kind, thing.original)
  -- a definition that is served is approved, by a hash of the older or the newer form
  return thing.facts.hash, approved and served and thing.facts.hash or approved
end

function wrapping.is_served(uri) return registry.serves(uri) end

function registry.linked(call, uri)
  local thing = config.has_any and not registry.serves(uri) and (result_links.open(call, uri) or app_pages.open(call, now.pages, uri))
  if thing then policy.wrap("resources", thing.name, thing) end
  return thing or nil
end

--- True if a principal sees a thing: for `upstream "NAME"`.tools().
federated.sees = access.sees

return federated
