-- What sign_in refuses before anybody signs in: configurations, lines of users, rights for which no token has room.
local gateway = require "spec.helpers.gateway"
local signing_in = require "spec.helpers.signing_in"
local wait = require "spec.helpers.wait"
local uv = require "luv"

local hash = signing_in.users:match "scrypt:(%S+)"

-- What `moonpool check` says of a gateway with these users and further keys.
local function check(users, more)
  local config = { public_url = signing_in.url, sign_in = { provider = "password", passwords = "users.txt" } }
  for name, value in pairs(more or {}) do config[name] = value end
  local dir = gateway.prepare { scripts = {}, files = { ["users.txt"] = users }, config = config }
  uv.fs_chmod(dir .. "/users.txt", 384)
  local code, _, err = gateway.exec({ "check" }, { cwd = dir })
  os.execute("rm -rf '" .. dir .. "'")
  return code, err
end

describe("the check of a gateway with sign_in", function()
  local users = signing_in.users

  it("refuses seal_keys without a file for what has ended", function()
    local code, err = check(users, { seal_keys = { ("k"):rep(32) } })
    assert.equal(78, code)
    assert.truthy(err:find("'sign_in' with 'seal_keys' needs 'store.file'", 1, true), err)
    assert.equal(0, (check(users, { seal_keys = { ("k"):rep(32) }, store = { file = "s.db" } })))
  end)

  it("refuses a default port in public_url, which clients leave out", function()
    for _, url in ipairs { "http://127.0.0.1:80", "https://localhost:443" } do
      local code, err = check(users, { public_url = url })
      assert.equal(78, code)
      assert.truthy(err:find("without the default port", 1, true), err)
      assert.truthy(err:find("as in public_url: " .. url:match "^(.*):%d+$", 1, true), err)
    end
    assert.equal(0, (check(users, { public_url = "http://127.0.0.1:8080" })))
  end)

  it("says which key names a file that is not there", function()
    local _, err = check(users, { sign_in = { provider = "password", passwords = "nobody.txt" } })
    assert.truthy(err:find("nobody.txt: the file cannot be read", 1, true), err)
    assert.truthy(err:find("hint: sign_in.passwords names this file", 1, true), err)
  end)

  it("refuses a hash that cannot be computed, or takes too much memory", function()
    for numbers, why in pairs { ["40000:8:3"] = "power of two", ["131072:8:3"] = "64 MiB", ["65536:16:3"] = "64 MiB", ["16384:8:3"] = "at least 32768:8:3",
      ["9223372036854775807:8:3"] = "64 MiB", ["99999999999999999999999:8:3"] = "64 MiB" } do
      local _, err = check("ann scrypt:" .. hash:gsub("^32768:8:3", numbers) .. "\n")
      assert.truthy(err:find(why, 1, true), numbers .. ": " .. err)
    end
    local salt = hash:match "^%d+:%d+:%d+:([^:]+)"
    for text, why in pairs { [hash:sub(1, -4)] = "is the line cut", [hash .. "AAAA"] = "is the line cut", [hash:gsub(salt, "AAAA")] = "is the line cut",
      [hash:gsub(salt, ("A"):rep(88))] = "is the line cut", [hash:sub(1, -2)] = "base64url" } do
      local _, err = check("ann scrypt:" .. text .. "\n")
      assert.truthy(err:find("users.txt:1: ", 1, true) and err:find(why, 1, true), text .. ": " .. err)
    end
    local _, nothing = check "# nobody yet\n"
    assert.truthy(nothing:find("there is no user in it", 1, true), nothing)
    local _, spaces = check("ann scrypt:" .. hash .. " a b\n")
    assert.truthy(spaces:find("scopes have commas between them", 1, true), spaces)
    local code, err = check("ann scrypt:" .. hash:gsub("^32768:8:3", "65536:8:3") .. "\n")
    assert.equal(0, code, err)
  end)
end)

