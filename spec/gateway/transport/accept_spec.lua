-- Checks of a request's headers: Host and Origin on every path, Accept (B-61), Content-Type (B-60).
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wire = require "spec.helpers.wire"

local discover = { jsonrpc = "2.0", id = 1, method = "server/discover", params = { _meta = wire.meta() } }
local mirrored = wire.mirrored(discover)

-- Each row: an Accept header (false: none), and whether it accepts JSON, events, and so a POST's answer or a GET's.
local accepts = {
  { "application/json, text/event-stream", "POST", "GET" },
  { "text/event-stream, application/json", "POST", "GET" },
  { "text/event-stream,application/json", "POST", "GET" },
  { "APPLICATION/JSON, Text/Event-Stream", "POST", "GET" },
  { "*/*", "POST", "GET" },
  { false, "POST", "GET" },
  { "application/*, text/*", "POST", "GET" },
  { "application/json;q=0.5, text/event-stream;q=0.1", "POST", "GET" },
  { "application/json; charset=utf-8 , text/event-stream ; q=1", "POST", "GET" },
  { "text/html, application/xhtml+xml, */*;q=0.8", "POST", "GET" },
  { "application/json, */*;q=0.1", "POST", "GET" },
  { "text/event-stream", nil, "GET" },
  { "text/*", nil, "GET" },
  { "application/json", nil, nil },
  { "application/*", nil, nil },
  { "application/json, text/html", nil, nil },
  { "application/json, text/event-stream;q=0", nil, nil },
  { "*/*, text/event-stream;q=0.000", nil, nil },
  { "text/event-stream, application/json;q=0", nil, "GET" },
  { "text/event-streams, application/jsonp", nil, nil },
  { "application/json text/event-stream", nil, nil },
  { "nonsense", nil, nil },
  { "", nil, nil },
  { "text/event-stream;q=0, application/json", nil, nil },
  { "text/event-stream;q=0, */*", nil, nil },
  { "application/json, text/event-stream; Q=0.0 ; x=y", nil, nil },
  { "text/*;q=0, text/event-stream, application/json", "POST", "GET" },
  { "application/json;q=1;q=0, text/event-stream", "POST", "GET" },
  { ";;;,,,;q=,=,/", nil, nil },
  { ("text/html, "):rep(740) .. "*/*", "POST", "GET" },
  { ("text/html, "):rep(740) .. "*/*;q=0", nil, nil },
  { (","):rep(8192), nil, nil },
  { "application/json, text/event-stream;x=" .. ("y"):rep(8192), "POST", "GET" },
}

describe("an Accept header (B-61)", function()
  local g, session

  setup(function()
    g = gateway.start {}
    session = wire.initialize(g, "2025-11-25")
  end)

  teardown(function()
    g:stop()
  end)

  for _, row in ipairs(accepts) do
    local accept, post, get = row[1], row[2], row[3]
    it(("%s takes %s"):format(accept and "'" .. accept:sub(1, 60) .. "'" or "that is not there", post and "all" or get or "nothing of ours"), function()
      for _, headers in ipairs { mirrored, { ["Mcp-Session-Id"] = session } } do
        local body = headers == mirrored and discover or wire.message(1, "ping")
        local all = { Accept = accept }
        for name, value in pairs(headers) do
          all[name] = value
        end
        local response = wire.post(g, body, all)
        assert.equal(post and 200 or 406, response.status)
        local streams = post and headers ~= mirrored and accept and accept:find "^text/event%-stream"
        assert.equal(streams and "text/event-stream" or "application/json", response.headers["content-type"])
        local answer = cjson.decode(streams and response.body:match "data: ?({[^\n]+)" or response.body)
        assert.equal(post and "result" or -32600, answer.error and answer.error.code or "result")
      end
      for _, path in ipairs { "/mcp", "/sse" } do
        local connection <close> = client.connect(g)
        connection:send { path = path, headers = { Accept = accept, ["Mcp-Session-Id"] = session } }
        local head = connection:read_head()
        assert.equal(get and 200 or 406, head.status)
        assert.equal(get and "text/event-stream" or "application/json", head.headers["content-type"])
      end
    end)
  end

  it("that appears twice is one list", function()
    for _, row in ipairs {
      { "application/json", "text/event-stream", 200 }, { "text/event-stream", "application/json;q=0.5", 200 },
      { "*/*", "text/event-stream;q=0", 406 }, { "text/html", "text/plain", 406 },
    } do
      local headers = { Accept = false, { "Accept", row[1] }, { "Accept", row[2] } }
      for name, value in pairs(mirrored) do headers[name] = value end
      assert.equal(row[3], wire.post(g, discover, headers).status, row[1] .. ", " .. row[2])
    end
  end)

  it("that is refused leaves no session and no call", function()
    assert.equal(204, wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = session }).status)
    assert.has_nothing_left(g)
  end)
end)

