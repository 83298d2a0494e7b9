-- Files that auth scripts name: what is wrong in them is found by `moonpool check` and at the start, and the gateway is
-- not ready while no key can be read.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local good = "# people\nci sha256:" .. ("0"):rep(64) .. " a,b\n"
local keys = { ["auth/keys.lua"] = 'return auth.keys { file = "secret/keys" }', ["tools/one.lua"] = 'return tool { "One.", function() return "one" end }' }
local tokens = { ["tools/one.lua"] = keys["tools/one.lua"],
  ["auth/main.lua"] = 'return auth.jwt { issuer = "https://i", audience = "a", key_file = "secret/keys" }' }
local grant = { scripts = { path = "scripts", allow = { read = { "secret" } } } }

local INITIALIZE <const> = [[{"jsonrpc":"2.0","id":1,"method":"initialize","params":]]
  .. [[{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}]]

local function check(scripts, text)
  local dir = gateway.prepare { scripts = scripts, config = grant, files = { ["secret/keys"] = text, ["secret/x"] = "" } }
  local code, _, err = gateway.exec({ "check", "--strict", "moonpool.yaml" }, { cwd = dir })
  os.execute("rm -rf '" .. dir .. "'")
  return code, err
end

local function save(g, text)
  local file <close> = assert(io.open(g.dir .. "/secret/keys", "wb"))
  file:write(text)
end

describe("moonpool check", function()
  it("finds what is wrong in a file of keys: where, what, and what to do; and shows no key", function()
    assert.same({ 0, "" }, { check(keys, good) })
    assert.same({ 0, "" }, { check(keys, "ci sha256:" .. ("0"):rep(64) .. " - 2028-02-29\n") })
    local hint = "hint: as in `ci sha256:… orders:read 2027-01-31`: moonpool key new NAME prints such a line"
    for _, row in ipairs {
      { good .. "mp_plain\n", "secret/keys:3: the line is not a key" },
      { good .. "mp_plain a,b\n", "secret/keys:3: the key needs the SHA-256 of its text" },
      { "desk mp_plain\n", "secret/keys:1: the key needs the SHA-256 of its text" },
      { "ann: sha256:" .. ("0"):rep(64) .. "\n", "secret/keys:1: the name of a key does not end with ':'" },
      { good .. "desk sha256:" .. ("1"):rep(64) .. " - 31.01.2027\n", "secret/keys:3: the key's last day is not a day as in 2027-01-31" },
      { "desk sha256:" .. ("1"):rep(64) .. " - 2027-02-30\n", "secret/keys:1: the key's last day is not a day" },
      { "desk sha256:" .. ("1"):rep(64) .. " a\\b\n", "secret/keys:1: one of the scopes is not a valid scope" },
      { good .. "desk sha256:" .. ("0"):rep(64) .. "\n", "secret/keys:3: it is the same key as 'ci'" },
    } do
      local code, err = check(keys, row[1])
      assert.equal(1, code, row[1])
      assert.matches(row[2], err, 1, true)
      assert.matches(hint, err, 1, true)
      assert.is_nil(err:find("mp_plain", 1, true), err)
    end
  end)

  it("finds a file that is missing, and one of keys of an issuer", function()
    for _, scripts in ipairs { keys, tokens } do
      local code, err = check(scripts, nil)
      assert.equal(1, code)
      assert.matches("secret/keys: the file cannot be read: there is no such file or folder", err, 1, true)
      assert.matches(scripts == keys and "hint: scripts/auth/keys.lua names this file" or "hint: scripts/auth/main.lua names this file", err, 1, true)
    end
    local code, err = check(tokens, "nonsense")
    assert.equal(1, code)
    assert.matches("^secret/keys: ", err)
  end)
end)

describe("a gateway that cannot read a file of an auth script", function()
  for name, scripts in pairs { ["auth.keys"] = keys, ["auth.jwt"] = tokens } do
    it("is not ready, and says so before a client comes, until the file can be read: " .. name, function()
      local text = good
      if scripts == tokens then
        text = select(2, gateway.run_program("/bin/sh", { "-c", "openssl genpkey -algorithm ed25519 | openssl pkey -pubout" }))
      end
      local g <close> = gateway.start { scripts = scripts, config = grant, files = { ["secret/x"] = "" } }
      g:wait_log("file not accepted", { path = "secret/keys" })
      local answer = wait.for_fact("/readyz to answer 503", 20, function()
        local now = g:admin "/readyz"
        return now.status == 503 and now
      end)
      assert.equal("not ready: a file that an auth script names cannot be read: the log names it\n", answer.body)
      assert.equal("1", answer.headers["retry-after"])
      assert.is_true(g:status().gauges.auth_files_unread > 0)
      save(g, text)
      wait.for_fact("/readyz to answer 200", 20, function() return g:admin "/readyz".status == 200 end)
      save(g, "nonsense\n") -- the last good contents stay in use
      assert.equal(401, client.request(g, { path = "/mcp", method = "POST", headers = { ["x-api-key"] = "k" }, body = "{}" }).status)
      assert.equal(200, g:admin "/readyz".status)
      assert.has_nothing_left(g)
    end)
  end

  it("logs the line of the file and what to do", function()
    local g <close> = gateway.start { scripts = keys, config = grant, files = { ["secret/keys"] = good .. "mp_plain\n" } }
    g:wait_log("file not accepted", { path = "secret/keys:3", why = "the line is not a key" })
    assert.is_nil(g:log():find("mp_plain", 1, true))
    save(g, good)
    wait.for_fact("/readyz to answer 200", 20, function() return g:admin "/readyz".status == 200 end)
  end)

  it("is not ready after a reload that names such a file, and is again after one that names another", function()
    local function write(g, text)
      local file <close> = assert(io.open(g.dir .. "/scripts/auth/keys.lua", "wb"))
      file:write(text)
    end
    local g <close> = gateway.start { scripts = keys, config = grant, files = { ["secret/keys"] = good } }
    write(g, 'return auth.keys { file = "secret/none" }')
    wait.for_fact("/readyz to answer 503", 20, function() return g:admin "/readyz".status == 503 end)
    write(g, keys["auth/keys.lua"])
    wait.for_fact("/readyz to answer 200", 20, function() return g:admin "/readyz".status == 200 end)
    assert.equal(0, g:status().gauges.auth_files_unread)
  end)

  it("goes on with the last good contents after a reload, for every worker", function()
    local key = "mp_" .. ("k"):rep(43)
    local _, sum = gateway.run_program("/bin/sh", { "-c", "printf %s " .. key .. " | sha256sum" })
    local g <close> = gateway.start { workers = 2, scripts = keys, config = grant, files = { ["secret/keys"] = "ci sha256:" .. sum:match "^%x+" .. "\n" } }
    local function statuses()
      local all = {}
      for i = 1, 12 do -- a connection each, so that both workers answer
        local headers = { ["x-api-key"] = key, ["content-type"] = "application/json", accept = "application/json, text/event-stream" }
        all[i] = client.request(g, { path = "/mcp", method = "POST", headers = headers, body = INITIALIZE }).status
      end
      return all
    end
    local fine = {}
    for i = 1, 12 do fine[i] = 200 end
    assert.same(fine, statuses())
    for generation, break_it in ipairs { function() save(g, "nonsense\n") end, function() assert(os.remove(g.dir .. "/secret/keys")) end } do
      break_it()
      local file <close> = assert(io.open(g.dir .. "/scripts/tools/one.lua", "wb"))
      file:write(('return tool { "One.", function() return "%d" end }'):format(generation))
      file:close()
      g:wait_status(function(now) return now.scripts.generation == generation + 1 end)
      assert.same(fine, statuses())
      wait.for_fact("/readyz to answer 200", 20, function() return g:admin "/readyz".status == 200 end)
      g:wait_log("file not accepted", { path = generation == 1 and "secret/keys:1" or "secret/keys" })
    end
    assert.equal(0, g:status().gauges.auth_files_unread)
    assert.equal(#"ci sha256:" + 64 + 1, g:status().gauges.auth_files_bytes)
  end)

  it("is ready where the configuration turns auth scripts off", function()
    local g <close> = gateway.start { scripts = keys, files = { ["secret/x"] = "" },
      config = { auth = "none", scripts = grant.scripts } }
    g:wait_log("file not accepted", { path = "secret/keys" })
    assert.equal(200, g:admin "/readyz".status)
  end)
end)
