-- What requests over a hop hold in memory: it is counted in limits.answers of the process that has the client's
-- connection, and bounded by it.
local processes = require "spec.helpers.processes"
local wait = require "spec.helpers.wait"
require "spec.helpers.asserts"

local STATEFUL <const> = "2025-11-25"
local MIB <const> = 1 << 20

local scripts = {
  ["tools/flood.lua"] = [[local much = ("x"):rep(60000)
return tool { "Reports much, for ever.", timeout = 120, function(_, call)
  for i = 1, math.huge do
    call:progress(i, nil, much)
    sleep(0.002)
  end
end }]],
}

describe("the bytes that a hop holds", function()
  it("are counted as long as it does: a stream that is silent has none, once its request is written", function()
    local _ <close>, _, new, c = processes.two { before = processes.opens(STATEFUL) }
    local stream = processes.move(c, new):get_stream()
    new:wait_status(function(status) return status.gauges.hops == 1 and status.gauges.queue_bytes == 0 end)
    stream:close()
    new:wait_status(function(status) return status.gauges.hops == 0 and status.gauges.queue_bytes == 0 end)
    c:close()
  end)

  it("are bounded by limits.answers: above it new requests are refused, and no other message", function()
    local p <close> = processes.new()
    local old = p:start { scripts = scripts, workers = 1 }
    local c = old:client(STATEFUL)
    local new = p:start { scripts = scripts, workers = 1, config = { limits = { answers = "1MiB" } } }
    p:is_newest(new)
    processes.move(c, new)
    local streams, most, refused = {}, 0, nil
    -- Opens one more stream whose client reads nothing: the kernel may have taken a part of the bytes that wait, so
    -- that the account is below its limit again.
    local function press()
      if #streams == 60 then return end
      local ok, stream = pcall(c.open, c, "tools/call", { name = "flood", _meta = { progressToken = #streams } }, { buffer = 4096 })
      if ok then
        streams[#streams + 1] = stream
        stream.connection:pause()
      end
    end
    wait.for_fact("a refusal", 60, function()
      press()
      refused = c:post(c:message "ping")
      most = math.max(most, new:status().gauges.queue_bytes)
      return refused.status == 503
    end)
    assert.matches("^%d+$", refused.headers["retry-after"])
    assert.equal("too many answers wait for clients to read them: try again later", refused:json().error.message)
    assert.is_true(new:status().counters.refused.answers > 0)
    wait.for_fact("a notification to pass", 30, function() return c:notify("notifications/cancelled", { requestId = 4711 }).status == 202 end)
    new:wait_status(function(status) -- readers that have read nothing for a second are disconnected
      press()
      most = math.max(most, status.gauges.queue_bytes)
      return status.counters.dropped.answers > 0
    end, 30)
    assert.is_true(most < 2 * MIB, most)
    for _, stream in ipairs(streams) do stream:hang_up() end
    new:wait_status(function(status) return status.gauges.hops == 0 and status.gauges.queue_bytes == 0 end, 30)
    wait.for_fact("an answer", 30, function() return c:post(c:message "ping").status == 200 end)
    c:close()
  end)
end)
