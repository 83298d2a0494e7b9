-- What C calls: load once, then dispatch each request, note each notification, and hear what other workers tell.

local host = require "moonpool.host"
if host.has_specs then require "moonpool.specs.fakes" end

local auth = require "moonpool.auth"
local difference = require "moonpool.difference"
local hearing = require "moonpool.hearing"
local job = require "moonpool.lib.job"
local loader = require "moonpool.loader"
local subscriptions = require "moonpool.subscriptions"

local moonpool = {
  load = loader.load,
  authenticate = auth.authenticate,
  dispatch = require("moonpool.audit").wrap(require "moonpool.dispatch"),
  heard = hearing.heard,
  run_job = job.run,
  describe = require "moonpool.describe",
  summary = difference.summary,
  difference = difference.tell,
}

-- This generation serves on every worker: whoever sees another list now is told.
hearing.on("reloaded", function(text)
  for kind, changes in pairs(difference.changes(text)) do subscriptions.list_changed(kind, changes) end
end)

--- A notification arrived. Nothing here waits for one yet: `initialized` and the rest need no answer (G-5).
function moonpool.note() end

return moonpool
