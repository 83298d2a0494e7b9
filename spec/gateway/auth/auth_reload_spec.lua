-- Once a reload is acknowledged, no request is authenticated by the old scripts, not even one whose auth script was
-- running meanwhile. Running calls go on (B-91).
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

local slow = [[return tool { "Slow.", function(_, call)
  call:progress(1)
  while not store.get("go") do sleep(0.005) end
  return call.principal.id
end }]]
local go = [[return tool { "Go.", function() store.set("go", true) return "gone" end }]]

local function start(script, workers)
  return gateway.start { workers = workers or 2, config = { scripts = { watch = false } }, scripts = {
    ["auth/main.lua"] = script, ["tools/who.lua"] = credentials.who, ["tools/slow.lua"] = slow, ["tools/go.lua"] = go } }
end

local function put(g, script)
  local file <close> = assert(io.open(g.dir .. "/scripts/auth/main.lua", "w"))
  file:write(script)
end

local function reload(g)
  local response = g:admin("/reload", "POST")
  assert.equal(200, response.status, response.body)
end

-- Connections that ask for their principal again and again, each with one of `tokens`.
local function crowd(g, tokens, count)
  local all = {}
  local message = wire.message(1, "tools/call", { name = "who", _meta = wire.meta() })
  for i = 1, count do
    local headers = wire.mirrored(message)
    headers.Authorization, headers.Accept, headers["Content-Type"] = "Bearer " .. tokens[i % #tokens + 1], wire.both, "application/json"
    all[i] = { token = tokens[i % #tokens + 1], connection = g:connect(), request = { method = "POST", path = "/mcp", headers = headers, body = message } }
  end
  return all
end

-- Sends one round of requests; returns how many with `token` were accepted.
local function round(all, token)
  local admitted = 0
  for _, one in ipairs(all) do
    one.connection:send(one.request)
  end
  for _, one in ipairs(all) do
    local status = one.connection:read_response().status
    assert.truthy(status == 200 or status == 401, status)
    if one.token == token and status == 200 then admitted = admitted + 1 end
    if one.token ~= token then assert.equal(200, status) end
  end
  return admitted
end

local without_bob = credentials.script:gsub("bob = true, ", "")

describe("a reload under load", function()
  it("that removes a principal's scope: no client is authenticated by the old rule afterwards", function()
    local g <close> = start(credentials.script)
    local all = crowd(g, { "ann-1", "bob-1" }, 32)
    for _ = 1, 5 do
      put(g, credentials.script)
      reload(g)
      assert.equal(16, round(all, "bob-1"))
      put(g, without_bob)
      for _, one in ipairs(all) do
        one.connection:send(one.request)      -- requests are in flight while the rules change
      end
      reload(g)
      for _, one in ipairs(all) do
        one.connection:read_response()
      end
      for _ = 1, 5 do
        assert.equal(0, round(all, "bob-1"))
      end
    end
    for _, one in ipairs(all) do
      one.connection:close()
    end
    assert.has_nothing_left(g)
  end)

  it("that changes the issuer: tokens of the old one are refused, the challenge names the new one", function()
    local function of(issuer)
      return ([[return auth { issuer = "https://%s.example", function(request)
        if request.bearer ~= "token-of-%s" then return nil, "another issuer's" end
        return { id = "x", issuer = "https://%s.example", subject = "x" }
      end }]]):format(issuer, issuer, issuer)
    end
    local g <close> = start(of "one")
    local all = crowd(g, { "token-of-one" }, 16)
    assert.equal(16, round(all, "token-of-one"))
    local document = wire.request(g, "GET", "/.well-known/oauth-protected-resource/mcp"):json()
    assert.same({ "https://one.example" }, document.authorization_servers)
    put(g, of "two")
    for _, one in ipairs(all) do
      one.connection:send(one.request)
    end
    reload(g)
    for _, one in ipairs(all) do
      one.connection:read_response()
    end
    assert.equal(0, round(all, "token-of-one"))
    document = wire.request(g, "GET", "/.well-known/oauth-protected-resource/mcp"):json()
    assert.same({ "https://two.example" }, document.authorization_servers)
    for _, one in ipairs(all) do
      one.connection:close()
    end
    assert.has_nothing_left(g)
  end)
end)

describe("a request that waits for auth while the scripts change", function()
  local waits = [[return auth { function(request)
    log.info("waits", {})
    local _ <close> = closing(function() log.info("over", {}) end)
    sleep(20)
    return { id = "old rule" }
  end }]]

  local function sent(g)
    local me = g:client("2026-07-28", { token = "ann-1" })
    local stream = me:open("tools/call", { name = "who" })
    g:wait_log "waits"
    g:wait_status(function(status) return status.gauges.auth_pending == 1 end)
    return stream
  end

  it("is authenticated again, by the new rules", function()
    for script, expected in pairs { [credentials.script] = "user:ann", [without_bob:gsub("ann = true, ", "")] = 401 } do
      local g <close> = start(waits)
      local stream = sent(g)
      put(g, script)
      reload(g)
      g:wait_log "over"
      assert.equal(expected, expected == 401 and stream:head().status or stream:answer().result.content[1].text)
      stream:close()
      assert.has_nothing_left(g)
    end
  end)

  it("is authenticated again after each change, within its first time limit", function()
    local g <close> = start(waits)
    local stream = sent(g)
    for i = 1, 5 do
      put(g, waits .. "-- " .. i)
      reload(g)
    end
    assert.equal(1, g:status().gauges.auth_pending)
    put(g, credentials.script)
    reload(g)
    assert.equal("user:ann", stream:answer().result.content[1].text)
    stream:close()
    assert.has_nothing_left(g)
  end)

  it("does not become anonymous when the reload brings `auth: none`", function()
    local g <close> = start(waits)
    local stream = sent(g)
    credentials.set_mode(g, "none")
    reload(g)
    assert.equal(503, stream:head().status)
    local nobody <close> = g:client "2026-07-28"
    assert.equal("anonymous", (credentials.ask(nobody)))
    nobody:close()
    stream:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a running call whose principal loses its scope", function()
  it("goes on as its principal; the next call is refused", function()
    local g <close> = start(credentials.script)
    local bob, ann = g:client("2026-07-28", { token = "bob-1" }), g:client("2026-07-28", { token = "ann-1" })
    local stream = bob:open("tools/call", { name = "slow", _meta = { progressToken = 1 } }):wait "notifications/progress"
    put(g, without_bob)
    reload(g)
    assert.equal(401, select(2, credentials.ask(bob)))
    ann:result("tools/call", { name = "go" })
    assert.equal("user:bob", stream:answer().result.content[1].text)
    stream:close()
    bob:close()
    ann:close()
    assert.has_nothing_left(g)
  end)
end)
