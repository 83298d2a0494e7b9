-- A gateway that other machines can reach needs auth scripts, or `auth: none` in its configuration: at start, in
-- `check`, and at reload.
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local stdio = require "spec.helpers.stdio"
local wait = require "spec.helpers.wait"

local tool = "return tool { 'One.', function() return 1 end }"

-- Exit code and output. `run` ends at once only if it refuses to start.
local function refused(command, config, scripts)
  local dir = gateway.prepare { config = config, scripts = scripts or {} }
  local code, out, err = gateway.exec({ command, dir .. "/moonpool.yaml" }, { cwd = dir })
  return code, err, out
end

describe("without auth scripts", function()
  it("a gateway does not start on an address that other machines can reach, and prints why and what next", function()
    for _, address in ipairs { "0.0.0.0:0", "[::]:0", "192.0.2.1:7300", "nowhere.invalid:7300" } do
      for _, command in ipairs { "run", "check" } do
        local code, err = refused(command, { listen = { "127.0.0.1:0", address }, admin = { listen = "off" } }, { ["tools/one.lua"] = tool })
        assert.equal(78, code)
        assert.truthy(err:find(address .. " is reachable from other machines, but", 1, true), err)
        assert.truthy(err:find("hint: write an auth script (moonpool new auth main), or set 'auth: none'", 1, true))
      end
    end
  end)

  it("`check` still prints what is served", function()
    local _, _, out = refused("check", { listen = "0.0.0.0:7300" }, { ["tools/one.lua"] = tool })
    assert.truthy(out:find("tool  one", 1, true))
  end)

  it("`public_url` counts as well: it means that a proxy is in front", function()
    for _, command in ipairs { "run", "check" } do
      local code, err = refused(command, { public_url = "https://mcp.example.com", admin = { listen = "off" } }, { ["tools/one.lua"] = tool })
      assert.equal(78, code)
      assert.truthy(err:find("https://mcp.example.com is reachable from other machines", 1, true), err)
    end
  end)

  it("--listen counts as well", function()
    local dir = gateway.prepare {}
    local code, _, err = gateway.exec({ "run", dir .. "/moonpool.yaml", "--listen", "0.0.0.0:0" })
    assert.equal(78, code)
    assert.truthy(err:find("0.0.0.0:0 is reachable from other machines", 1, true))
  end)

  it("it starts on this machine alone: loopback, and Unix sockets", function()
    local path = os.tmpname()
    os.remove(path)
    local g <close> = gateway.start { config = { listen = { "127.0.0.1:0", "localhost:0", "127.8.8.8:0", "unix:" .. path } } }
    assert.equal(0, g:status().gauges.auth_pending)
    assert.is_nil(g:log():find("auth disabled, listening publicly", 1, true))
  end)

  it("it starts on any address with `auth: none`, and logs a warning", function()
    local g <close> = gateway.start { config = { listen = "0.0.0.0:0", auth = "none" } }
    assert.equal("0.0.0.0:0", g:wait_log("auth disabled, listening publicly", { why = "auth: none" }).fields.listen)
  end)

  it("stdio needs none", function()
    local process <close> = stdio.start { config = { listen = "0.0.0.0:7300" }, scripts = { ["tools/one.lua"] = tool } }
    assert.equal("1", process:client("2026-07-28"):result("tools/call", { name = "one" }).content[1].text)
  end)
end)

describe("with auth scripts", function()
  it("a gateway starts anywhere", function()
    local g <close> = gateway.start { config = { listen = "0.0.0.0:0" }, scripts = { ["auth/main.lua"] = credentials.script } }
    assert.equal(0, (refused("check", { listen = "0.0.0.0:7300" }, { ["auth/main.lua"] = credentials.script })))
    assert.is_nil(g:log():find("everybody", 1, true))
  end)

  it("`auth: none` runs none of them, and logs a warning", function()
    local g <close> = gateway.start { config = { auth = "none" }, scripts = { ["auth/main.lua"] = credentials.script, ["tools/who.lua"] = credentials.who } }
    g:wait_log("auth disabled, auth scripts ignored", { why = "auth: none" })
    local me <close> = g:client "2026-07-28"
    assert.equal("anonymous", (credentials.ask(me)))
  end)
end)

describe("a reload", function()
  local function remove(g, path) assert(os.remove(g.dir .. "/scripts/" .. path)) end

  it("that takes the last auth script away is refused where others can reach the gateway", function()
    local g <close> = gateway.start { config = { listen = "0.0.0.0:0", scripts = { watch = false } },
      scripts = { ["auth/main.lua"] = credentials.script, ["auth/other.lua"] = credentials.script, ["tools/who.lua"] = credentials.who } }
    remove(g, "auth/other.lua")
    assert.equal(200, g:admin("/reload", "POST").status)
    remove(g, "auth/main.lua")
    local response = g:admin("/reload", "POST")
    assert.equal(422, response.status)
    assert.truthy(response.body:find("is reachable from other machines, but", 1, true))
    g:wait_log "not reloaded"
    local stranger <close> = g:client "2026-07-28"
    assert.equal(401, select(2, credentials.ask(stranger)))
    stranger.token = "ann-1"
    assert.equal("user:ann", (credentials.ask(stranger)))
  end)

  it("is refused when it takes the last way to authenticate away, unless `auth: none` comes with it; a restored script counts again", function()
    local g <close> = gateway.start { config = { scripts = { watch = false } },
      scripts = { ["auth/main.lua"] = credentials.script, ["tools/who.lua"] = credentials.who } }
    local me <close> = g:client "2026-07-28"
    assert.equal(401, select(2, credentials.ask(me)))
    remove(g, "auth/main.lua")
    local response = g:admin("/reload", "POST")
    assert.equal(422, response.status)
    assert.truthy(response.body:find("the last authentication script was removed", 1, true), response.body)
    assert.truthy(response.body:find("hint: restore the script, or set 'auth: none'", 1, true), response.body)
    assert.equal(401, select(2, credentials.ask(me)))
    credentials.set_mode(g, "none")
    assert.equal(200, g:admin("/reload", "POST").status)
    assert.equal("anonymous", (credentials.ask(me)))
    credentials.set_mode(g, "scripts")      -- the serving scripts have no authentication
    local file <close> = assert(io.open(g.dir .. "/scripts/auth/main.lua", "w"))
    file:write(credentials.script)
    file:close()
    assert.equal(200, g:admin("/reload", "POST").status)
    wait.for_fact("401 again", 10, function() return select(2, credentials.ask(me)) == 401 end)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
