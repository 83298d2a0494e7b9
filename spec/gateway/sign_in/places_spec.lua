-- SD-22, SY-04: the addresses and cookies of a gateway below a prefix, and behind https; and a sign-in over a reload.
local cjson = require "cjson"
local signing_in = require "spec.helpers.signing_in"
local uv = require "luv"

local KEPT <const> = { seal_keys = { ("k"):rep(32) }, store = { file = "store.db" } }

local function over(base, more)
  for name, value in pairs(base) do more[name] = value end
  return more
end

-- The rest of a sign-in from the consent page on, at the addresses that the pages name: the parameters for the client.
local function go_on(browser, page, origin)
  for _, fields in ipairs { { answer = "allow" }, { name = "ann", password = signing_in.password } } do
    assert.equal(200, page.status)
    page = browser:post(page, page.body:match 'action="([^"]+)"', fields, { Origin = origin })
  end
  assert.equal(303, page.status)
  return signing_in.returned(page)
end

describe("below a prefix", function()
  it("all addresses have it, and forms and tokens work", function()
    local url <const> = signing_in.url .. "/gw"
    local g <close> = signing_in.start { endpoints = { prefix = "/gw" } }
    local metadata = signing_in.send(g, "GET", "/.well-known/oauth-authorization-server/gw"):json()
    assert.equal(url, metadata.issuer)
    for _, name in ipairs { "authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint" } do
      assert.equal(url .. "/oauth/", metadata[name]:match "^(.*/)%w+$", name)
    end
    local client = cjson.decode(signing_in.send(g, "POST", "/gw/oauth/register", cjson.encode { redirect_uris = { signing_in.redirect },
      token_endpoint_auth_method = "none" }, { ["Content-Type"] = "application/json" }).body)
    local ann = signing_in.browser(g)
    local query = { response_type = "code", client_id = client.client_id, redirect_uri = signing_in.redirect, code_challenge = signing_in.challenge,
      code_challenge_method = "S256", state = "x" }
    local page = ann:send("GET", "/gw/oauth/authorize?" .. signing_in.form(query))
    assert.equal("/gw/oauth/consent", page.body:match 'action="([^"]+)"')
    local returned = go_on(ann, page)
    assert.equal(url, returned.iss)
    local tokens = signing_in.post(g, "/gw/oauth/token", { grant_type = "authorization_code", code = returned.code, redirect_uri = signing_in.redirect,
      client_id = client.client_id, code_verifier = signing_in.verifier }):json()
    assert.is_string(tokens.access_token)
    assert.equal(404, signing_in.send(g, "GET", "/gw/oauth/nothing").status)
  end)
end)

describe("behind https", function()
  local ORIGIN <const>, HOST <const> = "https://mcp.example.com", "mcp.example.com"

  it("cookies have the prefix __Host- and are Secure, and of two of one name none counts", function()
    local g <close> = signing_in.start(over(KEPT, { public_url = ORIGIN, hosts = { HOST } }))
    local client = signing_in.register(g, nil, { Host = HOST })
    local ann = signing_in.browser(g)
    local send = ann.send
    function ann:send(method, path, body, headers) return send(self, method, path, body, over({ Host = HOST }, headers or {})) end
    local page = ann:begin(client, { resource = false })
    local set = page.headers["set-cookie"]
    assert.matches("^__Host%-moonpool%-%w+=", set)
    for _, word in ipairs { "; Path=/", "; HttpOnly", "; SameSite=Lax", "; Secure" } do assert.truthy((set .. ";"):find(word .. ";", 1, true), set) end
    assert.is_nil(set:find "Domain")
    local name, value = ann.cookie:match "^([^=]+)=(.*)$"
    for _, planted in ipairs { name .. "=" .. value .. "x; " .. ann.cookie, name:gsub("^__Host%-", "") .. "=" .. value } do
      local answer = ann:post(page, "/oauth/consent", { answer = "allow" }, { Origin = ORIGIN, Cookie = planted })
      assert.equal(403, answer.status, planted)
    end
    ann.cookie = name .. "=" .. value
    assert.equal(ORIGIN, go_on(ann, page, ORIGIN).iss)
  end)

  it("not on loopback by http, where browsers drop such cookies", function()
    local g <close> = signing_in.start()
    local set = signing_in.browser(g):begin((signing_in.register(g))).headers["set-cookie"]
    assert.matches("^moonpool%-%w+=", set)
    assert.is_nil(set:find("Secure", 1, true))
  end)
end)

describe("a reload in the middle of a sign-in", function()
  it("changes nothing for the person, the code and the tokens", function()
    local g <close> = signing_in.start()
    local generation = 1
    local function reload()
      generation = generation + 1
      local file <close> = assert(io.open(g.dir .. "/scripts/tools/more" .. generation .. ".lua", "w"))
      file:write 'return tool { "One more.", function() return "more" end }'
      file:close()
      uv.kill(g.pid, "sighup")
      g:wait_status(function(status) return status.scripts.generation == generation end)
    end
    local client = signing_in.register(g)
    local ann = signing_in.browser(g)
    local page = ann:begin(client)
    reload()
    page = ann:allow(page)
    reload()
    local code = signing_in.returned(ann:sign_in(page)).code
    reload()
    local tokens = signing_in.redeem(g, client, code):json()
    reload()
    assert.equal("password:ann notes:read notes:write", (signing_in.who(g, tokens.access_token)))
    assert.equal(200, signing_in.refresh(g, client, tokens.refresh_token).status)
    assert.equal("invalid_grant", signing_in.redeem(g, client, code):json().error)
    assert.equal(401, (signing_in.who(g, tokens.access_token)))
    assert.has_nothing_left(g)
  end)
end)
