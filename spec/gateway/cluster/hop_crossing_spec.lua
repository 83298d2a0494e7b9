-- What crosses from one node to another, and what becomes of a request that the other one does not take.
local client = require "spec.helpers.client"
local cluster = require "spec.helpers.cluster"
local credentials = require "spec.helpers.credentials"
local nodes = require "spec.helpers.nodes"
local processes = require "spec.helpers.processes"
local stub = require "spec.helpers.stub"
local wire = require "spec.helpers.wire"
require "spec.helpers.asserts"

local it = cluster.it(it, pending)
local move, text = processes.move, processes.text
local STATEFUL <const> = "2025-11-25"

local PING <const> = '{"jsonrpc":"2.0","id":1,"method":"ping"}'

-- A cluster of a node that a spec plays, with `answer` as of stub.start, and of a gateway.
local function start(answer, options)
  local node = stub.start(answer)
  local c = cluster.start { nodes = 0 }
  c:play(node.port)
  options = options or {}
  options.constants, options.workers = { node_stale_ms = 600000 }, 1
  local g = c:add(options)
  nodes.wait(g, nodes.are { n1 = "serving", played = "serving" })
  return c, g, node
end

describe("a request that crosses", function()
  it("has no token, cookie or address that the client has sent, in the clear or sealed", function()
    local c <close>, g, node = start(function(_, reply) reply:send(204) end, { scripts = { ["auth/tokens.lua"] = credentials.script } })
    local _ <close> = node
    local id = cluster.id_of(cluster.PLAYED)
    local headers = { ["Mcp-Session-Id"] = id, Authorization = "Bearer ann-1", Cookie = "a=secret-b", ["X-Forwarded-For"] = "192.0.2.66",
      Forwarded = "for=192.0.2.66", ["Moonpool-Edge"] = "forged",
      ["Mcp-Protocol-Version"] = STATEFUL, Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" }
    assert.equal(204, wire.post(g, PING, headers).status)
    local request = node.requests[1]
    local sealed = assert(cluster.keys():read(request.headers["moonpool-hop"]))
    assert.same({ id, "127.0.0.1", "" }, { sealed.session, sealed.address, sealed.authorization })
    assert.truthy(sealed.principal:find("user:ann", 1, true))
    for _, bytes in ipairs { request.head, sealed.principal, sealed.session } do
      for _, secret in ipairs { "ann-1", "secret-b", "192.0.2.66" } do assert.is_nil(bytes:find(secret, 1, true), bytes) end
    end
    for _, name in ipairs { "authorization", "cookie", "x-forwarded-for", "forwarded" } do assert.is_nil(request.headers[name]) end
    assert.equal(STATEFUL, request.headers["mcp-protocol-version"])
    assert.equal("n1", request.headers["moonpool-edge"])
    assert.equal(headers.Traceparent, request.headers.traceparent)
    c:is_quiet()
  end)

  it("is taken from a node whose clock differs, as long as both agree with the server's", function()
    if os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS" then return end -- a preloaded library: not with sanitizers
    local c <close> = cluster.start { nodes = 0 }
    local one, two = c:add { clock = 10 }, c:add { clock = -10 }
    local me <close> = one:client(STATEFUL)
    local you <close> = two:client(STATEFUL)
    assert.equal("n1", text(move(me, two), "place"))
    assert.equal("n2", text(move(you, one), "place"))
    for g, ahead in pairs { [one] = 10, [two] = -10 } do
      local shown = tonumber(g:admin "/metrics".body:match "moonpool_clock_offset_seconds (%-?[%d.]+)")
      assert.is_true(math.abs(shown - ahead) < 2, shown)
    end
    c:is_quiet()
  end)
end)

describe("a request that another node does not take", function()
  it("is served here if any node may, and its client may leave", function()
    local id = cluster.id_of(cluster.PLAYED)
    local c <close>, g, node = start(function(_, reply) reply:send(421, { ["moonpool-hop"] = "refused" }) end, { scripts = {
      ["tools/" .. id .. ".lua"] = "return tool { 'Named as a task of the other node.', function() sleep(60) end }",
    } })
    local _ <close> = node
    local message = wire.message(1, "tools/call", { name = id, arguments = {}, _meta = wire.meta() })
    for _ = 1, 3 do
      local me = client.connect(g)
      local headers = wire.mirrored(message, { Accept = wire.both, ["Content-Type"] = "application/json" })
      me:send { method = "POST", path = "/mcp", body = message, headers = headers }
      g:wait_status(function(status) return status.gauges.requests_in_flight == 1 end, 10)
      me:close()
      g:wait_status(function(status) return status.gauges.requests_in_flight == 0 end, 10)
    end
    assert.equal(1, #node.requests) -- it is known then
    c:is_quiet()
  end)

  it("goes back to none: records that name each other lead to one hop, and the session is unknown", function()
    local c <close>, one, two = cluster.start { constants = { node_stale_ms = 600000 } }
    local far = { [77] = one.node_address, [78] = two.node_address }
    for number, address in pairs(far) do
      nodes.put(c.server, number, { uid = ("0"):rep(30) .. number, node = "g" .. number, address = address, renewals = 1, format = 1, version = "0.1.0",
        sessions = 0, state = "serving", scripts = ("0"):rep(16), via = 155 - number })
    end
    for _, g in ipairs { one, two } do
      nodes.wait(g, nodes.are { n1 = "serving", n2 = "serving", g77 = "serving", g78 = "serving" })
    end
    for number in pairs(far) do
      for _, g in ipairs { one, two } do
        local began = g:status().counters.hops_begun
        assert.equal(404, wire.post(g, PING, { ["Mcp-Session-Id"] = cluster.id_of(number) }).status)
        assert.is_true(g:status().counters.hops_begun - began <= 1)
      end
    end
    c:is_quiet()
  end)
end)
