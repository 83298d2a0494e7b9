-- Things that come and go while they are served: enable, disable, enabled in scripts. The shared store says what is on; each
-- VM looks there when it starts and when it is told of a change, so it does not matter in which order it hears of two.

local host = require "moonpool.host"
local hearing = require "moonpool.hearing"
local problem = require "moonpool.problem"
local registry = require "moonpool.registry"
local subscriptions = require "moonpool.subscriptions"
local suggest = require "moonpool.suggest"

local switches = {}

local lists = { tool = "tools", prompt = "prompts", resource = "resources" }
local loaded = false

local function key(word, name) return "switch:" .. word .. ":" .. name end

--- Whether a thing is on, by its name and `enabled`.
function switches.is_on(word, thing)
  local kept = host.store_get(key(word, thing.name))
  if kept then return kept == "on" end
  return thing.enabled ~= false
end

--- A new registry: what is off in it.
function switches.load()
  for word in pairs(lists) do
    for _, thing in pairs(registry.all(word)) do thing.off = not switches.is_on(word, thing) end
  end
  loaded = true
  registry.refresh()
end

-- Takes over what the store says.
local function follow(word, thing)
  local off = not switches.is_on(word, thing)
  if off == thing.off then return end
  thing.off = off
  registry.refresh()
end

-- This VM begins to serve: what was switched since it was made.
hearing.on("attached", switches.load)

-- "word:name": somebody switched it.
hearing.on("switched", function(text)
  local word, name = text:match "^(%a+):(.*)$"
  local thing = registry.all(word)[name]
  if thing then follow(word, thing) end
end)

-- What a script names; an error at its line when there is no such thing.
local function find(what, word, name)
  if not loaded then problem.raise(3, what .. " is for handlers: while scripts load nobody knows what there will be") end
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
  if not host.store_set(key(word, thing.name), on and "on" or "off") then
    problem.raise(3, "'" .. thing.name .. "' cannot be switched: the store is full", "store.entries and store.bytes in the config say how much it takes")
  end
  follow(word, thing)
  host.tell("switched", word .. ":" .. thing.name)
  subscriptions.switched(lists[word], thing)
end

--- enable(word, name) and disable(word, name): for every client of this process, and they are told.
function switches.enable(word, name) switch(word, find("enable", word, name), true) end
function switches.disable(word, name) switch(word, find("disable", word, name), false) end

--- enabled(word, name)
function switches.enabled(word, name) return switches.is_on(word, find("enabled", word, name)) end

return switches
