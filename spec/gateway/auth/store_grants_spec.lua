-- Keys of the store that moonpool.yaml grants to single scripts are reserved: other scripts neither read nor change
-- them.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

local KEY = "mp_a-key-that-is-long-enough-to-be-one"

local function tool(body) return "return tool { 'It.', input = { key = t.string { optional = true } }, function(args) " .. body .. " end }" end

local ALL = [[
  local key = args.key
  local function told(value, why) return why and why or json.encode(value == nil and json.null or value) end
  local out = {}
  out.set = told(store.set(key, { name = "me", scopes = { "*" } }))
  out.add = told(store.add(key, { name = "me", scopes = { "*" } }))
  out.incr = told(store.incr(key .. "#n"))
  out.get = told(store.get(key))
  out.list = table.concat(store.list(), " ")
  out.list_of = table.concat(store.list "keys:", " ")
  local ok, why = store.delete(key)
  out.delete = told(ok, why)
  return out]]

describe("keys of the store that are granted to single scripts", function()
  local g, c
  setup(function()
    g = gateway.start { workers = 1, scripts = {
      ["tools/outside.lua"] = tool(ALL), ["tools/admin/inside.lua"] = tool(ALL),
      ["lib/early.lua"] = "return { told = { store.set('keys:early', 1) } }",
      ["tools/early.lua"] = "local early = require 'early' return tool { 'It.', function() return tostring(early.told[1]) .. ' ' .. early.told[2] end }",
      ["tools/one.lua"] = tool "return tostring(store.set('single', 1)) .. tostring(store.set('singles', 1))",
    }, config = { scripts = { path = "scripts", grants = { ["tools/admin/"] = { store = { "keys:*", "single" } } } } } }
    c = g:client "2026-07-28"
  end)
  teardown(function()
    c:close()
    g:stop()
  end)

  local function call(name, arguments)
    local result = c:result("tools/call", { name = name, arguments = arguments })
    return result.structuredContent or result.content[1].text
  end

  it("are refused to others, with the line that would grant them", function()
    local told = call("outside", { key = "keys:abc" })
    local refusal = 'tools/outside.lua may not use the reserved store keys keys:*: no grant allows it '
      .. '(moonpool.yaml: scripts: {grants: {"tools/outside.lua": {store: ["keys:*"]}}})'
    for _, name in ipairs { "set", "add", "incr", "get", "delete" } do assert.equal(refusal, told[name], name) end
    g:wait_log("store refused", { file = "tools/outside.lua", keys = "keys:*" })
  end)

  it("are refused while scripts load, too", function()
    assert.match("^nil lib/early.lua may not use the reserved store keys", (call "early"))
  end)

  it("are open to the scripts that have the grant", function()
    local told = call("admin_inside", { key = "keys:abc" })
    assert.equal("true", told.set)
    assert.equal("false", told.add)
    assert.equal("1", told.incr)
    assert.equal('{"name":"me","scopes":["*"]}', told.get)
    assert.equal("keys:abc keys:abc#n", told.list_of)
    local other = call("outside", { key = "other" })
    assert.equal("other other#n", other.list)
    assert.equal("", other.list_of)
  end)

  it("may be a single one", function()
    assert.match("^niltrue$", (call "one"))
  end)
end)

describe("auth.keys in the store", function()
  local function ask(g, key)
    local params = { protocolVersion = "2025-11-25", capabilities = {}, clientInfo = { name = "s", version = "1" } }
    local body = { jsonrpc = "2.0", id = 1, method = "initialize", params = params }
    local connection <close> = client.connect(g)
    return connection:request { method = "POST", path = "/mcp", body = body,
      headers = { ["Content-Type"] = "application/json", Accept = wire.both, ["x-api-key"] = key } }.status
  end

  it("cannot be written by a tool without the grant", function()
    local scripts = {
      ["auth/main.lua"] = [[return {
        keys = auth.keys { store = "keys:" }, other = auth { function(request) return request.bearer == "me" and { id = "me" } end } }]],
      ["tools/evil.lua"] = ([[return tool { "Evil.", function()
        return tostring((store.set("keys:" .. digest.sha256 "%s", { name = "evil", scopes = { "*" } })))
      end }]]):format(KEY),
      ["tools/admin/new.lua"] = ([[return tool { "New.", function()
        return tostring((store.set("keys:" .. digest.sha256 "%s", { name = "new", scopes = { "a" } })))
      end }]]):format(KEY),
    }
    local g <close> = gateway.start { workers = 1, scripts = scripts,
      config = { scripts = { path = "scripts", grants = { ["tools/admin/"] = { store = { "keys:*" } } } } } }
    local me <close> = g:client("2026-07-28", { token = "me" })
    assert.equal("nil", me:result("tools/call", { name = "evil" }).content[1].text)
    assert.equal(401, ask(g, KEY))
    assert.equal("true", me:result("tools/call", { name = "admin_new" }).content[1].text)
    assert.equal(200, ask(g, KEY))
  end)
end)

describe("a store grant", function()
  it("that is not a key is an error with the right form", function()
    local dir = gateway.prepare { scripts = {}, config = { scripts = { path = "scripts", grants = { ["tools/x.lua"] = { store = { "a*b" } } } } } }
    local code, out, err = gateway.exec { "check", dir .. "/moonpool.yaml" }
    assert.not_equal(0, code)
    assert.match("'*' is allowed only at its end", out .. err, 1, true)
  end)
end)
