-- Clients that are known by the URL of a document: what a gateway with real sockets does with URLs that lead nowhere good.
local signing_in = require "spec.helpers.signing_in"
local stub = require "spec.helpers.stub"

describe("a client's document", function()
  it("is announced, and not fetched from this machine or a private network", function()
    local trap <close> = stub.start(function(_, reply) reply:send(200) end)
    local g <close> = signing_in.start(nil, { env = { http_proxy = trap.url, https_proxy = trap.url, HTTPS_PROXY = trap.url, ALL_PROXY = trap.url } })
    assert.is_true(signing_in.send(g, "GET", "/.well-known/oauth-authorization-server"):json().client_id_metadata_document_supported)
    local ann = signing_in.browser(g)
    for _, url in ipairs { "https://localhost/a", "https://localhost./a", "https://127.0.0.1/a", "https://" .. trap.at .. "/a", "https://2130706433/a",
      "https://0x7f.1/a", "https://127.1/a", "https://[::1]/a", "https://[::ffff:127.0.0.1]/a", "https://169.254.169.254/latest", "https://10.0.0.1/a",
      "https://a@127.0.0.1/a", "http://" .. trap.at .. "/a" } do
      local page = ann:begin { client_id = url }
      assert.truthy(page.status == 400 or page.status == 503, url .. ": " .. page.status)
      assert.is_nil(page.body:find("Allow access?", 1, true))
    end
    assert.equal(0, trap.accepted)
    local answer = signing_in.redeem(g, { client_id = "https://localhost/a" }, "x")
    assert.truthy(answer.status == 401 or answer.status == 503, answer.status)
  end)

  it("is no client where sign_in.clients.cimd is false", function()
    local g <close> = signing_in.start { sign_in = { provider = "password", passwords = "users.txt", clients = { cimd = false } } }
    assert.is_nil(signing_in.send(g, "GET", "/.well-known/oauth-authorization-server"):json().client_id_metadata_document_supported)
    local page = signing_in.browser(g):begin { client_id = "https://client.example/app.json" }
    assert.equal(400, page.status)
    assert.truthy(page.body:find("not known here", 1, true))
  end)
end)
