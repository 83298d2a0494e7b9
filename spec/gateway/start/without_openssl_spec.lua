-- What nobody uses takes no memory: a gateway without TLS does not start OpenSSL, which would take 2 MB and a seventh
-- of the instructions of its start. OPENSSL_CONF is a pipe here that nobody writes: whoever starts OpenSSL waits for
-- its configuration for ever.
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"

local TOKEN <const> = ("o"):rep(32)

describe("a gateway without TLS", function()
  it("starts, keeps its generation, takes tokens and answers calls without OpenSSL", function()
    local pipe
    local dir = gateway.prepare {
      scripts = { ["tools/add.lua"] = "--- Add.\n---@param a number\n---@param b number\nreturn function(a, b) return a + b end" },
      config = { admin = { tokens = { operate = { spec = TOKEN } } } },
      before = function(folder)
        pipe = folder .. "/openssl.cnf"
        assert(os.execute("mkfifo " .. pipe))
      end,
    }
    local g <close> = gateway.start { dir = dir, env = { OPENSSL_CONF = pipe, XDG_STATE_HOME = dir .. "/state" } }
    g:wait_status(function(status) return status.scripts.last_good.kept == 1 end)
    for _, revision in ipairs { "2026-07-28", "2025-11-25" } do
      local answer = g:client(revision):call("tools/call", { name = "add", arguments = { a = 1, b = 2 } })
      assert.equal("3", answer.result.content[1].text)
    end
    local function end_call(token)
      return client.request(g, { method = "DELETE", path = "/api/call/none", headers = { Authorization = "Bearer " .. token } }, { admin = true }).status
    end
    assert.equal(401, end_call "wrong")
    assert.equal(400, end_call(TOKEN)) -- authenticated, but the body is not a call
  end)
end)
