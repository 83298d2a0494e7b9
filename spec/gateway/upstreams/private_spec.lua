-- Nothing of the caller reaches an upstream but what the configuration passes on; a child gets the variables that it is
-- given and no others.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local credentials = require "spec.helpers.credentials"
local upstream = require "spec.helpers.upstream"

local SECRETS <const> = {
  ["Cookie"] = "session=chocolate", ["X-Forwarded-For"] = "203.0.113.77", ["Forwarded"] = "for=203.0.113.78", ["X-Api-Key"] = "key-of-the-caller",
  ["Proxy-Authorization"] = "Basic cHJveHk=", ["Last-Event-ID"] = "event-77", ["X-Request-Id"] = "request-77", ["User-Agent"] = "the-caller/1.0",
  ["Referer"] = "http://caller.example/", ["Mcp-Param-Tenant"] = "callers-parameter",
}

local function call(g, c, name)
  local message = c:message("tools/call", { name = name, arguments = { n = 1 } })
  local headers = c:headers(message)
  for header, value in pairs(SECRETS) do headers[header] = headers[header] or value end
  local response = client.request(g, { method = "POST", path = "/mcp", headers = headers, body = message })
  return response
end

describe("an upstream", function()
  for _, serves in ipairs { "2025-11-25", "2026-07-28" } do
    for _, asks in ipairs { "2025-11-25", "2026-07-28" } do
      it(("of %s gets nothing of a caller of %s but what is passed"):format(serves, asks), function()
        local u <close> = upstream.start { revision = serves }
        local g <close> = upstream.gateway({ one = u }, {
          entries = upstream.plain({ one = u }, { one = { pass = { "x-request-id" }, headers = { ["x-ours"] = "our-own" }, auth = { bearer = "our-token" } } }),
          scripts = { ["auth/main.lua"] = credentials.script },
        })
        local c <close> = g:client(asks, { token = "ann-1", client_info = { name = "callers-program", version = "9.9.9" } })
        assert.equal(200, call(g, c, "echo").status)
        local entry = u:wait { tool = "echo" }
        assert.equal("request-77", entry.headers["x-request-id"])
        assert.equal("our-own", entry.headers["x-ours"])
        assert.equal("Bearer our-token", entry.headers.authorization)
        for _, one in ipairs(u.received) do
          local all = ((one.head or "") .. (one.text or "")):lower()
          for header, value in pairs(SECRETS) do
            if header ~= "X-Request-Id" then assert.is_nil(all:find(value:lower(), 1, true), header .. " in " .. all) end
          end
          for _, value in ipairs { "ann-1", "user:ann", "callers-program", "9.9.9", c.session or "no session" } do
            assert.is_nil(all:find(value:lower(), 1, true), value .. " in " .. all)
          end
        end
      end)
    end
  end

  it("that is a program gets the variables that it is given", function()
    if not upstream.has "stdio" then return pending "programs" end
    local u <close> = upstream.start { revision = "2025-11-25", transport = "stdio" }
    local g <close> = upstream.gateway({ one = u }, {
      entries = upstream.plain({ one = u }, { one = { process = { env = { MINE = "yes", KEY = "${GIVEN}" } } } }),
      env = { SECRET_OF_THE_GATEWAY = "hidden", GIVEN = "given" },
    })
    local c <close> = g:client "2025-11-25"
    assert.equal(200, call(g, c, "echo").status)
    local environment = u:all({ kind = "start" })[1].child.environment
    assert.equal("yes", environment.MINE)
    assert.equal("given", environment.KEY)
    local allowed = { PATH = true, HOME = true, USER = true, LANG = true, TZ = true, TMPDIR = true, MINE = true, KEY = true, MOONPOOL_HOPS = true }
    for name in pairs(environment) do assert.is_true(allowed[name] == true, name) end
    assert.is_nil(u:all({ tool = "echo" })[1].text:find("caller", 1, true))
  end)

  it("cannot be given headers that are the caller's own", function()
    for _, name in ipairs { "authorization", "cookie", "Cookie", "proxy-authorization", "mcp-session-id", "mcp-method", "host" } do
      local dir = gateway.prepare { config = { upstreams = { one = { url = "http://127.0.0.1:9/mcp", pass = { name } } } } }
      local code, out, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
      assert.equal(78, code, out .. err)
      assert.matches(name, (out .. err), 1, true)
      gateway.run_program("/bin/rm", { "-rf", dir })
    end
  end)

  for way, row in pairs {
    bearer = { "our-secret-token", "Bearer our-secret-token" }, header = { "our-secret-key", "our-secret-key" },
    basic = { "our-secret-user:and: password", "Basic b3VyLXNlY3JldC11c2VyOmFuZDogcGFzc3dvcmQ=" },
  } do
    it("gets its credential by auth." .. way .. ", which is in no log, error or page", function()
      local u <close> = upstream.start { revision = "2025-11-25" }
      local g <close> = upstream.gateway({ one = u }, {
        entries = upstream.plain({ one = u }, { one = { auth = { [way] = row[1] }, headers = { ["x-key"] = "our-secret-key" } } }),
        config = { log = { level = "debug" } },
      })
      local c <close> = g:client "2025-11-25"
      assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "echo", arguments = { n = 1 } })))
      assert.equal(row[2], u:wait { tool = "echo" }.headers.authorization)
      u:when("tools/call echo", upstream.faults.status(401), 1)
      local answer = c:call("tools/call", { name = "echo", arguments = { n = 1 } })
      local seen = g:log() .. g:admin("/status").body .. g:admin("/metrics").body .. require "cjson".encode(answer)
      assert.is_nil(seen:find("our-secret", 1, true))
      assert.is_nil(seen:find(row[2], 1, true))
    end)
  end
end)
