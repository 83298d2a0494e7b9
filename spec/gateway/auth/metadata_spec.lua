-- What unauthenticated clients may read: the metadata that names the authorization server (A-8, A-9, A-12), and the
-- origins of pages that may read answers.
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

local scripts = { ["auth/main.lua"] = credentials.script, ["tools/who.lua"] = credentials.who }
local well_known = "/.well-known/oauth-protected-resource"

local function start(config, more)
  return gateway.start { config = config, scripts = more or scripts }
end

local function get(g, path, headers, method)
  return wire.request(g, method or "GET", well_known .. path, headers)
end

describe("the metadata of the protected resource", function()
  it("is public, at the path of each endpoint and at the root", function()
    local g <close> = start()
    for path, endpoint in pairs { ["/mcp"] = "/mcp", ["/mcp/"] = "/mcp", ["/sse"] = "/sse", [""] = "/mcp" } do
      local response = get(g, path)
      assert.equal(200, response.status)
      assert.equal("application/json", response.headers["content-type"])
      assert.equal("*", response.headers["access-control-allow-origin"])
      assert.same({
        resource = ("http://127.0.0.1:%d%s"):format(g.port, endpoint), authorization_servers = { credentials.issuer },
        scopes_supported = { "notes:read" }, bearer_methods_supported = { "header" },
      }, response:json())
    end
    assert.equal("", get(g, "/mcp", {}, "HEAD").body)
    for _, path in ipairs { "/", "/mcp//", "/messages", "/other", "x" } do
      assert.equal(401, get(g, path).status)
    end
    assert.equal(401, get(g, "/mcp", {}, "POST").status)
    assert.has_nothing_left(g)
  end)

  it("may be read by pages of every origin, but only at the gateway's own hosts", function()
    local g <close> = start()
    local page = { Origin = "https://page.example" }
    assert.equal(200, get(g, "/mcp", page).status)
    local response = get(g, "/mcp", {
      Origin = "https://page.example", ["Access-Control-Request-Method"] = "GET", ["Access-Control-Request-Headers"] = "mcp-protocol-version",
    }, "OPTIONS")
    assert.same({ 204, "*", "*" }, { response.status, response.headers["access-control-allow-origin"], response.headers["access-control-allow-headers"] })
    assert.equal(403, wire.request(g, "GET", "/mcp", page).status)
    assert.equal(403, get(g, "/mcp", { Host = "evil.example" }).status)
  end)

  it("has the public address if one is configured, for any Host", function()
    local g <close> = start { public_url = "https://mcp.example.com", hosts = { "127.0.0.1", "inner" }, endpoints = { prefix = "/gw" } }
    for _, host in ipairs { "127.0.0.1:" .. g.port, "inner" } do
      assert.equal("https://mcp.example.com/gw/mcp", get(g, "/mcp", { Host = host }):json().resource)
    end
    assert.equal("https://mcp.example.com/gw/sse", get(g, "/gw/sse"):json().resource)
    local challenge = wire.request(g, "GET", "/mcp").headers["www-authenticate"]
    assert.truthy(challenge:find('resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/gw/mcp"', 1, true), challenge)
  end)

  it("says the Host of the request, in lower case, where there is no public address", function()
    local g <close> = start { hosts = { "*" } }
    assert.equal("http://inner.example/mcp", get(g, "/mcp", { Host = "INNER.example" }):json().resource)
    for _, host in ipairs { 'a"b', "a<b>", "a\\b" } do
      local response = get(g, "/mcp", { Host = host })
      assert.truthy(response.status == 400 or response.status == 403, response.status)
      assert.is_nil((wire.request(g, "GET", "/mcp", { Host = host }).headers["www-authenticate"] or ""):find(host, 1, true))
    end
  end)

  it("begins with http:// behind a proxy that ends TLS, where there is no public address: the log says so once", function()
    for name, value in pairs {
      ["X-Forwarded-Proto"] = "https", ["X-Forwarded-Ssl"] = "on", Forwarded = 'for=192.0.2.1;Proto="https";host=mcp.example.com',
    } do
      local g <close> = start()
      get(g, "/mcp", { [name] = "http" })
      assert.is_nil(g:log():find("scheme of clients", 1, true))
      for _ = 1, 2 do
        assert.matches("^http://", get(g, "/mcp", { [name] = value }):json().resource)
        assert.matches('resource_metadata="http://', wire.request(g, "GET", "/mcp", { [name] = value }).headers["www-authenticate"])
      end
      local _, times = g:log():gsub("warn +scheme of clients unknown[^\n]*hint=[^\n]*public_url: https://", "")
      assert.equal(1, times, name)
      local public <close> = start { public_url = "https://mcp.example.com", hosts = { "127.0.0.1" } }
      get(public, "/mcp", { [name] = value })
      assert.is_nil(public:log():find("scheme of clients", 1, true))
    end
  end)

  it("is of the endpoints that are served", function()
    local g <close> = start { endpoints = { mcp = "off" } }
    assert.equal(("http://127.0.0.1:%d/sse"):format(g.port), get(g, ""):json().resource)
    assert.equal(401, get(g, "/mcp").status)
    local h <close> = start { endpoints = { mcp = "/", sse = "off" } }
    assert.equal(("http://127.0.0.1:%d"):format(h.port), get(h, "/"):json().resource)
  end)

  it("joins the metadata of several auth scripts", function()
    local function of(name, scopes)
      return ("return auth { issuer = 'https://%s.example', scopes_supported = { %s }, function() return nil end }"):format(name, scopes)
    end
    local g <close> = start({}, { ["auth/a.lua"] = of("one", "'a', 'b'"), ["auth/b.lua"] = of("two", "'b', 'c'"), ["auth/c.lua"] = of("one", ""),
      ["auth/d.lua"] = "return auth { function() return nil end }" })
    local document = get(g, "/mcp"):json()
    assert.same({ { "https://one.example", "https://two.example" }, { "a", "b", "c" } }, { document.authorization_servers, document.scopes_supported })
    assert.truthy(wire.request(g, "GET", "/mcp").headers["www-authenticate"]:find('scope="a b c"', 1, true))
  end)

  it("does not exist without an issuer, nor without auth", function()
    local g <close> = start({}, { ["auth/a.lua"] = "return auth { function() return nil end }" })
    assert.equal(404, get(g, "/mcp").status)
    local h <close> = start({}, {})
    assert.equal(404, get(h, "/mcp").status)
    local k <close> = start { auth = "none" }
    assert.equal(404, get(k, "/mcp").status)
  end)
end)

