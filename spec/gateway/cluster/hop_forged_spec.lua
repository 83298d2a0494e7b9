-- Who may use the listener for nodes, and what others gain by knowing of it: nothing.
local certificates = require "spec.helpers.certificates"
local client = require "spec.helpers.client"
local cluster = require "spec.helpers.cluster"
local credentials = require "spec.helpers.credentials"
local processes = require "spec.helpers.processes"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"
require "spec.helpers.asserts"

local it = cluster.it(it, pending)
local move, text = processes.move, processes.text
local STATEFUL <const> = "2025-11-25"

local PING <const> = '{"jsonrpc":"2.0","id":1,"method":"ping"}'

-- The headers of a POST to the listener for nodes, from a sender that knows the key. `more`: other fields of the sealed
-- header.
local function sealed(g, session, more, keys)
  local fields = { to = g.number, uid = g.uid, method = "POST", session = session, body = #PING, address = "192.0.2.7", principal = "anonymous" }
  for name, value in pairs(more or {}) do fields[name] = value end
  return { ["moonpool-hop"] = (keys or cluster.keys()):seal(fields), ["Mcp-Session-Id"] = session, ["Content-Type"] = "application/json", Accept = wire.both }
end

local function port_of(g) return tonumber(g.node_address:match ":(%d+)$") end

local function knock(g, headers, path)
  return client.request(port_of(g), { method = "POST", path = path or "/-/mcp", headers = headers, body = PING })
end

describe("the listener for nodes", function()
  it("runs only what a node has sealed for this process, this request and this moment", function()
    local _ <close>, one, two = cluster.start()
    local me <close> = one:client(STATEFUL)
    local s = me.session
    assert.same({}, knock(one, sealed(one, s)):json().result)
    local good = sealed(one, s)["moonpool-hop"]
    local uid, rest = good:match "^(%x+)%.(.*)$"
    local middle = #rest // 2
    local changed = rest:sub(1, middle - 1) .. (rest:sub(middle, middle) == "A" and "B" or "A") .. rest:sub(middle + 1)
    local function value(more, keys) return sealed(one, s, more, keys)["moonpool-hop"] end
    local forged = {
      [403] = {
        false, "", "x", uid .. ".", uid .. "." .. ("A"):rep(400), uid .. "." .. changed, rest, good:sub(1, -5), two.uid .. "." .. rest,
        value(nil, cluster.keys "a secret that no node has, of many letters"), value { body = #PING + 1 }, value { method = "GET" },
        value { session = s:reverse() }, value { endpoint = 2 }, value { uid = "" },
      },
      [421] = { value { to = one.number ~ 1 }, value { uid = two.uid }, value { hops = 3 } },
      [503] = { value { age = 10500 }, value { age = -11000 } },
    }
    for status, list in pairs(forged) do
      for i, header in ipairs(list) do
        local headers = sealed(one, s)
        headers["moonpool-hop"] = header
        local answer = knock(one, headers)
        assert.equal(status, answer.status, ("%d, %d"):format(status, i))
        if status ~= 503 then assert.equal("refused", answer.headers["moonpool-hop"]) end
      end
    end
    for _, path in ipairs { "/mcp", "/", "/-/sse", "/-/other", "/-/switch" } do assert.equal(403, knock(one, sealed(one, s), path).status, path) end
    assert.equal(204, knock(one, {}, "/-/alive").status)
    assert.same({}, knock(one, sealed(one, s, { age = 9000 / wait.slower })):json().result)
  end)

  it("is none for clients: the header is nothing from them, and so are its paths", function()
    local _ <close>, one, two = cluster.start()
    local me <close> = one:client(STATEFUL)
    local headers = sealed(one, me.session)
    assert.equal(404, wire.post(one, PING, headers, "/-/mcp").status)
    assert.same({}, wire.post(two, PING, { ["moonpool-hop"] = "x", ["Mcp-Session-Id"] = me.session }):json().result)
    for _, g in ipairs { one, two } do assert.equal(0, g:status().counters.refused.hop_header) end
    assert.equal(403, knock(one, { Accept = wire.both }, "/mcp").status)
  end)

  it("serves while clients have all connections", function()
    local _ <close>, one, two = cluster.start { config = { limits = { connections = 16 } } }
    local me <close> = one:client(STATEFUL)
    local held = {}
    local _ <close> = setmetatable({}, { __close = function() for _, connection in ipairs(held) do connection:close() end end })
    for i = 1, 16 do
      held[i] = client.connect(one)
      held[i]:send_raw "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{"
    end
    assert.equal("n1", text(move(me, two), "place"))
  end)
end)

describe("TLS between nodes", function()
  it("serves those with a certificate of the authority that has the name, and no others", function()
    local _ <close>, one = cluster.start { nodes = 1, tls = true }
    local function alive(shown)
      local connection <close> = cluster.connect_to(one, shown)
      return connection:request({ path = "/-/alive" }).status
    end
    assert.equal(204, alive(cluster.certificate(cluster.NAME)))
    for _, name in ipairs { "moonpool-other", "x." .. cluster.NAME, "*." .. cluster.NAME } do assert.equal(403, alive(cluster.certificate(name)), name) end
    local stranger = certificates.make { subject = "/CN=stranger", sans = false, is_authority = true }
    for _, shown in ipairs { false, cluster.certificate(cluster.NAME, stranger) } do
      assert.is_false((pcall(alive, shown or nil)))
    end
    assert.equal(400, client.request(port_of(one), { path = "/-/alive" }).status)
  end)

  it("is refused by a node whose peer shows another certificate: its clients may try again", function()
    local c <close>, one, two = cluster.start { tls = true }
    local me <close> = one:client(STATEFUL)
    assert.equal("n1", text(move(me, two), "place"))
    c:kill(one)
    -- another server has got the address: its certificate is of the same authority
    local own = cluster.certificate "moonpool-other"
    local server <close> = require "spec.helpers.gateway".start {
      config = { listen = { { address = one.node_address, tls = { certificate = "cert.pem", key = "key.pem" } } } },
      files = { ["cert.pem"] = own.certificate, ["key.pem"] = own.key },
    }
    assert.is_true(server:is_alive())
    local answer = wire.post(two, PING, { ["Mcp-Session-Id"] = me.session })
    assert.equal(503, answer.status)
    assert.matches("^[123]$", answer.headers["retry-after"])
    two:wait_log("node not reached", { node = "n1" })
  end)

  it("needs the name in the own certificate", function()
    local gateway = require "spec.helpers.gateway"
    local own = cluster.certificate "moonpool-other"
    local tls = { certificate = "node.pem", key = "node.key", ca = "ca.pem" }
    local fine, why = pcall(gateway.start, {
      files = { ["node.pem"] = own.certificate, ["node.key"] = own.key, ["ca.pem"] = cluster.authority().own },
      config = {
        seal_keys = { cluster.SEAL },
        cluster = { name = "spec", listen = "127.0.0.1:0", redis = { url = "redis://127.0.0.1:1" }, tls = tls },
      },
    })
    assert.is_false(fine)
    assert.matches("node.pem does not have the DNS name moonpool-spec", why, 1, true)
  end)
end)

describe("who a caller is", function()
  it("may be as large as fits into a header, and what is larger is refused by the node that it reaches", function()
    local script = [[return auth { function(request)
      return { id = "user:large", claims = { large = ("x"):rep(tonumber(request.headers.authorization:match "%d+")) } }
    end }]]
    local _ <close>, one, two = cluster.start { scripts = { ["auth/large.lua"] = script }, tls = true }
    local me <close> = one:client(STATEFUL, { token = "large-" .. 88 * 1024 })
    assert.equal("n1", text(move(me, two), "place"))
    for _, g in ipairs { one, two } do
      assert.equal(500, wire.post(g, PING, { ["Mcp-Session-Id"] = me.session, Authorization = "Bearer large-" .. 90 * 1024 }).status)
      assert.matches("takes 922%d%d bytes as JSON, and other nodes", g:wait_log("auth failed").fields.error or g:log())
    end
  end)

  local scripts = {
    ["auth/tokens.lua"] = credentials.script,
    ["tools/who.lua"] = [[return tool { "Says who calls.", function(_, call)
      return call.principal.id .. " " .. table.concat(call.principal.scopes or {}, ",") .. " " .. tostring(call.address)
    end }]],
  }

  it("crosses with the request, and is checked by the owner of the session", function()
    local c <close>, one, two = cluster.start { scripts = scripts, tls = true, config = { log = { audit = "audit.log" } } }
    local me <close> = one:client(STATEFUL, { token = "ann-1" })
    assert.equal("user:ann notes:read 127.0.0.1", text(move(me, two), "who"))
    me.token = "bob-1"
    for _, g in ipairs { one, two } do assert.equal(404, move(me, g):post(me:message "ping").status) end
    me.token = "eve-1"
    assert.equal(401, move(me, two):post(me:message "ping").status)
    local function lines(g) return select(2, g:file("audit.log"):gsub('"foreign session"', "")) end
    wait.for_fact("the audit lines", 10, function() return lines(one) == 2 end)
    assert.equal(0, lines(two))
    assert.equal(1, select(2, one:file("audit.log"):gsub('"address":"127.0.0.1","edge":"n2"', "")))
    wire.post(one, PING, { ["Mcp-Session-Id"] = me.session, Authorization = "Bearer bob-1", ["Moonpool-Edge"] = "n2" })
    wait.for_fact("the audit line", 10, function() return lines(one) == 3 end)
    assert.equal(1, select(2, one:file("audit.log"):gsub('"edge"', "")))
    me.token = "ann-1"
    assert.equal(204, move(me, two):delete().status)
    c:is_quiet()
  end)
end)
