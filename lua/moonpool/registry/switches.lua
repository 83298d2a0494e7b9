-- enable, disable and enabled in scripts: switch things on and off while they are served. The shared store holds which
-- things are off. A VM reads the store when it starts and at each notification of a change, so the order of
-- notifications does not matter.
-- Operators switch things and whole upstreams through the admin listener. What they have switched off no script can
-- switch on.
-- A task that switches a thing can be preempted at any instruction, and cancelled there.

local host = require "moonpool.host"
local bus = require "moonpool.runtime.bus"
local json = require "moonpool.json"
local problem = require "moonpool.runtime.diagnostic"
local registry = require "moonpool.registry.registry"
local subscriptions = require "moonpool.registry.subscriptions"
local suggest = require "moonpool.runtime.suggest"

local switches = {}

local lists = { tool = "tools", prompt = "prompts", resource = "resources" }
local loaded = false
local TELLING_S = 10      -- seconds that a background task may take to notify clients

--- True if a thing is on.
switches.is_on = registry.is_on

--- Reads the switches in the store for new things.
function switches.load()
  loaded = true
  registry.refresh()
end

-- Called when this VM begins to serve: applies changes made since the VM was created.
bus.on("attached", switches.load)

--- Makes the lists of this VM follow the switch of a thing, or of an upstream, that a worker has changed in the store.
--- False: the store does not answer, and they follow once it does.
function switches.follow(word, name)
  if word == "upstream" then return registry.refresh() end
  local thing = registry.all(word)[name]
  return not thing or registry.follow(word, thing)
end

-- A bus message "word:name": a worker switched this thing, or this upstream.
bus.on("switched", function(text) switches.follow(text:match "^(%a+):(.*)$") end)

-- A message "switched" may be among those that did not fit the queue of this VM.
bus.on("missed", function() registry.refresh() end)

-- The thing that a script names; raises an error at the script's line if it does not exist.
local function find(what, word, name)
  if not loaded then problem.raise(3, what .. " can be called only by handlers: while scripts load, tools, prompts and resources may not exist yet") end
  local things = registry.all(word)
  if not things then
    problem.raise(3, what .. " takes \"tool\", \"prompt\" or \"resource\", and a name", suggest.hint(tostring(word), lists))
  end
  local thing = things[name]
  if not thing then problem.raise(3, "there is no " .. word .. " '" .. tostring(name) .. "'", suggest.hint(name, things)) end
  return thing
end

-- Sends a bus message about a switch to all workers when the block ends. If the task was cancelled in that block, the
-- message makes this VM follow, too.
local announcement = { __close = function(self) bus.everywhere("switched", self.text) end }

-- Announces a switch in this process only: an operator's request reaches each process, and each notifies its own
-- clients (operate).
local own_announcement = { __close = function(self) host.bus.broadcast("switched", self.text) end }

