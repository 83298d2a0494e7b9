-- Nothing of the caller in what upstreams get over any transport: ids, sessions, tokens, headers; and no header that
-- would carry it can be configured.
local client = require "spec.helpers.client"
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"

local SECRETS <const> = {
  ["Cookie"] = "session=chocolate", ["X-Forwarded-For"] = "203.0.113.77", ["X-Real-IP"] = "203.0.113.79", ["X-Api-Key"] = "key-of-the-caller",
  ["X-Auth-Token"] = "other-key-of-the-caller", ["Proxy-Authorization"] = "Basic cHJveHk=", ["User-Agent"] = "the-caller/1.0",
  ["X-Unknown"] = "unknown-of-the-caller",
}

-- Everything that the stub has received, as one text in lower case.
local function received(u)
  local all = {}
  for _, one in ipairs(u.received) do all[#all + 1] = ((one.head or "") .. (one.text or "")):lower() end
  return table.concat(all, "\n")
end

describe("what an upstream gets", function()
  for _, kind in ipairs { { "2024-11-05", "sse" }, { "2025-06-18", "http" }, { "2025-06-18", "stdio" }, { "2026-07-28", "http" }, { "2026-07-28", "stdio" } } do
    for _, asks in ipairs { "2025-06-18", "2026-07-28" } do
      it(("over %s in %s has no id, session, token or header of a caller of %s"):format(kind[2], kind[1], asks), function()
        local u <close> = upstream.start { revision = kind[1], transport = kind[2] }
        local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u }, scripts = { ["auth/main.lua"] = credentials.script } })
        local c <close> = g:client(asks, { token = "ann-1", client_info = { name = "callers-program", version = "9.9.9" } })
        c:result("tools/list", {})
        local params = { name = "echo", arguments = { n = 1 }, _meta = { progressToken = "progress-of-the-caller" } }
        local message = c:message("tools/call", params)
        message.id = "id-of-the-caller"
        local headers = c:headers(message)
        for name, value in pairs(SECRETS) do headers[name] = headers[name] or value end
        assert.equal(200, client.request(g, { method = "POST", path = "/mcp", headers = headers, body = message }).status)
        u:wait { tool = "echo" }
        local all = received(u)
        for _, value in pairs(SECRETS) do assert.is_nil(all:find(value:lower(), 1, true), value) end
        for _, value in ipairs { "ann-1", "user:ann", "callers-program", "9.9.9", "id-of-the-caller", "progress-of-the-caller", c.session or "no session" } do
          assert.is_nil(all:find(value:lower(), 1, true), value)
        end
      end)
    end
  end
end)

describe("headers that would carry what is the caller's", function()
  local forbidden = {
    "authorization", "Authorization", "cookie", "cookie2", "set-cookie", "proxy-authorization", "proxy-connection", "mcp-session-id", "Mcp-Method",
    "mcp-name", "mcp-param-x", "mcp-protocol-version", "host", "x-forwarded-for", "X-Forwarded-Host", "forwarded", "via", "x-real-ip", "x-api-key",
    "x-auth-token", "x-csrf-token", "last-event-id", "origin", "referer", "sec-fetch-site", "content-length", "transfer-encoding", "connection", "te",
    "upgrade", "moonpool-hops", "traceparent",
  }

  it("are errors of the configuration in `pass`, with line and name", function()
    for _, name in ipairs(forbidden) do
      local dir = gateway.prepare { config = "upstreams:\n  one:\n    url: https://example.com/mcp\n    pass: [" .. name .. "]\n" }
      local code, out, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
      os.execute("rm -rf '" .. dir .. "'")
      assert.equal(78, code, name .. out)
      assert.truthy(err:find("moonpool.yaml:4:", 1, true) and err:find(name, 1, true), err)
    end
  end)

  it("cannot be set by `headers` of scripts", function()
    for _, name in ipairs { "authorization", "cookie", "host", "mcp-session-id", "proxy-authorization", "Content-Length" } do
      local u <close> = upstream.start { revision = "2025-06-18" }
      local g <close> = upstream.gateway({ one = u }, {
        entries = upstream.plain { one = u },
        scripts = { ["upstreams/one.lua"] = ('return upstream { headers = function() return { ["%s"] = "x-of-the-script" } end }'):format(name) },
      })
      local c <close> = g:client "2026-07-28"
      c:result("tools/list", {})
      local answer = c:call("tools/call", { name = "echo", arguments = { n = 1 } })
      assert.is_truthy(answer.error or answer.result.isError, name)
      assert.equal(0, u:ran "echo")
      assert.is_nil(received(u):find("x-of-the-script", 1, true))
    end
  end)
end)