describe("a page of another origin", function()
  local origin = "https://app.example:8443"
  local function preflight(g, from, path, headers)
    return wire.request(g, "OPTIONS", path or "/mcp", { Origin = from, ["Access-Control-Request-Method"] = "POST",
      ["Access-Control-Request-Headers"] = headers or "authorization,content-type,mcp-protocol-version" })
  end

  it("is refused, unless the configuration names it", function()
    local g <close> = start()
    for _, response in ipairs { preflight(g, origin), wire.request(g, "GET", "/mcp", { Origin = origin }) } do
      assert.equal(403, response.status)
      assert.is_nil(response.headers["access-control-allow-origin"])
      assert.is_nil(response.headers.vary)
    end
    local own = wire.request(g, "GET", "/mcp", { Origin = "http://127.0.0.1:1" })
    assert.equal(401, own.status)
    assert.is_nil(own.headers["access-control-allow-origin"])
  end)

  it("may send preflights, and read answers, sessions and challenges, if the configuration names it", function()
    local g <close> = start { cors = { origins = { origin } } }
    for _, path in ipairs { "/mcp", "/sse", "/messages", "/nothing" } do
      local response = preflight(g, origin, path)
      assert.same({ 204, origin, "GET, POST, DELETE", "authorization,content-type,mcp-protocol-version", "Origin" }, {
        response.status, response.headers["access-control-allow-origin"], response.headers["access-control-allow-methods"],
        response.headers["access-control-allow-headers"], response.headers.vary })
      assert.is_nil(response.headers["access-control-allow-credentials"])
    end
    assert.is_nil(preflight(g, origin, "/mcp", "x: y\"").headers["access-control-allow-headers"])
    local function readable(response, status)
      assert.same({ status, origin }, { response.status, response.headers["access-control-allow-origin"] })
      assert.truthy(response.headers["access-control-expose-headers"]:find("Mcp-Session-Id, WWW-Authenticate", 1, true))
      return response
    end
    readable(wire.request(g, "GET", "/mcp", { Origin = origin }), 401)
    local headers = { Origin = origin, Authorization = "Bearer ann-1" }
    local session = readable(wire.post(g, wire.initialize_message "2025-11-25", headers), 200).headers["mcp-session-id"]
    headers["Mcp-Session-Id"] = session
    readable(wire.post(g, wire.message(2, "ping"), headers), 200)
    local connection <close> = g:connect():send { method = "GET", path = "/mcp", headers = {
      Origin = origin, Authorization = "Bearer ann-1", ["Mcp-Session-Id"] = session, Accept = "text/event-stream" } }
    assert.equal(origin, connection:read_head().headers["access-control-allow-origin"])
    connection:close()
    for _, other in ipairs {
      "https://app.example", "http://app.example:8443", "https://app.example:84430", "https://x.app.example:8443", "null", "https://APP.example:8443",
    } do
      assert.equal(403, preflight(g, other).status)
    end
    assert.is_nil(wire.post(g, wire.message(3, "ping"), { Authorization = "Bearer ann-1" }).headers["access-control-allow-origin"])
    wire.request(g, "DELETE", "/mcp", headers)
    assert.has_nothing_left(g)
  end)

  it("is any page with \"*\"", function()
    local g <close> = start { cors = { origins = "*" } }
    assert.equal("https://any.example", preflight(g, "https://any.example").headers["access-control-allow-origin"])
    assert.equal("null", preflight(g, "null").headers["access-control-allow-origin"])
    assert.equal(403, wire.request(g, "GET", "/mcp", { Origin = "https://any.example", Host = "evil.example" }).status)
  end)

  it("an OPTIONS that is no preflight is handled as any other request", function()
    local g <close> = start { cors = { origins = { origin } } }
    assert.equal(401, wire.request(g, "OPTIONS", "/mcp", { Origin = origin }).status)
    assert.equal(405, wire.request(g, "OPTIONS", "/mcp", { Origin = origin, Authorization = "Bearer ann-1" }).status)
  end)

  it("must be written as browsers write it", function()
    for value, why in pairs {
      ["app.example"] = "the scheme is missing", ["https://app.example/"] = "remove the '/' at its end", ["https://app.example/x"] = "a path",
      ["https://App.example"] = "lower case", ["https://"] = "the host is missing", ["HTTPS://x"] = "lower case",
    } do
      local dir = gateway.prepare { config = { cors = { origins = value } } }
      local code, _, err = gateway.exec { "check", dir .. "/moonpool.yaml" }
      assert.equal(78, code)
      assert.truthy(err:find(why, 1, true), err)
    end
  end)
end)
