-- The dashboard over upgrades: who was signed in still is, and a link that was made before the upgrade opens it
-- afterwards.
local client = require "spec.helpers.client"
local upgrading = require "spec.helpers.upgrading"

local token = ("o"):rep(32)

local function request(path, bearer, body)
  return { method = body and "POST" or "GET", path = path, body = body, headers = { ["Content-Type"] = body and "application/json" or nil,
    ["Content-Length"] = body and #body or nil, ["moonpool-admin"] = "1", Authorization = bearer and "Bearer " .. bearer or nil } }
end

local function admin(g, ...) return client.request(g, request(...), { admin = true }) end
local function code_of(g, bearer) return assert(admin(g, "/api/code", bearer, "{}"):json().code) end
local function open(g, code) return admin(g, "/session", nil, ('{"code":"%s"}'):format(code)) end
local function own(g, bearer) return admin(g, "/api/config", bearer).status end

describe("the dashboard", function()
  it("has its logins and links after two upgrades, and no token of them passes between the processes", function()
    local g <close> = upgrading.start_quick { config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } } } }
    local login = open(g, code_of(g, token)):json().token
    local used, link, of_login = code_of(g, token), code_of(g, token), code_of(g, login)
    assert.equal(200, open(g, used).status)
    local kept <close> = client.connect(g, { admin = true })
    assert.equal(200, kept:request(request("/api/config", login)).status)
    for _ = 1, 2 do
      g:must_upgrade_by_signal()
      assert.equal(200, own(g, login))
      assert.equal(200, own(g, token))
      assert.equal(404, open(g, used).status)
      assert.equal(401, own(g, ("0"):rep(64)))
    end
    local second = open(g, link)
    assert.equal(200, second.status)
    assert.equal(404, open(g, link).status)
    assert.equal(200, own(g, second:json().token))
    assert.equal(200, open(g, of_login).status)
    for _, secret in ipairs { login, link, of_login } do assert.is_nil(g:log():find(secret, 1, true)) end
  end)

  it("has none of those whose token the configuration of the new process does not have", function()
    local g <close> = upgrading.start_quick { config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } } } }
    local login, link = open(g, code_of(g, token)):json().token, code_of(g, token)
    local other = ("n"):rep(32)
    local text = g:file "moonpool.yaml"
    local file <close> = assert(io.open(g.dir .. "/moonpool.yaml", "wb"))
    file:write((text:gsub(token, other)))
    file:close()
    g:must_upgrade_by_signal()
    assert.equal(200, own(g, other))
    assert.equal(401, own(g, login))
    assert.equal(404, open(g, link).status)
  end)
end)