describe("a user with more scopes than a token can name", function()
  it("is refused with a line of the log, and gets in where the client asks for fewer", function()
    local list = {}
    for i = 1, 200 do list[i] = ("notes:%03d:read"):format(i) end
    local many = {}
    for i = 1, 257 do many[i] = "a" .. i end
    local users = "ann scrypt:" .. hash .. " " .. table.concat(list, ",") .. "\nbob scrypt:" .. hash .. " " .. table.concat(many, ",") .. "\n"
    local g <close> = signing_in.start(nil, { files = { ["users.txt"] = users } })
    local client = signing_in.register(g)
    for _, name in ipairs { "ann", "bob" } do
      local browser = signing_in.browser(g)
      local page = browser:sign_in(browser:allow(browser:begin(client)), name)
      assert.equal(403, page.status)
      assert.truthy(page.body:find("more rights here than one sign-in can give", 1, true))
    end
    wait.for_fact("a line for each of them", 10, function()
      local log = g:log()
      return log:find("user ann: scopes for which an access token of 2048 bytes has no room", 1, true) and log:find("user bob: more than 256 scopes", 1, true)
    end)
    local tokens = signing_in.tokens(g, client, { scope = ("notes:001:read "):rep(30) .. "notes:002:read" })
    assert.equal("notes:001:read notes:002:read", tokens.scope)
    local again = signing_in.refresh(g, client, tokens.refresh_token, { scope = ("notes:001:read "):rep(300) }):json()
    assert.equal("password:ann notes:001:read", (signing_in.who(g, again.access_token)))
  end)
end)

describe("registrations", function()
  it("of one address have a rate, and others go on", function()
    local g <close> = signing_in.start { listen = { address = "127.0.0.1:0", trusted_proxies = { "127.0.0.1" } } }
    local statuses, last = {}, nil
    for _ = 1, 70 do
      local _, response = signing_in.register(g, nil, { ["X-Forwarded-For"] = "192.0.2.1" })
      statuses[response.status] = (statuses[response.status] or 0) + 1
      if response.status == 429 then last = response end
    end
    assert.is_true(statuses[201] >= 60 and statuses[201] < 70, statuses[201] .. " registrations")
    assert.truthy(tonumber(last.headers["retry-after"]) >= 1)
    local _, other = signing_in.register(g, nil, { ["X-Forwarded-For"] = "192.0.2.2" })
    assert.equal(201, other.status)
  end)
end)

describe("the id of a person", function()
  it("is none of an API key", function()
    local wire = require "spec.helpers.wire"
    local script = [[return auth.keys { prefix = "%s", keys = { ["%s"] = { sha256 = "%s" } } }]]
    local digest = "3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153e0"        -- of "token"
    local function start(prefix, name)
      return signing_in.start(nil, { scripts = { ["auth/keys.lua"] = script:format(prefix, name, digest), ["tools/who.lua"] =
        [[return tool { "Says who calls.", function(_, call) return call.principal.id end }]] } })
    end
    local function call(g)
      local message = wire.message(1, "tools/call", { name = "who", arguments = {}, _meta = wire.meta() })
      return wire.post(g, message, wire.mirrored(message, { ["X-Api-Key"] = "token" }))
    end
    local g <close> = start("", "password:ann")
    assert.equal(401, call(g).status)
    local other <close> = start("", "robot:ann")
    assert.equal("robot:ann", call(other):json().result.content[1].text)
    local dir = gateway.prepare { scripts = { ["auth/keys.lua"] = script:format("password:", "ann", digest) }, files = { ["users.txt"] = signing_in.users },
      config = { public_url = signing_in.url, sign_in = { provider = "password", passwords = "users.txt" } } }
    uv.fs_chmod(dir .. "/users.txt", 384)
    local code, _, err = gateway.exec({ "check" }, { cwd = dir })
    os.execute("rm -rf '" .. dir .. "'")
    assert.equal(78, code)
    assert.truthy(err:find("belong to people who sign in at this gateway", 1, true), err)
  end)
end)
