-- enable, disable and enabled in scripts: switch things on and off while they are served. The shared store holds which things are off. A
-- VM reads the store when it starts and at each notification of a change, so the order of notifications does not matter.
-- A task that switches a thing can be preempted at any instruction, and cancelled there.

local host = require "moonpool.host"
local bus = require "moonpool.runtime.bus"
local problem = require "moonpool.runtime.diagnostic"
local registry = require "moonpool.registry.registry"
local subscriptions = require "moonpool.registry.subscriptions"
local suggest = require "moonpool.runtime.suggest"

local switches = {}

local lists = { tool = "tools", prompt = "prompts", resource = "resources" }
local loaded = false

--- True if a thing is on: by its entry in the store, else by its option `enabled`.
switches.is_on = registry.is_on

--- Reads the switches in the store for new things.
function switches.load()
  loaded = true
  registry.refresh()
end

-- Called when this VM begins to serve: applies changes made since the VM was created.
bus.on("attached", switches.load)

-- A bus message "word:name": a worker switched this thing.
bus.on("switched", function(text)
  local word, name = text:match "^(%a+):(.*)$"
  local thing = registry.all(word)[name]
  if thing then registry.follow(word, thing) end
end)

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

-- Sends a bus message about a switch to all workers when the block ends. If the task was cancelled in that block, the message makes this VM follow, too.
local announcement = { __close = function(self) host.bus.broadcast("switched", self.text) end }

local function switch(word, thing, on)
  if switches.is_on(word, thing) == on then return registry.follow(word, thing) end
  do
    local _ <close> = setmetatable({ text = word .. ":" .. thing.name }, announcement)
    if not host.store.set(registry.switch_key(word, thing.name), on and "on" or "off") then
      problem.raise(3, "'" .. thing.name .. "' cannot be switched: the store is full", "store.entries and store.bytes in the config limit it")
    end
    registry.follow(word, thing)
  end
  subscriptions.switched(lists[word], thing)
end

--- enable(word, name) and disable(word, name): apply to all clients of this process, which are notified.
function switches.enable(word, name) switch(word, find("enable", word, name), true) end
function switches.disable(word, name) switch(word, find("disable", word, name), false) end

--- enabled(word, name): true if the thing is on.
function switches.enabled(word, name) return switches.is_on(word, find("enabled", word, name)) end

return switches
