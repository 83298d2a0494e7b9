-- Memory that many clients used goes back to the system when they have disconnected.
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local STREAMS = 3000

describe("after a mass disconnect", function()
  it("four fifths of what the streams took are given back within seconds, and no turn is long for it", function()
    local g <close> = gateway.start { workers = 2, config = { limits = { connections = STREAMS + 100 },
      sessions = { max = 2 * STREAMS, per_principal = 2 * STREAMS, initialize_within = "1h" } } }
    g:client("2024-11-05"):close()
    local before = g:rss()
    local streams = {}
    for i = 1, STREAMS do
      streams[i] = g:connect()
      streams[i]:send_raw "GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n"
    end
    g:wait_status(function(status) return status.gauges.streams_open == STREAMS end, 30)
    local full = g:rss()
    for _, stream in ipairs(streams) do stream:close() end
    local turns = g:wait_status(function(status) return status.gauges.connections <= 1 end, 30).counters.turns
    if not gateway.binary:find "[at]san" then -- a sanitizer's allocator keeps freed memory
      local function named()
        return ("the memory to go back: %d bytes before, %d with streams, %d now"):format(before, full, g:rss())
      end
      wait.for_fact(named, 20, function() return g:rss() - before < (full - before) / 5 end)
    end
    local after = g:status().counters.turns
    assert.equal(turns.longer, after.longer)
  end)
end)
