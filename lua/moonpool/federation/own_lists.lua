-- Lists of single channels. What an upstream lists can depend on what was done in a session of it: after a login there
-- are more tools in this session. When the upstream notifies of a change on a channel that clients' calls use, its
-- lists are read in this channel, and if they are others than those of its class, only the clients of this channel see
-- them, and they alone are notified. Their class is "@", the key of the channel, "#" and the serial number of the
-- channel, so that the lists end with the channel.

local catalogue = require "moonpool.upstream.catalogue"
local channel_key = require "moonpool.upstream.channel_key"
local forward = require "moonpool.upstream.forward"
local host = require "moonpool.host"
local subscriptions = require "moonpool.registry.subscriptions"

local own_lists = {}

-- name of an upstream -> the set of the classes whose things this Lua state has made
local known = {}
-- call -> name of an upstream -> { the set in `known` at that time, class or nil }
local found = setmetatable({}, { __mode = "k" })

-- The open channel with this key, or nil, and its class.
local function open_channel(record, key)
  local channel = host.upstream.open_channel(record.name, key)
  return channel, channel and ("@%s#%d"):format(key, channel:serial())
end

--- True for a class that belongs to a single channel.
function own_lists.is_own(name) return catalogue.is_of_caller(name) and name:find("#", 1, true) ~= nil end

local function key_of(name) return name:match "^@(.*)#%d+$" end

-- The channel of a class; nil once it has ended.
local function channel_of(record, name)
  local channel, class = open_channel(record, key_of(name))
  return class == name and channel or nil
end

--- The class of an open channel on which the upstream has notified; nil for a channel that clients do not use, or that
--- has ended.
function own_lists.of_event(record, event)
  if channel_key.is_shared(event.key) then return nil end
  local _, class = open_channel(record, event.key)
  return class
end

--- The class of the channel that the calls of a client use, if it has lists of its own; else nil.
function own_lists.of(record, call)
  local set = known[record.name]
  if not set or next(set) == nil then return nil end
  local of_call = found[call] or {}
  found[call] = of_call
  local one = of_call[record.name]
  if not one or one[1] ~= set then
    local _, class = open_channel(record, forward.way_of(record, call).key)
    one = { set, set[class or false] and class or nil }
    of_call[record.name] = one
  end
  return one[2]
end

--- The classes of open channels with lists of their own, sorted. The things of these are made next.
function own_lists.classes(record)
  local list, set = {}, {}
  for name in pairs(host.upstream.callers(record.name)) do
    if own_lists.is_own(name) and catalogue.of(record.name, name).facts.revision and channel_of(record, name) then
      list[#list + 1], set[name] = name, true
    end
  end
  known[record.name] = set
  table.sort(list)
  return list
end

-- The catalogue of all clients of the same class, or of those that cannot be asked.
local function catalogue_of_class(record, channel)
  local class = channel:server_info().class
  local of_class = catalogue.of(record.name, class or catalogue.class)
  return of_class.hash ~= "" and of_class or catalogue.of(record.name, catalogue.class)
end

-- The catalogue that the clients of a channel see.
local function seen(record, name)
  local own, channel = catalogue.of(record.name, name), channel_of(record, name)
  if own.facts.revision or not channel then return own end
  return catalogue_of_class(record, channel)
end

--- The way to read the lists of a class, as for lists.read; nil: its channel has ended.
function own_lists.way(record, name)
  local channel = channel_of(record, name)
  return channel and { key = key_of(name), options = { is_open = true }, class = channel:server_info().class, kept_as = name, before = seen(record, name) }
end

--- The entries that the clients of a channel see.
function own_lists.seen(record, name) return seen(record, name).entries end

-- For each list, a text that differs if the entries do.
local function views_of(entries)
  local views = {}
  for _, entry in ipairs(entries) do
    local kind = catalogue.list_of[entry.kind]
    views[kind] = views[kind] or {}
    table.insert(views[kind], entry.kind .. " " .. entry.key .. " " .. entry.definition)
  end
  for kind, list in pairs(views) do views[kind] = table.concat(list, "\n") end
  return views
end

-- The lists that differ between two lists of entries.
local function changed_kinds(before, after)
  local old, new, changed = views_of(before), views_of(after), {}
  for _, kind in ipairs { "tools", "prompts", "resources" } do
    if old[kind] ~= new[kind] then changed[#changed + 1] = kind end
  end
  return changed
end

--- The text that is kept as the lists of a channel: "" if they are those of its class.
function own_lists.kept(record, name, text)
  local channel = channel_of(record, name)
  if not channel then return "" end
  local _, entries = catalogue.decode(text)
  return changed_kinds(catalogue_of_class(record, channel).entries, entries)[1] and text or ""
end

--- A channel has ended, and with it its lists: its clients are notified.
function own_lists.ended(record, key, serial)
  local own = catalogue.of(record.name, ("@%s#%d"):format(key, serial))
  if not own.facts.revision then return end
  for _, kind in ipairs(changed_kinds(own.entries, catalogue.of(record.name, catalogue.class).entries)) do
    subscriptions.own_list_changed(kind, key)
  end
end

--- Notifies the clients of a channel of the lists in which they now see other entries than `before`.
function own_lists.tell(record, name, before)
  for _, kind in ipairs(changed_kinds(before, own_lists.seen(record, name))) do
    subscriptions.own_list_changed(kind, key_of(name))
  end
end

return own_lists
