-- The official conformance suite, every revision against the same gateway. `./dev conformance` runs only this.
-- proves: the official conformance suite 2025-03-26.. http
local conformance = require "spec.helpers.conformance"

describe("the conformance suite", function()
  local g

  lazy_setup(function() g = conformance.start() end)

  lazy_teardown(function()
    local served <close> = g -- luacheck: ignore 211
    g:wait_status(function(status) -- some scenarios end without DELETE: their sessions stay until they are idle
      local left = status.gauges
      return left.streams_open == 0 and left.requests_in_flight == 0 and left.tasks == 0 and left.ops == 0 and left.queue_bytes == 0
    end)
  end)

  for _, run in ipairs(conformance.runs) do
    it(("passes without a complaint at %s, in %d checks"):format(run.name, run.passes), function()
      local complaints = conformance.run(g, run).complaints
      assert(#complaints == 0, table.concat(complaints, "\n"))
    end)
  end
end)
