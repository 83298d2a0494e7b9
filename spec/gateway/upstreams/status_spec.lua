-- The upstreams in /status and in `moonpool upstreams`: facts about each, by its name, and nothing of tools, sessions
-- and credentials.
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local low = require "spec.helpers.upstream.low"
local stub = require "spec.helpers.stub"
local trusted = require "spec.helpers.trusted"

-- Opens a channel like lua/moonpool/upstream does and sends one request; "done", or the reason of the failure.
local request = [[
local json = require "moonpool.json"
local channel, state = host.upstream.channel("%s", "%s", {})
if not channel then return state.reason end
if state == "claimed" then
  local exchange = channel:send(json.encode { jsonrpc = "2.0", id = 1, method = "initialize" }, { id = 1 })
  local event, failure = exchange:next()
  if not event then channel:failed(failure) return failure.reason end
  channel:opened { revision = "2025-11-25", session = "session-hunter2" }
end
local id = channel:next_id()
local exchange, failure = channel:send(json.encode { jsonrpc = "2.0", id = id, method = "tools/call", params = { name = "tool-hunter2" } }, { id = id })
if not exchange then return failure.reason end
local event, why = exchange:next()
return event and "done" or why.reason
]]

local function answering()
  return stub.start(function(got, reply)
    if got.method == "DELETE" then return reply:send(200) end
    local message = cjson.decode(got.body)
    reply:json { jsonrpc = "2.0", id = message.id, result = { protocolVersion = "2025-11-25" } }
  end)
end

local started = low.start

local function upstreams(g, ...)
  return gateway.exec { "upstreams", "--admin", g:status() and "127.0.0.1:" .. g.admin_port, ... }
end

describe("the upstreams of a gateway", function()
  it("are all in /status, with what they are", function()
    local g <close> = started { one = "http://127.0.0.1:9/mcp", two = { command = { "cat" } } }
    local all = g:status().upstreams
    assert.equal("url", all.one.kind)
    assert.equal("command", all.two.kind)
    assert.equal("http", all.one.transport)
    assert.is_nil(all.one.processes)
    assert.equal(0, all.two.restarts)
    assert.is_true(all.two.memory_bytes >= 0)
  end)

  it("have their counters and times there, and no name of a tool, session or credential", function()
    local upstream <close> = answering()
    local g <close> = started { git = { url = upstream.url .. "/mcp?key=hunter2", auth = { bearer = "hunter2" }, headers = { ["x-a"] = "hunter2" } } }
    local me = g:client "2026-07-28"
    assert.equal("done", trusted.run(me, request:format("git", "key")))
    local one = g:status().upstreams.git
    assert.same({ "up", "2025-11-25", "http", 0 }, { one.state, one.revision, one.transport, one.errors })
    assert.is_true(one.channels >= 1 and one.opened >= 1)
    assert.is_true(one.calls >= 1 and one.p50_us > 0 and one.p99_us >= one.p50_us)
    assert.falsy(g:admin("/status").body:find "hunter2")
    local code, out, err = upstreams(g)
    assert.equal("", err)
    assert.equal(0, code)
    assert.truthy(out:find "^git  up  2025%-11%-25  http  %d channels?  %d+ requests?; p50 [%d.]+ m?u?s, p99 [%d.]+ m?u?s\n$", out)
  end)

  it("with a URL have as many channels as limits.upstreams.channels allows, more than the programs of a command", function()
    local upstream <close> = answering()
    local g <close> = started { git = upstream.url .. "/mcp" }
    local me = g:client "2026-07-28"
    for i = 1, 40 do assert.equal("done", trusted.run(me, request:format("git", "key " .. i))) end
    assert.is_true(g:status().upstreams.git.channels >= 40)
  end)

  it("are down with their last failure, and the exit code is 1", function()
    local upstream <close> = answering()
    local g <close> = started { gone = { url = "http://127.0.0.1:9/mcp", circuit = { failures = 1, open = "60s" } }, other = upstream.url .. "/mcp" }
    local me = g:client "2026-07-28"
    local reason = trusted.run(me, request:format("gone", "key"))
    assert.is_true(reason == "refused" or reason == "down")    -- the gateway itself may have tried before
    local one = g:wait_status(function(status) return status.upstreams.gone.state == "down" and status.upstreams.gone.error end).upstreams.gone
    assert.equal("done", trusted.run(me, request:format("other", "key")))
    assert.truthy(one.error_at:find "^%d%d%d%d%-%d%d%-%d%dT")
    local code, out = upstreams(g, "gone")
    assert.equal(1, code)
    assert.truthy(out:find "^gone  down  %-  http  0 channels  next try in %d+ s; circuit open; %d+ failures? in a row; .*last failure at [^\n]*\n$", out)
    assert.equal(0, (upstreams(g, "other")))
    assert.equal(1, (upstreams(g)))
  end)

  it("are JSON with --json", function()
    local g <close> = started { one = "http://127.0.0.1:9/mcp" }
    local _, all = upstreams(g, "--json")
    local _, one = upstreams(g, "--json", "one")
    assert.equal("url", cjson.decode(all).one.kind)
    assert.equal("http", cjson.decode(one).transport)
  end)

  it("may be none, or not the named one", function()
    local g <close> = gateway.start {}
    local code, out = upstreams(g)
    assert.equal(0, code)
    assert.equal("the gateway has no upstreams\n", out)
    assert.same({}, g:status().upstreams)
    local h <close> = started { github = "http://127.0.0.1:9/mcp" }
    local failed, _, err = upstreams(h, "githib")
    assert.equal(1, failed)
    assert.equal("moonpool: there is no upstream 'githib'\n  hint: did you mean 'github'?\n", err)
  end)

  it("are gone from /status after a reload without them", function()
    local g <close> = started { one = "http://127.0.0.1:9/mcp", two = "http://127.0.0.1:9/mcp" }
    local path = g.dir .. "/moonpool.yaml"
    local file = assert(io.open(path, "rb"))
    local config = cjson.decode(file:read "a")
    file:close()
    config.upstreams.one = nil
    file = assert(io.open(path, "wb"))
    file:write(cjson.encode(config))
    file:close()
    g:wait_log("reloaded", { changes = "- one" })
    assert.is_nil(g:status().upstreams.one)
    assert.truthy(g:status().upstreams.two)
  end)
end)
