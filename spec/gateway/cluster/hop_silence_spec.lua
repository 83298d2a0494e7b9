-- A node that answers late, or not at all: what the other one makes of that. The node is a server of the spec.
local cluster = require "spec.helpers.cluster"
local nodes = require "spec.helpers.nodes"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"
local client = require "spec.helpers.client"
require "spec.helpers.asserts"

local it = cluster.it(it, pending)
local QUIET <const> = 800                   -- ms without a byte, after which a node is asked whether it lives
local CONSTANTS <const> = { hop_oldest_ms = QUIET, node_stale_ms = 600000 }

-- A cluster of one gateway and a node that answers as a spec says: opens a stream for each GET, of which `on_stream` gets
-- the reply; and for the question whether it lives, `on_alive(reply, count)`.
local function start(on_stream, on_alive)
  local asked = 0
  local node = stub.start(function(request, reply)
    if request.path == "/-/alive" then
      asked = asked + 1
      return on_alive(reply, asked)
    end
    if request.method == "DELETE" then return reply:send(204) end
    reply:head(200, { ["content-type"] = "text/event-stream", ["transfer-encoding"] = "chunked" }):chunk ": here\n\n"
    on_stream(reply, request)
  end)
  local c = cluster.start { nodes = 0 }
  c:play(node.port)
  local g = c:add { constants = CONSTANTS, workers = 1 }
  nodes.wait(g, nodes.are { n1 = "serving", played = "serving" })
  return c, g, node, function() return asked end
end

local function open(g)
  local stream = client.connect(g)
  stream:send { method = "GET", path = "/mcp", headers = { Accept = "text/event-stream", ["Mcp-Session-Id"] = cluster.id_of(cluster.PLAYED) } }
  assert.equal(200, stream:read_head(10).status)
  return stream
end

describe("a node of which nothing has come for a while", function()
  it("is asked twice before its streams end", function()
    local c <close>, g, node, asked = start(function() end, function(reply, count)
      if count > 1 then reply:send(204) end -- the first question is lost
    end)
    local _ <close>, stream <const> = node, open(g)
    wait.for_fact("a second answer", 20, function() return asked() >= 3 end)
    assert.is_false(stream:is_closed_by_peer())
    assert.is_nil(g:log():find("node does not answer", 1, true))
    stream:close()
    c:is_quiet()
  end)

  it("is given up with its streams when it does not answer twice, and asked again until it does", function()
    local answers
    local c <close>, g, node, asked = start(function() end, function(reply)
      if answers then reply:send(204) end
    end)
    local _ <close>, stream <const> = node, open(g)
    stream:wait_closed(20)
    assert.is_true(asked() >= 2)
    g:wait_log("node does not answer", { node = "played" })
    local function ask() return wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = cluster.id_of(cluster.PLAYED) }).status end
    assert.equal(503, ask())
    local function up() return g:admin "/metrics".body:match 'moonpool_hop_up{node="played"} (%d)' end
    assert.equal("0", up())
    answers = true
    wait.for_fact("the node to be asked again", 10, function() return ask() == 204 end)
    wait.for_fact("the metric", 10, function() return up() == "1" end)
    wait.for_fact("the time of the answer", 10, function() -- it is counted once the answer is sent
      return g:admin "/metrics".body:find 'moonpool_forward_duration_seconds_count{node="played"} [12]\n'
    end)
    c:is_quiet()
  end)

  it("is not asked while bytes of another stream come, and no stream ends", function()
    local streams = {}
    local c <close>, g, node, asked = start(function(reply) streams[#streams + 1] = reply end, function() end)
    local _ <close>, quiet <const>, busy <const> = node, open(g), open(g)
    local beats = 0
    local function beat()
      beats = beats + 1
      streams[2]:chunk(": beat\n\n"):later(200, beat)
    end
    beat()
    wait.for_fact("some beats", 20, function() return beats > 2.5 * QUIET / 200 end)
    assert.equal(0, asked())
    assert.is_false(quiet:is_closed_by_peer())
    quiet:close()
    busy:close()
    c:is_quiet()
  end)
end)
