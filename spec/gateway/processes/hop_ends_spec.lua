-- Processes that stop while requests go from one to the other: each ends within its drain, and clients learn of it.
local processes = require "spec.helpers.processes"
local wait = require "spec.helpers.wait"
require "spec.helpers.asserts"

local two, move = processes.two, processes.move
local STATEFUL <const> = "2025-11-25"
local BOUND <const> = 15 * wait.slower -- seconds

local scripts = {
  ["tools/stay.lua"] = [[return tool { "Stays.", input = { seconds = t.number { default = 60 } }, function(args, call)
    call:progress(1)
    sleep(args.seconds)
    return "stayed"
  end }]],
}

local function pair(drain)
  return two {
    scripts = scripts, config = { limits = { drain = drain } },
    before = function(old) return { old:client(STATEFUL), old:client "2024-11-05" } end,
  }
end

local function stop(g)
  local took = wait.timed(function() g:stop() end)
  assert.is_true(took < BOUND, took)
end

for _, which in ipairs { "edge", "owner" } do
  describe("an " .. which .. " that stops", function()
    it("ends streams, and calls that do not end by themselves, and the other process is left with nothing of them", function()
      local _ <close>, old, new, kept = pair "1s"
      local c = move(kept[1], new)
      local own = c:get_stream()
      local call = c:open("tools/call", { name = "stay", _meta = { progressToken = "p" } })
      call:wait "notifications/progress"
      local silent = c:open("tools/call", { name = "stay" })
      old:wait_status(function(status) return status.gauges.requests_in_flight == 2 end, BOUND)
      local leaving, staying = new, old
      if which == "owner" then leaving, staying = old, new end
      stop(leaving)
      own.connection:wait_closed(BOUND)
      call.connection:wait_closed(BOUND)
      if which == "owner" then
        assert.equal("the gateway is stopping", silent:answer(BOUND).error.message)
      else -- the calls go on: their client can resume their streams
        silent.connection:wait_closed(BOUND)
        local last = call.connection.events[#call.connection.events].id
        local rest = move(c, old):get_stream { ["Last-Event-ID"] = last }
        assert.equal(202, c:notify("notifications/cancelled", { requestId = call.id }).status)
        assert.equal(202, c:notify("notifications/cancelled", { requestId = silent.id }).status)
        rest.connection:wait_closed(BOUND)
        old:wait_status(function(status) return status.gauges.requests_in_flight == 0 end, BOUND)
      end
      kept[1]:close()
      kept[2]:close()
      staying:wait_status(function(status) return status.gauges.hops == 0 and status.gauges.streams_open == 0 end, BOUND)
    end)

    it("lets a call end that ends in time", function()
      local _ <close>, old, new, kept = pair "10s" -- limits.drain is longer than a busy machine stands still
      local c = move(kept[1], new)
      local call = c:open("tools/call", { name = "stay", arguments = { seconds = 0.3 }, _meta = { progressToken = "p" } })
      call:wait "notifications/progress"
      local leaving = which == "owner" and old or new
      leaving:signal "sigterm"
      assert.equal("stayed", call:answer(BOUND).result.content[1].text)
      stop(leaving)
      kept[1]:close()
      kept[2]:close()
    end)
  end)
end
