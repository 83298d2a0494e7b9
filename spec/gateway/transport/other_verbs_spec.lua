-- B-70: a method that a path does not have is answered with 405 and the allowed methods, on every path and at once: no
-- session, no echo, no tunnel, and no permission for a browser's preflight.
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"

local verbs = { "HEAD", "OPTIONS", "PUT", "PATCH", "TRACE", "CONNECT", "PROPFIND", "get", "X" }

-- Targets that are not a path are refused with 400 before that: odd_targets_spec.lua.
-- Each path: the methods that it allows, and whether it belongs to the admin listener.
local paths = {
  { "/mcp", "GET, POST, DELETE" }, { "/sse", "GET" }, { "/messages", "POST" }, { "/messages?session_id=" .. ("0"):rep(36), "POST" },
  { "/status", "GET, HEAD", true }, { "/healthz", "GET, HEAD", true }, { "/nowhere" }, { "/nowhere", nil, true },
}

local preflight = {
  ["Origin"] = "http://localhost", ["Access-Control-Request-Method"] = "POST", ["Access-Control-Request-Headers"] = "content-type, mcp-session-id",
}

local function ask(g, verb, path, headers, body)
  local connection <close> = client.connect(g, { admin = path[3] })
  headers.Connection = "close"
  local response = connection:request { method = verb, path = path[1], headers = headers, body = body }
  connection:wait_closed()
  assert.equal(0, #connection.responses)
  assert.equal("", connection.rest)
  return response
end

describe("an HTTP method that a path does not serve", function()
  for _, path in ipairs(paths) do
    it("is refused on " .. path[1] .. (path[3] and " of the operator" or ""), function()
      local g <close> = gateway.start {}
      for _, verb in ipairs(verbs) do
        for _, headers in ipairs { {}, preflight, { ["X-Secret"] = "s3cret", Cookie = "s3cret" } } do
          local given = {}
          for name, value in pairs(headers) do given[name] = value end
          local has_body = verb ~= "HEAD" and verb ~= "TRACE" and headers["X-Secret"] ~= nil
          local response = ask(g, verb, path, given, has_body and "s3cret" or nil)
          local name = verb .. " " .. path[1]
          if path[2] and path[2]:find("HEAD", 1, true) and verb == "HEAD" then
            assert.equal(200, response.status, name)
          else
            assert.same({ path[2] and 405 or 404, path[2] }, { response.status, response.headers.allow }, name)
          end
          assert.is_nil(response.body:find("s3cret", 1, true), name)
          assert.equal(verb == "HEAD", response.body == "", name)
          for header in pairs(response.headers) do
            assert.is_nil(header:find("access-control", 1, true), name)
          end
        end
      end
      assert.equal(0, g:status().counters.sessions_opened)
      assert.has_nothing_left(g)
    end)
  end

  it("is refused to another origin before anything else", function()
    local g <close> = gateway.start {}
    for _, path in ipairs(paths) do
      local response = ask(g, "OPTIONS", path, { Origin = "http://evil.example", ["Access-Control-Request-Method"] = "POST" })
      assert.equal(403, response.status, path[1])
      assert.matches(path[3] and "pages of other origins may not use the admin listener"
        or "pages of this Origin are not served: see %S+cors%S+ and %S+hosts%S+ in the configuration", response.body)
    end
    assert.has_nothing_left(g)
  end)

  it("does not end the session whose id it carries", function()
    local g <close> = gateway.start {}
    local me = g:client "2025-11-25"
    local sse = g:client "2024-11-05"
    for _, verb in ipairs(verbs) do
      assert.equal(405, ask(g, verb, paths[1], { ["Mcp-Session-Id"] = me.session }).status)
      assert.equal(405, ask(g, verb, { sse.endpoint }, {}).status)
    end
    assert.same({}, me:result "ping")
    assert.same({}, sse:result "ping")
    me:delete()
    me:close()
    sse:close()
    assert.has_nothing_left(g)
  end)
end)

describe("HEAD of an operator's page", function()
  it("is GET without the body", function()
    local g <close> = gateway.start {}
    local connection <close> = client.connect(g, { admin = true })
    local get, head = connection:request { path = "/healthz" }, connection:request { method = "HEAD", path = "/healthz" }
    assert.equal(get.headers["content-length"], head.headers["content-length"])
    assert.same({ 200, 200, "" }, { get.status, head.status, head.body })
    connection:close()
    assert.has_nothing_left(g)
  end)
end)
