-- Bounds of the whole process that many requests reach at once: one step compares the sum with the limit and adds to
-- it, before the memory or the place is used.
local beat = require "spec.helpers.beat"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local granted = require "spec.helpers.granted"
local stdio = require "spec.helpers.stdio"
local uv = require "luv"
local wire = require "spec.helpers.wire"

local MIB = 1 << 20

describe("limits.calls_in_flight", function()
  local scripts = { ["tools/hold.lua"] = 'return tool { "Holds.", function() sleep(60) end }' }

  it("bounds the calls of a batch, which was let in with one place", function()
    local g <close> = gateway.start { config = { limits = { calls_in_flight = 10, drain = "50ms" } }, scripts = scripts }
    local messages = {}
    for i = 1, 64 do messages[i] = wire.message(i, "tools/call", { name = "hold" }) end
    local session = wire.initialize(g, "2025-03-26")
    g:wait_status(function(now) return now.gauges.requests_in_flight == 0 end) -- a request gives its place back after its answer
    local connection <close> = client.connect(g)
    connection:send { method = "POST", path = "/mcp", body = messages,
      headers = { Accept = wire.both, ["Content-Type"] = "application/json", ["Mcp-Session-Id"] = session } }
    local status = g:wait_status(function(now) return now.gauges.requests_in_flight + now.counters.refused.calls == 64 end)
    assert.equal(10, status.gauges.requests_in_flight)
  end)

  it("bounds the calls of a batch over stdio", function()
    local s <close> = stdio.start { config = { limits = { calls_in_flight = 10, drain = "50ms" } }, scripts = scripts }
    s:send(wire.initialize_message "2025-03-26")
    s:expect(0)
    local messages = {}
    for i = 1, 20 do messages[i] = wire.message(i, "tools/call", { name = i <= 10 and "hold" or "none" }) end
    s:send(messages)
    for i = 1, 10 do s:send { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = i } } end
    local answers = s:expect(function(json) return #json > 0 end)
    assert.equal(10, #answers)
    for _, answer in ipairs(answers) do assert.equal("too many calls in flight: try again later", answer.error.message) end
  end)
end)

describe("what reads and writes hold", function()
  it("is compared with what a read would take before it takes it, also where several threads read", function()
    local code = [[local text, why = fs.read "data/large" return { length = text and #text, why = why }]]
    local g <close> = granted.start { code = code, workers = 2, allow = { read = { "data" } }, files = { ["data/large"] = "" },
      constants = { fs_held = 50 * MIB, fs_file = 64 * MIB, pool_threads = 8 }, limits = { call = { memory = "128MiB" } } }
    local file = assert(uv.fs_open(g.dir .. "/data/large", "r+", 420))
    assert(uv.fs_ftruncate(file, 40 * MIB))
    uv.fs_close(file)
    local before, clients, open = g:rss "VmHWM", {}, {}
    for i = 1, 8 do clients[i] = g:client "2026-07-28" end
    for i = 1, 8 do open[i] = granted.begin(clients[i]) end
    local read, refused = 0, 0
    for i, stream in ipairs(open) do
      local told = stream:answer().result.structuredContent
      if told.why then assert.matches("too many bytes are being read and written at once", told.why, 1, true) else assert.equal(40 * MIB, told.length) end
      read, refused = read + (told.length and 1 or 0), refused + (told.why and 1 or 0)
      clients[i]:close()
    end
    assert.is_true(read > 0 and refused > 0, ("%d read, %d refused"):format(read, refused))
    -- The peak of the memory: the bytes of the reads in progress, and for each successful read a text in Lua.
    if not beat.is_sanitized() then
      local more = g:rss "VmHWM" - before
      assert.is_true(more < 60 * MIB + read * 41 * MIB, ("%d read, %.0f MiB more"):format(read, more / MIB))
    end
    assert.equal(0, g:status().gauges.fs_bytes)
  end)

  it("counts a list of names with what sorting it takes", function()
    local files = {}
    for i = 1, 400 do files[("data/%s%d"):format(("n"):rep(100), i)] = "" end
    local code = [[local names, why = fs.list "data" return { count = names and #names, why = why }]]
    local function told(held)
      return granted.once({ code = code, allow = { read = { "data" } }, files = files, constants = { fs_held = held } }, {})
    end
    assert.equal(400, told(1 << 20).count)
    assert.matches("too many bytes are being read and written at once", told(65536).why, 1, true)
  end)
end)
