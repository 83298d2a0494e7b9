-- What C calls: load once, then dispatch each request, note each notification, and hear what other workers tell.

local difference = require "moonpool.difference"
local hearing = require "moonpool.hearing"
local job = require "moonpool.lib.job"
local loader = require "moonpool.loader"
local registry = require "moonpool.registry"
local subscriptions = require "moonpool.subscriptions"

local moonpool = {
  load = loader.load,
  dispatch = require "moonpool.dispatch",
  heard = hearing.heard,
  run_job = job.run,
  summary = difference.summary,
  difference = difference.tell,
}

-- This generation serves on every worker: who follows a list that it changed is told.
hearing.on("reloaded", function(lists)
  for kind in lists:gmatch "%a+" do subscriptions.list_changed(kind) end
end)

--- A notification arrived. Nothing here waits for one yet: `initialized` and the rest need no answer (G-5).
function moonpool.note() end

local words = { tools = "tool", resources = "resource", templates = "resource", prompts = "prompt" }

--- What is served, a line each, for people.
function moonpool.describe()
  local lines = {}
  for _, kind in ipairs { "tools", "resources", "templates", "prompts" } do
    local things, names = registry.everything(kind)
    for _, name in ipairs(names) do
      lines[#lines + 1] = words[kind] .. "  " .. name .. "  " .. things[name].description:match "^[^\n]*" .. (things[name].off and "  (off)" or "")
    end
  end
  local names = {}
  for name in pairs(job.all()) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local one = job.all()[name]
    lines[#lines + 1] = "job  " .. name .. "  " .. one.description:match "^[^\n]*" .. (one.off and "  (off)" or "")
  end
  return table.concat(lines, "\n") .. (lines[1] and "\n" or "")
end

return moonpool
