-- Answers of another node, in any pieces, and such as no node gives: the gateway's own client of HTTP reads them. The
-- node is a server of the spec.
local cluster = require "spec.helpers.cluster"
local nodes = require "spec.helpers.nodes"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"
require "spec.helpers.asserts"

local it = cluster.it(it, pending)
local PING <const> = '{"jsonrpc":"2.0","id":1,"method":"ping"}'

-- A cluster of a gateway and of a node that answers as `answer` says at that time.
local function start()
  local set = {}
  local node = stub.start(function(request, reply)
    if request.path == "/-/alive" then return reply:send(204) end
    set.answer(reply, request)
  end)
  local c = cluster.start { nodes = 0 }
  c:play(node.port)
  local g = c:add { constants = { node_stale_ms = 600000 }, workers = 1 }
  nodes.wait(g, nodes.are { n1 = "serving", played = "serving" })
  local function post(answer, body)
    set.answer = answer
    return wire.post(g, body or PING, { ["Mcp-Session-Id"] = cluster.id_of(cluster.PLAYED) })
  end
  return c, g, node, post
end

local function bytes(text) return function(reply) reply:raw(text) end end

local function each_byte(text)
  local list = {}
  for i = 1, #text do list[i] = text:sub(i, i) end
  return function(reply) reply:pieces(list) end
end

local OK <const> = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

describe("an answer of another node", function()
  it("is read in any pieces, with a length or in chunks, after any interim one", function()
    local c <close>, _, node, post = start()
    local _ <close> = node
    local fine = {
      OK .. "Content-Length: 5\r\n\r\n[1,2]",
      OK .. "Transfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n",
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" .. OK .. "content-length:  5  \r\n\r\n[1,2]",
    }
    for i, text in ipairs(fine) do
      for _, answer in ipairs { bytes(text), each_byte(text) } do
        local got = post(answer)
        assert.same({ 200, "[1,2]", "application/json" }, { got.status, got.body, got.headers["content-type"] }, i)
      end
    end
    assert.equal(1, node.accepted) -- one connection for all of them
    assert.equal(202, post(bytes "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").status)
    assert.equal(204, post(bytes "HTTP/1.1 204 No Content\r\n\r\n").status)
    assert.equal(1, node.accepted)
    c:is_quiet()
  end)

  it("that is none ends its request alone, and its connection", function()
    local c <close>, g, node, post = start()
    local _ <close> = node
    local long = ("x"):rep(70000)
    local broken = {
      "SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n[1,2]", "HTTP/1.1 2x0 OK\r\n\r\n", "\0\1\2\3 and further bytes\r\n\r\n",
      OK .. "Content-Length: x\r\n\r\n[1,2]", OK .. "Content-Length: \r\n\r\n", OK .. "Content-Length: -1\r\n\r\n",
      OK .. "Content-Length: 99999999999999999999\r\n\r\n", OK .. "Content-Length: 5\r\nContent-Length: 5\r\n\r\n[1,2]",
      OK .. "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n[1,2]", OK .. "Transfer-Encoding: gzip, chunked\r\n\r\n",
      OK .. "Transfer-Encoding: chunked\r\n\r\nx\r\n", OK .. "Transfer-Encoding: chunked\r\n\r\n5\n[1,2]\n0\n\n",
      OK .. "X: " .. long .. "\r\nContent-Length: 5\r\n\r\n[1,2]", OK .. ("X: y\r\n"):rep(120) .. "Content-Length: 5\r\n\r\n[1,2]",
      OK .. "X: y\r\n folded\r\nContent-Length: 5\r\n\r\n[1,2]", "HTTP/1.1 200 \nContent-Length:0\n" .. ("a:b\n"):rep(98) .. "\n",
      OK .. "Content-Length: 5\n\r\n[1,2]",
    }
    for i, text in ipairs(broken) do
      local got = post(bytes(text))
      assert.equal(502, got.status, i)
      assert.equal("the process of this session does not answer any more; the call may have run", got:json().error.message, i)
    end
    assert.equal(200, post(bytes(OK .. "Content-Length: 2\r\n\r\n{}")).status)
    wait.for_fact("no hop", 10, function() return g:status().gauges.hops == 0 end)
    c:is_quiet()
  end)

  it("that ends too early, or goes on, leaves a connection that no other request gets", function()
    local c <close>, _, node, post = start()
    local _ <close> = node
    for _, text in ipairs { "", "HTTP/1.1 20", OK .. "Content-Length: 9\r\n\r\n[1,2]" } do
      assert.equal(502, post(function(reply) reply:raw(text):later(20, function() reply:close() end) end).status, text)
    end
    local before = node.accepted
    local more = { OK .. "Connection: close\r\nContent-Length: 2\r\n\r\n{}", OK .. "Content-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n",
      "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}" }
    for _, text in ipairs(more) do assert.equal(200, post(bytes(text)).status, text) end
    assert.equal(before + #more, node.accepted)
    c:is_quiet()
  end)

  it("may come before the request is there: a large one ends with it", function()
    local c <close>, g, node, post = start()
    local _ <close> = node
    local body = '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"x":"' .. ("y"):rep(3 << 20) .. '"}}}'
    local got = post(function(reply, request)
      assert.equal(#body, #request.body)
      reply:send(200, { ["content-type"] = "application/json" }, "{}")
    end, body)
    assert.equal(200, got.status)
    wait.for_fact("no hop", 10, function() return g:status().gauges.hops == 0 end)
    c:is_quiet()
  end)
end)

describe("a kept connection that its node has closed", function()
  it("gets no request any more, and those on it that were not sent go another way", function()
    local c <close>, g, node, post = start()
    local _ <close> = node
    for _ = 1, 5 do
      assert.equal(200, post(bytes(OK .. "Content-Length: 2\r\n\r\n{}")).status)
      node:drop()
      wait.for_fact("the end to be seen", 10, function() return g:status().gauges.inner_connections == 0 end)
    end
    assert.equal(5, node.accepted)
    c:is_quiet()
  end)
end)
