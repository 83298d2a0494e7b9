-- Warnings of `moonpool check` about access.
local gateway = require "spec.helpers.gateway"

local function check(scripts, config)
  local dir = gateway.prepare { scripts = scripts, config = config }
  local code, out, err = gateway.exec({ "check" }, { cwd = dir })
  gateway.run_program("/bin/rm", { "-rf", dir })
  assert.equal(0, code, err)
  return err, out
end

local read = 'return tool { "R.", scopes = { "orders:read" }, function() end }'
local keeper = [[return auth { scopes_supported = { %s }, implies = { all = { "orders:write" } },
  function(request) return { id = try(request.bearer, "no token") } end }]]

local function warns(part, scripts, config)
  local err = check(scripts, config)
  assert.matches(part, err, 1, true)
  return err
end

describe("moonpool check warns of", function()
  it("things that no client can reach, where requests are not authenticated", function()
    local wanted = "scripts/tools/read.lua:1: no client can reach the tool 'read' over HTTP: it needs 'orders:read', and no auth script authenticates requests"
    assert.matches("a script in scripts/auth/ can grant it", warns(wanted, { ["tools/read.lua"] = read }), 1, true)
    assert.matches("'auth: none' is in the config",
      warns(wanted, { ["tools/read.lua"] = read, ["auth/a.lua"] = keeper:format '"orders:read"' }, { auth = "none" }), 1, true)
    warns("no client can reach the resource 'r'", { ["resources/r.lua"] = 'return resource { "R.", uri = "x://r", scopes = { "a" }, "r" }' })
    warns("no client can reach the prompt 'p'", { ["prompts/p.lua"] = 'return prompt { "P.", scopes = { "a" }, "p" }' })
  end)

  it("scopes that no auth script grants, where they say all that there are", function()
    local err = warns("scripts/tools/read.lua:1: no client can reach the tool 'read': no auth script grants 'orders:read'",
      { ["tools/read.lua"] = read, ["auth/a.lua"] = keeper:format '"order:read"' })
    assert.matches("did you mean 'order:read'?", err, 1, true)
    assert.matches("scripts/auth/a.lua:1: nothing needs the scope 'order:read'", err, 1, true)
    for _, enough in ipairs { '"orders:read"', '"orders:*"', '"*"' } do
      assert.equal("", check { ["tools/read.lua"] = read, ["auth/a.lua"] = keeper:format(enough) })
    end
    assert.equal("", check {
      ["tools/write.lua"] = 'return tool { "W.", scopes = { "orders:write" }, function() end }', ["auth/a.lua"] = keeper:format '"all"',
    })
    assert.equal("", check {
      ["tools/some.lua"] = 'return tool { "S.", function(_, call) call:needs "orders:some" end }', ["auth/a.lua"] = keeper:format '"orders:some"',
    })
  end)

  it("no scope that a client can request from the issuer", function()
    local jwt = 'return auth.jwt { issuer = "http://127.0.0.1:7390", audience = "http://127.0.0.1/mcp", scopes_supported = { "notes:list" }%s }'
    local allow = { scripts = { allow = { net = { "127.0.0.1:7390" } } } }
    local write = 'return tool { "W.", scopes = { "orders:write" }, function() end }'
    local list = 'return tool { "L.", scopes = { "notes:list" }, function() end }'
    assert.equal("", check({ ["tools/write.lua"] = write, ["tools/list.lua"] = list, ["auth/a.lua"] = jwt:format "" }, allow))
    assert.equal("", check({ ["tools/write.lua"] = write, ["tools/list.lua"] = list,
      ["auth/a.lua"] = jwt:format ', askable = { "orders:*" }' }, allow))
    assert.matches("no client can reach the tool 'write'", check({ ["tools/write.lua"] = write, ["tools/list.lua"] = list,
      ["auth/a.lua"] = jwt:format ', askable = { "notes:write" }' }, allow), 1, true)
  end)

  it("a misspelt scope, if scopes come from tokens", function()
    local open = [[return auth { function(request) return { id = try(request.bearer, "no"), scopes = { %s } } end }]]
    local err = warns("no auth script mentions the scope 'orders:read' of the tool 'read'",
      { ["tools/read.lua"] = read, ["auth/a.lua"] = open:format '"order:read"' })
    assert.matches("did you mean 'order:read'?", err, 1, true)
    assert.equal("", check { ["tools/read.lua"] = read, ["auth/a.lua"] = open:format 'request.headers["x-scope"]' })
  end)

  it("auth scripts that authenticate a client without credentials, without asking the network", function()
    local err = warns("scripts/auth/c.lua:1: a request without credentials is authenticated as 'guest'", {
      ["auth/a.lua"] = [[return auth { function() return http.get "http://127.0.0.1:1/" and { id = "a" } end }]],
      ["auth/b.lua"] = [[return auth { function() sleep(3600) return { id = "b" } end }]],
      ["auth/c.lua"] = [[return auth { function() return { id = "guest" } end }]],
      ["auth/d.lua"] = [[return auth { function(request) return request.headers["x-user"] and { id = request.headers["x-user"] } end }]],
    }, { scripts = { path = "scripts", grants = { ["auth/"] = { net = { "127.0.0.1:1" } } } } })
    assert.falsy(err:find("as 'a'", 1, true))
    assert.falsy(err:find("as 'b'", 1, true))
    assert.falsy(err:find("auth/d.lua", 1, true))
  end)

  it("nothing else, and prints the scopes that a thing needs", function()
    local err, out = check { ["tools/read.lua"] = 'return tool { "R.", scopes = { "orders:read" }, visible = function() return true end, function() end }',
      ["auth/a.lua"] = keeper:format '"orders:read"' }
    assert.equal("", err)
    assert.matches("tool  read  (needs orders:read, visible to some)", out, 1, true)
  end)
end)
