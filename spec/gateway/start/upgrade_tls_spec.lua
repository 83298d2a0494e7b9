-- Clients that come back over TLS, and clients of HTTP/2, at an upgrade.
local certificates = require "spec.helpers.certificates"
local client = require "spec.helpers.client"
local http2 = require "spec.helpers.http2"
local upgrading = require "spec.helpers.upgrading"
local wire = require "spec.helpers.wire"

local PATIENCE <const> = 20

-- Connects with the session ticket of `before`, and asks for something; the connection.
local function come_back(g, before, max)
  local connection = client.connect(g, { tls = { name = "localhost", ca = g.tls.ca, max = max, resume = before } })
  assert.equal(404, connection:request({ path = "/nothing" }).status)
  return connection
end

describe("a TLS session", function()
  it("is resumed in the next process, and in the one after that", function()
    local g <close> = upgrading.start_quick { tls = true, workers = 2 }
    local first <close> = come_back(g, nil, "1.2")
    local second <close> = come_back(g, nil, "1.3")
    for _ = 1, 2 do
      g:must_upgrade()
      for max, before in pairs { ["1.2"] = first, ["1.3"] = second } do
        local again <close> = come_back(g, before, max)
        assert.is_true(again.tls:facts().resumed, "TLS " .. max)
        assert.equal(max, again.tls:facts().version:match "[%d.]+$")
      end
    end
    assert.is_nil(g:log():find "ticket")
  end)

  it("is not resumed in a process that has loaded another certificate", function()
    local g <close> = upgrading.start_quick { tls = true }
    local before <close> = come_back(g)
    local path, key, other = g.dir .. "/cert.pem", g.dir .. "/key.pem", certificates.make {}
    certificates.write(path .. ".other", other.certificate)
    certificates.write(key .. ".other", other.key)
    g:replace_by_script(("mv '%s.other' '%s'; mv '%s.other' '%s'"):format(path, path, key, key)) -- after the keys were handed over
    g:must_upgrade()
    local again <close> = come_back(g, before)
    assert.is_false(again.tls:facts().resumed)
  end)
end)

describe("a TLS session of a name in a folder", function()
  it("is resumed in the next process for this name alone", function()
    local here, other = certificates.here(), certificates.make { sans = "DNS:other.test" }
    local g <close> = upgrading.start_quick {
      files = { ["tls/here.pem"] = here.certificate, ["tls/here.key"] = here.key, ["tls/other.pem"] = other.certificate, ["tls/other.key"] = other.key },
      config = { listen = { { address = "127.0.0.1:0", tls = { folder = "tls" } } } },
    }
    g.tls = { name = "localhost", ca = g.dir .. "/tls/here.pem" }
    local before <close> = come_back(g)
    g:must_upgrade()
    local again <close> = come_back(g, before)
    assert.is_true(again.tls:facts().resumed)
    local stranger <close> = client.connect(g, { tls = { name = "other.test", resume = before } })
    assert.is_false(stranger.tls:facts().resumed)
    assert.equal(certificates.fingerprint(other.own), stranger.tls:facts().fingerprint)
  end)
end)

describe("a connection of HTTP/2 that an older process holds", function()
  local scripts = { ["tools/wait.lua"] = 'return tool { "Waits.", function() sleep(6) return "waited" end, timeout = 60 }' }
  local listed = wire.message(1, "tools/list", { _meta = wire.meta() })
  local headers = { ["mcp-protocol-version"] = "2026-07-28", ["mcp-method"] = "tools/list" }

  it("answers its streams and new ones, is told to come to an end by GOAWAY, and then ends", function()
    local g <close> = upgrading.start { scripts = scripts, config = http2.config() }
    local session <close> = g:client "2025-06-18"
    local busy <close> = http2.connect(g)
    local idle <close> = http2.connect(g)
    local mine = { ["mcp-session-id"] = session.session, ["mcp-protocol-version"] = "2025-06-18" }
    local call = { jsonrpc = "2.0", id = 7, method = "tools/call", params = { name = "wait", arguments = {} } }
    assert.equal(200, idle:call(listed, headers).status)
    local long = busy:post(call, mine)
    local streams, goaway = {}
    g:signal "sigusr2"
    repeat -- new streams while the processes change, and one that is on its way when GOAWAY comes
      streams[#streams + 1] = busy:post(listed, headers)
      busy:answer(streams[#streams], PATIENCE)
      goaway = busy.goaway
    until goaway
    for _, id in ipairs(streams) do
      local answer = busy:answer(id, PATIENCE)
      assert.equal(200, answer.status)
      assert.truthy(answer.data:find('"wait"', 1, true), answer.data)
    end
    assert.same({ last = 2147483647, code = http2.NO_ERROR, text = "" }, goaway)
    g:wait_upgraded(1)
    local answer = busy:answer(long, PATIENCE)
    assert.truthy(answer.data:find("waited", 1, true), answer.data)
    assert.equal(http2.NO_ERROR, busy:refused(PATIENCE).code)
    assert.equal(http2.NO_ERROR, idle:refused(PATIENCE).code)
    local new <close> = http2.connect(g)
    assert.equal(200, new:call(listed, headers).status)
    assert.equal(200, new:call({ jsonrpc = "2.0", id = 8, method = "tools/list" }, mine).status)
  end)
end)