-- Notifies the clients of this process that saw, or now see, things of an upstream.
local function notify_of_upstream(name, on)
  for word, list in pairs(lists) do
    local changes = {}
    for _, thing in pairs(registry.all(word)) do
      if thing.upstream == name and registry.is_on_by_scripts(word, thing) and not host.store.get(registry.off_key(word, thing.name)) then
        changes[#changes + 1] = on and { is = thing } or { was = { scopes = thing.scopes or {}, visible = thing.visible ~= nil } }
      end
    end
    if changes[1] then subscriptions.list_changed(list, changes) end
  end
end

local function notify_here(word, name, on)
  if word == "upstream" then return notify_of_upstream(name, on) end
  local thing = registry.all(word)[name]
  if thing then subscriptions.switched(lists[word], thing) end
end

-- Notifies the clients of all processes. `on`: of an upstream.
local function notify(word, name, on)
  notify_here(word, name, on)
  host.bus.relay("switch elsewhere", json.encode { word = word, name = name, on = on == true })
end

-- A worker of another process has switched a thing, or an upstream, and has notified the clients of that process. Its
-- message "switched" has arrived before this one.
bus.on("switch elsewhere", function(text)
  local switched = json.decode(text)
  notify_here(switched.word, switched.name, switched.on)
end)

-- Messages of another process were lost: reads the switches from the store again, and notifies clients of the changes
-- that they see.
bus.on("lost elsewhere", function() registry.refresh(true) end)

function registry.on_caught_up(was_on)
  for word, list in pairs(lists) do
    for _, thing in pairs(registry.all(word)) do
      if registry.is_off(thing) == (was_on[thing] ~= nil) then subscriptions.switched(list, thing) end
    end
  end
end

-- A switch of which clients have not been notified: { word, name, on, notify }. If its task is cancelled before it
-- notifies them, a background task does.
local untold = { __close = function(self)
  if self.notify then host.job.begin(function() self.notify(self.word, self.name, self.on) end, TELLING_S) end
end }

local function switch(word, thing, on)
  if registry.is_on_by_scripts(word, thing) == on then return registry.follow(word, thing) end
  local switched <close> = setmetatable({ word = word, name = thing.name, notify = notify }, untold)
  do
    local _ <close> = setmetatable({ text = word .. ":" .. thing.name }, announcement)
    local done, why = host.store.set(registry.switch_key(word, thing.name), on and "on" or "off")
    if not done then switched.notify = nil end
    if not done and why ~= "full" then problem.raise(3, "'" .. thing.name .. "' cannot be switched: the process that has the store does not answer") end
    if not done then
      problem.raise(3, "'" .. thing.name .. "' cannot be switched: the store is full", "store.entries and store.bytes in the config limit it")
    end
    registry.follow(word, thing)
  end
  if not registry.is_held_off(word, thing) then notify(word, thing.name) end
  switched.notify = nil
end

--- enable(word, name) and disable(word, name): apply to all clients of the gateway, which are notified.
function switches.enable(word, name) switch(word, find("enable", word, name), true) end
function switches.disable(word, name) switch(word, find("disable", word, name), false) end

-- True if a thing of the upstream is in a list.
local function is_upstream_shown(name)
  for word in pairs(lists) do
    for _, thing in pairs(registry.all(word)) do
      if thing.upstream == name and not registry.is_off(thing) then return true end
    end
  end
  return false
end

--- Switches a thing, or an upstream (the word "upstream"), for an operator. `note`, a text, is stored while it is off.
--- A thing that a script has switched off is switched on, too. `is_for_all`: for all processes of this gateway; else it is
--- asked for in each of them. Returns true; or false and the result of the store: "full", "unavailable" or "unknown".
function switches.operate(word, name, on, note, is_for_all)
  local tell = is_for_all and notify or notify_here
  local thing = word ~= "upstream" and registry.all(word)[name] or nil
  -- Was it shown by the lists of this process, whose clients are notified? The store may already have the change of
  -- another process of the gateway.
  local was_shown = thing and not registry.is_off(thing) or word == "upstream" and is_upstream_shown(name)
  local switched <close> = setmetatable({ word = word, name = name, on = on, notify = tell }, untold)
  do
    local _ <close> = setmetatable({ text = word .. ":" .. name }, is_for_all and announcement or own_announcement)
    local done, why
    if not on then
      done, why = host.store.set(registry.off_key(word, name), note)
    else
      if thing and not registry.is_on_by_scripts(word, thing) then done, why = host.store.set(registry.switch_key(word, name), "on") end
      if not why then done, why = host.store.delete(registry.off_key(word, name)) end
    end
    if not done then
      switched.notify = nil
      return false, why
    end
    if thing then registry.follow(word, thing) elseif word == "upstream" then registry.refresh() end
  end
  if thing then
    if switches.is_on(word, thing) ~= was_shown then tell(word, name) end
  elseif word == "upstream" and was_shown ~= on then
    tell(word, name, on)
  end
  switched.notify = nil
  return true
end

--- Notes a switch of an operator before it is done, and switches on the other nodes of a cluster, too. Replaced by
--- cluster/shared_switches.lua.
function switches.note() return true end
function switches.operate_at_nodes() end

--- enabled(word, name): true if the thing is on.
function switches.enabled(word, name) return switches.is_on(word, find("enabled", word, name)) end

return switches
