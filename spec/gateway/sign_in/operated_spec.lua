-- S-21, S-37, SY-48: operators see who is signed in, and sign people out; whoever the file of users or the configuration no
-- longer lets in is out within a second, with streams and calls.
local cjson = require "cjson"
local client_of_admin = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local signing_in = require "spec.helpers.signing_in"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local TOKEN <const> = ("o"):rep(32)
local ADMIN <const> = { listen = "127.0.0.1:0", tokens = { operate = { joe = TOKEN } } }

local function sessions(g, ...)
  return gateway.exec({ "sessions", "--admin", "127.0.0.1:" .. g.admin_port, ... }, { cwd = g.dir, env = { MOONPOOL_ADMIN_TOKEN = TOKEN } })
end

local function ends(connection, seconds)
  local began = uv.hrtime()
  wait.for_fact("the end of a stream", 10, function() return signing_in.has_ended(connection) end)
  local took = (uv.hrtime() - began) / 1e9
  assert.is_true(took < seconds, "it took " .. took .. " s")
  connection:close()
end

describe("moonpool sessions", function()
  it("lists who is signed in, without tokens, and signs a user out on all workers", function()
    local g <close> = signing_in.start({ admin = ADMIN, log = { audit = "audit.jsonl" } }, { workers = 2 })
    local client = signing_in.register(g)
    local ann, bob = signing_in.tokens(g, client), signing_in.tokens(g, client, nil, "bob")
    local code, out, err = sessions(g)
    assert.equal(0, code, err)
    assert.matches("ann +Spec +%d%d%d%d%-%d%d%-%d%d %d%d:%d%dZ", out)
    assert.matches("bob +Spec", out)
    assert.is_nil(out:find "mp[arc]_")
    local _, text = sessions(g, "--user", "bob", "--json")
    local list = cjson.decode(text).sign_ins
    assert.same({ 1, "bob", "Spec" }, { #list, list[1].user, list[1].name })
    assert.is_nil(text:find(bob.refresh_token:match "^mpr_([^.]+)", 1, true))
    local gone, stay = signing_in.listen(g, ann.access_token), signing_in.listen(g, bob.access_token)
    local done, said = sessions(g, "--user", "ann", "--revoke")
    assert.same({ 0, "1 of the user's sign-ins ended\n" }, { done, said })
    ends(gone, 3)
    for _ = 1, 6 do assert.equal(401, (signing_in.who(g, ann.access_token))) end
    assert.equal("invalid_grant", signing_in.refresh(g, client, ann.refresh_token):json().error)
    assert.equal("password:bob ", (signing_in.who(g, bob.access_token)))
    assert.is_false(signing_in.has_ended(stay))
    stay:close()
    assert.equal(1, (sessions(g, "--user", "ann", "--revoke")))
    local audit = g:file "audit.jsonl"
    assert.truthy(audit:find('"event":"signed out by operator"', 1, true), audit)
    assert.same({ signed_in = 2, ended = 1, refused = 0 }, g:status().counters.sign_ins)
    assert.has_nothing_left(g)
  end)

  it("says what is wrong with its options, and that nobody signs in at a gateway without sign_in", function()
    local g <close> = gateway.start { scripts = {}, config = { admin = ADMIN } }
    local code, _, err = sessions(g)
    assert.equal(1, code)
    assert.matches("nobody signs in at this gateway", err, 1, true)
    local misused, _, why = sessions(g, "--revoke")
    assert.equal(2, misused)
    assert.matches("--revoke needs --user", why, 1, true)
  end)

  it("ends one by its mark, through the API of the dashboard", function()
    local g <close> = signing_in.start { admin = ADMIN }
    local client = signing_in.register(g)
    local one, other = signing_in.tokens(g, client), signing_in.tokens(g, client)
    local function api(method, path)
      local headers = { Authorization = "Bearer " .. TOKEN, ["moonpool-admin"] = "1" }
      return client_of_admin.request(g, { method = method, path = path, headers = headers }, { admin = true })
    end
    local list = api("GET", "/api/sign-ins"):json()
    assert.equal(2, list.total)
    assert.equal(1, api("DELETE", "/api/sign-in/" .. list.sign_ins[1].sign_in):json().ended)
    assert.equal(1, api("GET", "/api/sign-ins"):json().total)
    local left = 0
    for _, tokens in ipairs { one, other } do left = left + (signing_in.who(g, tokens.access_token) == 401 and 0 or 1) end
    assert.equal(1, left)
    assert.equal(404, api("DELETE", "/api/sign-in/../x").status)
    assert.equal(400, api("POST", "/api/sign-ins/end").status)
  end)
end)

describe("a user who may not sign in any more", function()
  local function write(g, path, text)
    local file <close> = assert(io.open(g.dir .. "/" .. path .. ".new", "w"))
    file:write(text)
    file:close()
    uv.fs_chmod(g.dir .. "/" .. path .. ".new", 384)
    assert(os.rename(g.dir .. "/" .. path .. ".new", g.dir .. "/" .. path))
  end

  it("is out for good within a second when the line is removed, with streams", function()
    local g <close> = signing_in.start(nil, { workers = 2 })
    local client = signing_in.register(g)
    local ann, bob = signing_in.tokens(g, client), signing_in.tokens(g, client, nil, "bob")
    local gone, stay = signing_in.listen(g, bob.access_token), signing_in.listen(g, ann.access_token)
    write(g, "users.txt", "")                                                 -- a full disk: what it said before counts on
    wait.for_fact("a line of the log", 10, function() return g:log():find("there is no user in it", 1, true) end)
    assert.equal("password:bob ", (signing_in.who(g, bob.access_token)))
    write(g, "users.txt", signing_in.users:match "(ann.-\n)")
    ends(gone, 4)
    for _ = 1, 6 do assert.equal(401, (signing_in.who(g, bob.access_token))) end
    write(g, "users.txt", signing_in.users)
    wait.for_fact("bob to sign in again", 10, function() return (pcall(signing_in.tokens, g, client, nil, "bob")) end)
    assert.equal(401, (signing_in.who(g, bob.access_token)))
    assert.equal("invalid_grant", signing_in.refresh(g, client, bob.refresh_token):json().error)
    assert.equal("password:ann notes:read notes:write", (signing_in.who(g, ann.access_token)))
    assert.is_false(signing_in.has_ended(stay))
    stay:close()
  end)

  it("is out when a reload takes the name out of allow, also over a restart", function()
    local keep = { seal_keys = { ("k"):rep(32) }, store = { file = "store.db" } }
    local g <close> = signing_in.start(keep)
    local client = signing_in.register(g)
    local ann, bob = signing_in.tokens(g, client), signing_in.tokens(g, client, nil, "bob")
    local gone = signing_in.listen(g, bob.access_token)
    local file <close> = assert(io.open(g.dir .. "/moonpool.yaml"))
    local config = cjson.decode(file:read "a")
    config.sign_in.allow = { users = { "ann" } }
    write(g, "moonpool.yaml", cjson.encode(config))
    uv.kill(g.pid, "sighup")
    ends(gone, 5)
    assert.equal(401, (signing_in.who(g, bob.access_token)))
    assert.equal("password:ann notes:read notes:write", (signing_in.who(g, ann.access_token)))
    local again <close> = signing_in.again(g)
    assert.equal(401, (signing_in.who(again, bob.access_token)))
    assert.equal("password:ann notes:read notes:write", (signing_in.who(again, ann.access_token)))
  end)
end)
