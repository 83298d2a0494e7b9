-- enable, disable and enabled in scripts: switch things on and off while they are served. The shared store holds which things are off. A
-- VM reads the store when it starts and at each notification of a change, so the order of notifications does not matter.

local host = require "moonpool.host"
local bus = require "moonpool.runtime.bus"
local problem = require "moonpool.runtime.diagnostic"
local registry = require "moonpool.registry.registry"
local subscriptions = require "moonpool.registry.subscriptions"
local suggest = require "moonpool.runtime.suggest"

local switches = {}

local lists = { tool = "tools", prompt = "prompts", resource = "resources" }
local loaded = false

local function key(word, name) return "switch:" .. word .. ":" .. name end

--- True if a thing is on: by its entry in the store, else by its option `enabled`.
function switches.is_on(word, thing)
  local kept = host.store.get(key(word, thing.name))
  if kept then return kept == "on" end
  return thing.enabled ~= false
end

--- Sets `off` of new things by the switches in the store.
function switches.load()
  for word in pairs(lists) do
    for _, thing in pairs(registry.all(word)) do thing.off = not switches.is_on(word, thing) end
  end
  loaded = true
  registry.refresh()
end

-- Applies the switches of the store.
local function follow(word, thing)
  local off = not switches.is_on(word, thing)
  if off == thing.off then return end
  thing.off = off
  registry.refresh()
end

-- Called when this VM begins to serve: applies changes made since the VM was created.
bus.on("attached", switches.load)

-- A bus message "word:name": a worker switched this thing.
bus.on("switched", function(text)
  local word, name = text:match "^(%a+):(.*)$"
  local thing = registry.all(word)[name]
  if thing then follow(word, thing) end
end)

-- The thing that a script names; raises an error at the script's line if it does not exist.
local function find(what, word, name)
  if not loaded then problem.raise(3, what .. " is for handlers: while scripts load, the things may not exist yet") end
  local things = registry.all(word)
  if not things then
    problem.raise(3, what .. " takes \"tool\", \"prompt\" or \"resource\", and a name", suggest.hint(tostring(word), lists))
  end
  local thing = things[name]
  if not thing then problem.raise(3, "there is no " .. word .. " '" .. tostring(name) .. "'", suggest.hint(name, things)) end
  return thing
end

local function switch(word, thing, on)
  if switches.is_on(word, thing) == on then return end
  if not host.store.set(key(word, thing.name), on and "on" or "off") then
    problem.raise(3, "'" .. thing.name .. "' cannot be switched: the store is full", "store.entries and store.bytes in the config say how much it takes")
  end
  follow(word, thing)
  host.bus.broadcast("switched", word .. ":" .. thing.name)
  subscriptions.switched(lists[word], thing)
end

--- enable(word, name) and disable(word, name): apply to all clients of this process, which are notified.
function switches.enable(word, name) switch(word, find("enable", word, name), true) end
function switches.disable(word, name) switch(word, find("disable", word, name), false) end

--- enabled(word, name): true if the thing is on.
function switches.enabled(word, name) return switches.is_on(word, find("enabled", word, name)) end

return switches
