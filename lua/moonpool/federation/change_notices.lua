-- Notifies clients of changed lists of upstreams. The lists of one upstream are read for several classes of clients, one
-- after the other. Notifications are held back meanwhile, in all workers, so that each client is notified once, and when
-- the lists of its class have the change.

local catalogue = require "moonpool.upstream.catalogue"
local class_library = require "moonpool.upstream.class"
local host = require "moonpool.host"
local subscriptions = require "moonpool.registry.subscriptions"

local change_notices = {}

local list_of = catalogue.list_of

-- True if clients get different definitions of two things.
local function differs(one, other)
  if one.upstream ~= other.upstream or one.original ~= other.original then return true end
  return one.text ~= other.text
end

-- Adds a changed entry to `changes`, the changed entries by the list in which clients see them. `was` and `is`: the things
-- of the kind, or nil.
local function add_change(changes, kind, was, is)
  local list = list_of[kind]
  changes[list] = changes[list] or {}
  table.insert(changes[list], { was = was and { scopes = was.scopes or {}, visible = was.visible ~= nil }, is = is, is_other = true })
end

-- A thing that is in the base lists, else nil.
local function of_base(thing) return thing and not thing.is_absent and thing or nil end

-- Adds the changed entries between two sets of things, where one of the two is of this upstream.
local function add_changes_between(changes, before, after, upstream)
  for kind in pairs(list_of) do
    local old, new = before[kind], after[kind]
    for key, thing in pairs(new) do
      local was, is = of_base(old[key]), of_base(thing)
      local is_meant = is and (is.upstream == upstream or was and was.upstream == upstream)
      if is_meant and (not was or differs(was, is)) then add_change(changes, kind, was, is) end
    end
    for key, thing in pairs(old) do
      if of_base(thing) and thing.upstream == upstream and not of_base(new[key]) then add_change(changes, kind, thing, nil) end
    end
  end
end

-- Adds the changed entries between two catalogues of a class. An entry that was removed is looked up in `things_before`.
local function add_changes_of_class(changes, upstream, before, after, things_before, things_now)
  local known = {}
  for _, entry in ipairs(before.entries) do known[entry.kind .. " " .. entry.key] = entry.definition end
  local function put(kind, original, things_then)
    for _, thing in pairs(things_then[kind]) do
      if thing.upstream == upstream and thing.original == original then add_change(changes, kind, thing, thing) end
    end
  end
  for _, entry in ipairs(after.entries) do
    local id = entry.kind .. " " .. entry.key
    if known[id] ~= entry.definition then put(entry.kind, entry.key, things_now) end
    known[id] = nil
  end
  for id in pairs(known) do
    local kind, original = id:match "^(%l+) (.*)$"
    put(kind, original, things_before)
  end
end

local function notify(changes)
  for list, entries in pairs(changes) do subscriptions.list_changed(list, entries) end
end

-- What clients see of an upstream: the things, and the catalogue of each class. Clients are not notified of the first
-- catalogue of a class, since no client has seen others.
local function seen(record, things)
  local made = { things = things, classes = {} }
  for _, name in ipairs(class_library.all) do made.classes[name] = catalogue.of(record.name, name) end
  return made
end

local HELD <const> = "upstream:reading:"
local function held_key(record, id) return HELD .. host.upstream.instance .. ":" .. record.name .. ":" .. id end

--- True while a worker reads the lists of an upstream for several classes and notifies the clients afterwards.
function change_notices.are_held(record) return (host.store.keys(held_key(record, ""), 1) or {})[1] ~= nil end

--- Holds back the notifications about the lists of an upstream, for at most `seconds`. `things`: f() -> the things that
--- this worker serves, with all catalogues that were published so far. Returns a table of functions: notify() notifies of
--- what has changed and ends the hold; notify_of_base() notifies of what the base lists have now; drop() only ends the hold.
function change_notices.hold(record, things, seconds)
  local before, key = seen(record, things()), held_key(record, ("%.6f"):format(host.time.now()))
  host.store.set(key, "", seconds)
  local held = {}
  function held.drop() host.store.delete(key) end
  function held.notify_of_base()
    local changes, after = {}, things()
    add_changes_between(changes, before.things, after, record.name)
    before.things = after
    notify(changes)
  end
  function held.notify()
    -- first: a worker that publishes the lists of a class from now on notifies of them itself
    held.drop()
    local after, changes = seen(record, things()), {}
    add_changes_between(changes, before.things, after.things, record.name)
    for name, was in pairs(before.classes) do
      local is = after.classes[name]
      if was.hash ~= "" and was.hash ~= is.hash then add_changes_of_class(changes, record.name, was, is, before.things, after.things) end
    end
    notify(changes)
  end
  return held
end

--- Notifies of the lists of a class that have changed: `was`, `is`: catalogues; `before`, `after`: things.
function change_notices.of_class(record, was, is, before, after)
  if was.hash == "" or change_notices.are_held(record) then return end
  local changes = {}
  add_changes_of_class(changes, record.name, was, is, before, after)
  notify(changes)
end

return change_notices
