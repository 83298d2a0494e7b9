-- What C calls: load once, then dispatch each request, note each notification, and hear what other workers tell.

local host = require "moonpool.host"
if host.has_specs then require "moonpool.specs.fakes" end

local hearing = require "moonpool.hearing"
local loader = require "moonpool.loader"

local moonpool = {
  load = loader.load,
  dispatch = require "moonpool.dispatch",
  heard = hearing.heard,
  describe = require "moonpool.describe",
}

--- A notification arrived. Nothing here waits for one yet: `initialized` and the rest need no answer (G-5).
function moonpool.note() end

return moonpool
