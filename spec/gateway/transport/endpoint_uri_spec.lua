-- The URI to which HTTP+SSE clients post is a path of the configuration: with the prefix that a proxy removes, and
-- never with a host from a request (B-55, E-2, E-3).
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local nginx = require "spec.helpers.nginx"

-- The endpoint event that a client at `path` gets, after a request with these headers.
local function endpoint_at(g, path, headers)
  local connection = client.connect(g)
  local all = { Accept = "text/event-stream" }
  for name, value in pairs(headers or {}) do all[name] = value end
  connection:send { path = path, headers = all }
  local event = connection:wait_event "endpoint"
  return event.data, connection
end

local function ping(g, endpoint, connection)
  local hello = { protocolVersion = "2024-11-05", capabilities = {}, clientInfo = { name = "spec", version = "1" } }
  local function post(message)
    return client.request(g, { method = "POST", path = endpoint, body = message }).status
  end
  assert.equal(202, post { jsonrpc = "2.0", id = 1, method = "initialize", params = hello })
  assert.truthy(connection:wait_event(1).json.result)
  assert.equal(202, post { jsonrpc = "2.0", id = 2, method = "ping" })
  assert.truthy(connection:wait_event(2).json.result)
end

local hostile = {
  { Host = "evil.example" }, { Host = "evil.example:80" }, { ["X-Forwarded-Host"] = "evil.example" }, { ["X-Forwarded-Proto"] = "https" },
  { ["X-Forwarded-Prefix"] = "//evil.example" }, { Forwarded = "host=evil.example;proto=https" }, { ["X-Original-URL"] = "//evil.example/" },
  { ["X-Rewrite-URL"] = "/evil" }, { Origin = "http://evil.example" }, { Referer = "http://evil.example/" },
}

local ID = "%?session_id=[%w_-]+$"

describe("the endpoint event", function()
  it("is the configured path, for any request", function()
    local g <close> = gateway.start { config = { hosts = { "*" } } }
    for _, headers in ipairs(hostile) do
      local endpoint, connection = endpoint_at(g, "/sse", headers)
      assert.truthy(endpoint:find("^/messages" .. ID), endpoint)
      ping(g, endpoint, connection)
      connection:close()
    end
    for _, target in ipairs { "/sse?x=/evil", "/sse?session_id=1&y", "http://evil.example/sse", "/a/../sse", "/./sse" } do
      local endpoint, connection = endpoint_at(g, target)
      assert.truthy(endpoint:find("^/messages" .. ID), target)
      connection:close()
    end
    assert.has_nothing_left(g)
  end)

  it("has the path that the gateway is mounted at", function()
    local g <close> = gateway.start { config = { endpoints = { mcp = "/a/b/mcp", sse = "/a/b/sse", messages = "/a/b/c/messages" } } }
    local endpoint, connection = endpoint_at(g, "/a/b/sse")
    assert.truthy(endpoint:find("^/a/b/c/messages" .. ID), endpoint)
    ping(g, endpoint, connection)
    assert.equal(404, client.request(g, { method = "POST", path = (endpoint:gsub("^/a/b/c", "")), body = {} }).status)
    connection:close()
    assert.has_nothing_left(g)
  end)

  it("has the prefix that a proxy removes", function()
    local g <close> = gateway.start { config = { endpoints = { prefix = "/a/b" } } }
    local endpoint, connection = endpoint_at(g, "/sse", { ["X-Forwarded-Prefix"] = "/evil" })
    assert.truthy(endpoint:find("^/a/b/messages" .. ID), endpoint)
    ping(g, endpoint:sub(5), connection) -- without the prefix, which the proxy removes
    connection:close()
    assert.has_nothing_left(g)
  end)

  it("works behind an nginx that removes the prefix", function()
    if not nginx.find() then
      pending "there is no nginx here"
      return
    end
    local g <close> = gateway.start { config = { endpoints = { prefix = "/a/b" } } }
    do
      local front <close> = nginx.start(g, "    location /a/b/ { proxy_pass http://127.0.0.1:GATEWAY/; }")
      local there = { port = front.port }
      local endpoint, connection = endpoint_at(there, "/a/b/sse")
      ping(there, endpoint, connection)
      connection:close()
    end
    assert.has_nothing_left(g)
  end)
end)