local types = {
  { "application/json", true }, { "Application/JSON", true }, { "application/json; charset=utf-8", true }, { "application/json;x=y", true },
  { " application/json ", true }, { false, false }, { "", false }, { "text/plain", false }, { "application/jsonp", false },
  { "application/json-rpc", false }, { "text/json", false }, { "application/x-www-form-urlencoded", false }, { "*/*", false },
  { "multipart/form-data; boundary=x", false }, { "application/json, text/plain", false },
  { "text/plain;application/json", false }, { "text/plain; charset=application/json", false }, { "application/json text/plain", false },
}

describe("a Content-Type (B-60)", function()
  for _, row in ipairs(types) do
    local kind, good = row[1], row[2]
    it(("%s is %s"):format(kind and "'" .. kind .. "'" or "that is not there", good and "JSON" or "refused with 415"), function()
      local g <close> = gateway.start {}
      local headers = { ["Content-Type"] = kind }
      for name, value in pairs(mirrored) do
        headers[name] = value
      end
      assert.equal(good and 200 or 415, wire.post(g, discover, headers).status)
      local response = wire.post(g, wire.initialize_message "2025-11-25", { ["Content-Type"] = kind })
      assert.equal(good and 200 or 415, response.status)
      local me = g:client "2024-11-05"
      assert.equal(good and 202 or 415, wire.post(g, wire.message(7, "ping"), { ["Content-Type"] = kind }, me.endpoint).status)
      if good then
        wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = response.headers["mcp-session-id"] })
      else
        assert.equal(0, g:status().gauges.sessions.http)
      end
      me:close()
      assert.has_nothing_left(g)
    end)
  end

  it("that appears twice is refused with 415", function()
    local g <close> = gateway.start {}
    for _, pair in ipairs { { "application/json", "application/json" }, { "text/plain", "application/json" }, { "application/json", "text/plain" } } do
      local headers = { ["Content-Type"] = false, { "Content-Type", pair[1] }, { "Content-Type", pair[2] } }
      assert.equal(415, wire.post(g, wire.initialize_message "2025-11-25", headers).status)
    end
    assert.equal(0, g:status().counters.sessions_opened)
    assert.has_nothing_left(g)
  end)
end)

-- -- Host and Origin --------------------------------------------------------------------------------------------------

-- Each row: the Host header (false: none; PORT: the gateway's), and whether it is served with hosts: [localhost,
-- 127.0.0.1, "[::1]"].
local hosts = {
  { "127.0.0.1:PORT", true }, { "localhost:PORT", true }, { "LOCALHOST:PORT", true }, { "localhost", true }, { "[::1]:PORT", true },
  { "localhost:1", true }, { "127.0.0.1", true }, { "[::1]", true },
  { "evil.example", false }, { "evil.example:PORT", false }, { "127.0.0.1.evil.example", false }, { "localhost.evil.example:PORT", false },
  { "localhost:1@evil.example", false }, { "evil.example:80:localhost", false }, { "localhost:", false }, { "localhost:x", false },
  { "127.0.0.2:PORT", false }, { "0.0.0.0:PORT", false }, { "[::2]:PORT", false }, { "::1", false }, { "", false }, { false, false },
  { "localhost:999999", false }, { "xlocalhost", false }, { "localhost.", false }, { "user@localhost", false }, { "2130706433", false },
}

local origins = {
  { "http://localhost:PORT", true }, { "http://localhost", true }, { "https://localhost:9", true }, { "http://127.0.0.1:1234", true },
  { "http://[::1]:PORT", true }, { "https://LOCALHOST", true },
  { "http://evil.example", false }, { "null", false }, { "http://localhost.evil.example", false }, { "https://evil.example:PORT", false },
  { "http://localhost@evil.example", false }, { "http://evil.example/localhost", false }, { "localhost", false }, { "file://localhost", false },
  { "http://", false }, { "", false }, { "chrome-extension://localhost", false }, { "http://localhost/", false }, { "http://localhost:", false },
}

-- A request to every path, and the answer to an allowed client (true: an event stream).
local doors = {
  { method = "POST", path = "/mcp", headers = mirrored, body = discover, status = 200 },
  { method = "GET", path = "/mcp", status = 400 },
  { method = "DELETE", path = "/mcp", status = 400 },
  { method = "OPTIONS", path = "/mcp", status = 405 },
  { method = "GET", path = "/sse", status = 200 },
  { method = "POST", path = "/messages?session_id=" .. ("0"):rep(36), body = wire.message(1, "ping"), status = 404 },
  { method = "GET", path = "/nowhere", status = 404 },
  { method = "GET", path = "/status", admin = true, status = 200 },
  { method = "GET", path = "/healthz", admin = true, status = 200, takes_any_host = true },
  { method = "GET", path = "/nowhere", admin = true, status = 404 },
  { method = "POST", path = "/status", admin = true, status = 405 },
}

