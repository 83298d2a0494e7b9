-- Challenges of ACME (HTTP-01, RFC 8555 section 8.3) are answered from a folder, into which a client of ACME on the
-- same machine puts them.
local uv = require "luv"
local certificates = require "spec.helpers.certificates"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"

local PATH <const> = "/.well-known/acme-challenge/"
local TOKEN <const> = "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0"
local ANSWER <const> = TOKEN .. ".9jg46WB3rR_AHD-EBXdN7cBkH1WOu0tA3M9fm21mqTI"

local function start(options)
  options = options or {}
  options.config = options.config or { acme = { challenges = "www" } }
  options.files = { ["www/" .. TOKEN] = ANSWER, ["secret"] = "secret", ["www/LARGE"] = ("x"):rep(1025), ["www/folder/x"] = "x" }
  options.scripts = { ["auth/main.lua"] = 'return auth { function() return nil, "no" end }\n' }
  return gateway.start(options)
end

local function get(g, token, more)
  local request = { method = "GET", path = PATH .. token }
  for name, value in pairs(more or {}) do request[name] = value end
  return client.request(g, request)
end

describe("a challenge of ACME", function()
  it("is answered for any Host, without authentication, while its file is there", function()
    local g <close> = start()
    for _, host in ipairs { "127.0.0.1", "nowhere.example.com", "[::1]" } do
      local answer = get(g, TOKEN, { headers = { Host = host } })
      assert.same({ 200, ANSWER }, { answer.status, answer.body })
    end
    certificates.write(g.dir .. "/www/next_-1", "another")
    assert.equal("another", get(g, "next_-1").body)
    uv.fs_unlink(g.dir .. "/www/next_-1")
    assert.equal(404, get(g, "next_-1").status)
    assert.has_nothing_left(g)
  end)

  it("is never another file", function()
    local g <close> = start { before = function(dir)
      uv.fs_symlink("../secret", dir .. "/www/link")
      gateway.run_program("/usr/bin/mkfifo", { dir .. "/www/pipe" })
    end }
    for _, token in ipairs { "link", "pipe", "LARGE", "folder", ("a"):rep(128) } do assert.equal(404, get(g, token).status, token) end
    -- no tokens: these requests are as all others
    for _, token in ipairs { "", "..%2fsecret", "../../secret", "folder/x", "a.b", ("a"):rep(129), "%00", TOKEN .. "%00" } do
      local answer = get(g, token)
      assert.is_true(answer.status >= 400 and answer.status <= 404, token)
      assert.is_nil(answer.body:find("challenge", 1, true), token)
    end
    assert.matches("nothing is served at this path", get(g, TOKEN, { method = "POST", body = "{}" }).body)
    assert.has_nothing_left(g)
  end)

  it("is refused while too many are answered", function()
    local g <close> = start { constants = { acme_pending = 0 } }
    assert.equal(503, get(g, TOKEN).status)
    assert.equal(1, g:status().counters.refused.acme)
    assert.has_nothing_left(g)
  end)

  it("has no answer without the key", function()
    local g <close> = start { config = {} }
    assert.matches("nothing is served at this path", get(g, TOKEN).body)
    assert.has_nothing_left(g)
  end)
end)
