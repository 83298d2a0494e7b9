-- Certificates of nodes that do not fit, and those that are replaced while nodes serve.
local certificates = require "spec.helpers.certificates"
local cluster = require "spec.helpers.cluster"
local gateway = require "spec.helpers.gateway"
local processes = require "spec.helpers.processes"
local wire = require "spec.helpers.wire"
require "spec.helpers.asserts"

local it = cluster.it(it, pending)
local move, text = processes.move, processes.text
local STATEFUL <const> = "2025-11-25"

local PING <const> = '{"jsonrpc":"2.0","id":1,"method":"ping"}'

-- A certificate of the authority with the name. `more`: fields of certificates.make.
local function certificate(more)
  local want = { subject = "/CN=node", sans = "DNS:" .. cluster.NAME }
  for name, value in pairs(more or {}) do want[name] = value end
  return certificates.make(want, cluster.authority())
end

local function put(g, own)
  certificates.put(g.dir .. "/node.pem", own.certificate)
  certificates.put(g.dir .. "/node.key", own.key)
end

-- Gives the node `g` another authority, and a certificate of that one: what a node has to be started with, which `g` is to reach.
local function give_other_authority(g)
  local other = certificates.make { subject = "/CN=other", sans = false, is_authority = true }
  local own = certificates.make({ subject = "/CN=node", sans = "DNS:" .. cluster.NAME }, other)
  certificates.put(g.dir .. "/cluster-ca.pem", other.own)
  put(g, own)
  g:wait_log("certificate renewed", { address = "127.0.0.1:0" })
  return { tls = own, ca = other.own }
end

describe("a node whose certificate the others refuse", function()
  it("says so, and its clients that they may try again: the call has not run", function()
    local c <close>, one = cluster.start { nodes = 1, tls = true }
    local me <close> = one:client(STATEFUL)
    local two = c:add { tls = certificate { ends = os.time() - 60 } }
    for _, body in ipairs { PING, '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"x":"' .. ("y"):rep(1 << 20) .. '"}}}' } do
      local answer = wire.post(two, body, { ["Mcp-Session-Id"] = me.session })
      assert.equal(503, answer.status, answer.body)
      assert.matches("^[123]$", answer.headers["retry-after"])
    end
    local why = two:wait_log("node not reached", { node = "n1" }).fields.why
    assert.matches("refuses the certificate of this side: alert certificate expired", why, 1, true)
    assert.equal("n1", text(me, "place"))
    c:is_quiet()
  end)
end)

describe("the certificate of a node", function()
  it("must be for clients and for servers", function()
    for purpose, why in pairs { clientAuth = "is not a certificate for servers", serverAuth = "is not a certificate for clients" } do
      local own = certificate { extensions = { "extendedKeyUsage=" .. purpose } }
      local dir = gateway.prepare {
        files = { ["node.pem"] = own.certificate, ["node.key"] = own.key, ["ca.pem"] = cluster.authority().own },
        config = {
          seal_keys = { cluster.SEAL },
          cluster = { name = "spec", listen = "127.0.0.1:0", redis = { url = "redis://127.0.0.1:1" },
            tls = { certificate = "node.pem", key = "node.key", ca = "ca.pem" } },
        },
      }
      local code, _, err = gateway.exec({ "check" }, { cwd = dir })
      os.execute("rm -rf '" .. dir .. "'")
      assert.equal(78, code, purpose)
      assert.truthy(err:find("node.pem " .. why, 1, true), err)
      assert.is_nil(err:find("warning: node.pem " .. why, 1, true))
    end
  end)

  it("is not replaced by one without the name, and the nodes go on", function()
    local c <close>, one, two = cluster.start { tls = true, workers = 1 }
    local me <close> = one:client(STATEFUL)
    for _, g in ipairs { one, two } do
      put(g, cluster.certificate "moonpool-other")
      local line = g:wait_log("certificate refused", { address = "127.0.0.1:0" })
      assert.matches("does not have the DNS name moonpool-spec", line.fields.why, 1, true)
      g:wait_log "certificate not renewed"
    end
    assert.equal("n1", text(move(me, two), "place"))
    for _, g in ipairs { one, two } do
      put(g, certificate())
      g:wait_log("certificate renewed", { address = "127.0.0.1:0" })
    end
    assert.equal("n1", text(me, "place"))
    c:is_quiet()
  end)

  it("and its authority may be replaced while a node runs", function()
    local c <close>, one, two = cluster.start { tls = true, workers = 1, constants = { ca_kept_s = 0 } }
    local me <close> = one:client(STATEFUL)
    assert.equal("n1", text(move(me, two), "place"))
    local fitting = give_other_authority(two)
    c:kill(one)
    local again = c:again(one, fitting)
    local you <close> = again:client(STATEFUL)
    assert.equal("n1", text(move(you, two), "place"))
    c:is_quiet()
  end)

  it("is asked for anew of each node once the authority has changed, on connections that were kept, too", function()
    local c <close>, one, two, three = cluster.start { nodes = 3, tls = true, workers = 1, constants = { ca_kept_s = 0 } }
    local me <close> = one:client(STATEFUL)
    local you <close> = two:client(STATEFUL)
    assert.same({ "n1", "n2" }, { text(move(me, three), "place"), text(move(you, three), "place") })
    local fitting = give_other_authority(three)
    c:kill(one)
    local again = c:again(one, fitting)
    local they <close> = again:client(STATEFUL)
    assert.equal("n1", text(move(they, three), "place"))
    assert.equal(503, wire.post(three, PING, { ["Mcp-Session-Id"] = you.session }).status)
  end)
end)