local function knock(g, door, host, origin)
  local connection <close> = client.connect(g, { admin = door.admin })
  local headers = { Accept = wire.both, Origin = origin }
  for name, value in pairs(door.headers or {}) do
    headers[name] = value
  end
  if host ~= nil then
    headers.Host = host and host:gsub("PORT", connection.port)
  end
  if origin then
    headers.Origin = origin:gsub("PORT", connection.port)
  end
  return connection:send({ method = door.method, path = door.path, headers = headers, body = door.body }):read_head().status
end

describe("every path of both listeners", function()
  it("is 403 for a Host that is not allowed, and served for one that is", function()
    local g <close> = gateway.start {}
    local refused = 0
    for _, row in ipairs(hosts) do
      for _, door in ipairs(doors) do
        local status = knock(g, door, row[1])
        local name = ("%s %s, Host %s"):format(door.method, door.path, row[1])
        if row[2] then
          assert.equal(door.status, status, name)
        elseif door.takes_any_host then
          assert.equal(door.status, status, name)
        elseif status ~= 400 or row[1] then -- an HTTP/1.1 request without Host may be refused at once
          assert.equal(403, status, name)
          refused = refused + 1
        end
      end
    end
    assert.equal(refused, g:status().counters.refused.origin)
    assert.has_nothing_left(g)
  end)

  it("is 403 for an Origin that is not allowed, and served for one that is", function()
    local g <close> = gateway.start {}
    for _, row in ipairs(origins) do
      for _, door in ipairs(doors) do
        assert.equal(row[2] and door.status or 403, knock(g, door, nil, row[1]), ("%s %s, Origin %s"):format(door.method, door.path, row[1]))
      end
    end
    assert.has_nothing_left(g)
  end)

  it("is 403 for two Host or two Origin headers, also when each alone is allowed", function()
    local g <close> = gateway.start {}
    for _, headers in ipairs {
      { { "Origin", "http://localhost" }, { "Origin", "http://localhost" } }, { { "Origin", "http://localhost" }, { "Origin", "http://evil.example" } },
    } do
      assert.equal(403, wire.post(g, discover, headers).status)
    end
    local connection <close> = client.connect(g)
    local body = require "cjson".encode(discover)
    connection:send_raw(("POST /mcp HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nContent-Length: %d\r\n\r\n%s"):format(#body, body))
    local status = connection:read_head().status
    assert.truthy(status == 400 or status == 403, status)
    connection:close()
    assert.has_nothing_left(g)
  end)

  it("checks the host of an absolute request target instead of the header Host", function()
    local g <close> = gateway.start {}
    for target, status in pairs { ["http://evil.example/status"] = 403, ["http://localhost/status"] = 200 } do
      local connection <close> = client.connect(g, { admin = true })
      assert.equal(status, connection:send({ path = target, headers = { Host = "localhost" } }):read_head().status, target)
      connection:close()
    end
    assert.has_nothing_left(g)
  end)
end)

describe("hosts in the configuration", function()
  it("replace the default names", function()
    local g <close> = gateway.start { config = { hosts = { "mcp.example", "127.0.0.1" } } }
    local door = doors[1]
    assert.equal(200, knock(g, door, "mcp.example"))
    assert.equal(200, knock(g, door, "MCP.example:8443", "https://mcp.example"))
    assert.equal(403, knock(g, door, "localhost"))
    assert.equal(403, knock(g, door, "a.mcp.example"))
    assert.equal(403, knock(g, door, "mcp.example", "https://localhost"))
    assert.has_nothing_left(g)
  end)

  it("that begin with *. allow names below a domain at any depth, and never the domain", function()
    local g <close> = gateway.start { config = { hosts = { "*.Example.com", "*.svc.cluster.local", "127.0.0.1" } } }
    local door = doors[1]
    for _, host in ipairs {
      "a.example.com", "A.EXAMPLE.COM:8443", "a.b.c.example.com", "xn--bcher-kva.example.com", "_dmarc.example.com",
      "mcp.default.svc.cluster.local", "127.0.0.1",
    } do
      assert.equal(200, knock(g, door, host), host)
      assert.equal(200, knock(g, door, "127.0.0.1", "https://" .. host), host)
    end
    for _, host in ipairs {
      "example.com", "example.com:443", ".example.com", "..example.com", "a..example.com", "a.example.com.", "a.example.com.evil.example", "aexample.com",
      "evil.example/.example.com", "evil.example?.example.com", "evil@a.example.com", "*.example.com", "evil.example:80.example.com", "[::1].example.com",
      "a.example.org", "svc.cluster.local", "127.0.0.2", "evil.example%2e.example.com", "evil.example\\.example.com",
    } do
      assert.equal(403, knock(g, door, host), host)
      assert.equal(403, knock(g, door, "127.0.0.1", "https://" .. host), host)
    end
    assert.has_nothing_left(g)
  end)

  it("that are * allow every name", function()
    local g <close> = gateway.start { config = { hosts = { "*" }, admin = { hosts = { "*" } } } }
    for _, door in ipairs(doors) do
      assert.equal(door.status, knock(g, door, "evil.example", "http://evil.example"))
    end
    assert.has_nothing_left(g)
  end)
end)
