-- A saved moonpool.yaml takes effect at once, like scripts: all of it or nothing; keys that need a restart are logged.
-- Rules B-85, B-92.
local lfs = require "lfs"
local cjson = require "cjson"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local scripts = { ["tools/one.lua"] = [[return tool { "One.", function() return env "COLOUR" or "no colour" end }]] }

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

-- The configuration at the start, with changes; `more` replaces keys at the top.
local function config(more)
  local all = { listen = "127.0.0.1:0", admin = { listen = "127.0.0.1:0" }, workers = 2, scripts = { path = "scripts" }, overload = { wait = "off" } }
  for key, value in pairs(more or {}) do all[key] = value end
  return cjson.encode(all)
end

local function generation(g) return g:status().scripts.generation end

local function reload(g)
  local response = g:admin("/reload", "POST")
  return response.status, response.body
end

-- HTTP status of a request with another Host: 403 unless the host is among `hosts`.
local function asks_as(g, host)
  return client.request(g, { method = "POST", path = "/mcp", headers = { Host = host, Accept = "application/json, text/event-stream" }, body = {} }).status
end

local saves = {
  ["written over"] = function(path, text) write(path, text) end,
  ["put in place of the old"] = function(path, text)
    write(path .. ".new", text)
    assert(os.rename(path .. ".new", path))
  end,
}

gateway.cpu = nil -- the configuration is written anew here, and nothing but what a spec changes may differ

describe("moonpool.yaml", function()
  for how, save in pairs(saves) do
    it("serves when it is " .. how .. ", on every worker, and sessions stay", function()
      local g <close> = gateway.start { scripts = scripts }
      local session <close> = g:client "2025-11-25"
      assert.equal(403, asks_as(g, "example.com"))
      save(g.dir .. "/moonpool.yaml", config { hosts = { "127.0.0.1", "example.com" }, server = { name = "renamed" }, log = { level = "debug" } })
      g:wait_log("reloaded", { generation = 2, changes = "~ moonpool.yaml (hosts, server.name, log.level)" })
      for _ = 1, 8 do assert.not_equal(403, asks_as(g, "example.com")) end
      assert.equal("no colour", session:result("tools/call", { name = "one" }).content[1].text)
      local late <close> = g:client "2025-11-25"
      assert.equal("renamed", late.server.serverInfo.name)
      session:delete()
      late:delete()
    end)
  end

  it("may be a link, or lie behind one, as config maps have it", function()
    local dir = gateway.new_folder()
    for _, set in ipairs { "/..one", "/..two", "/scripts" } do assert(lfs.mkdir(dir .. set)) end
    write(dir .. "/..one/moonpool.yaml", config { server = { name = "one" } })
    write(dir .. "/..two/moonpool.yaml", config { server = { name = "two" } })
    assert(lfs.link("..one", dir .. "/..data", true))
    assert(lfs.link("..data/moonpool.yaml", dir .. "/moonpool.yaml", true))
    local g <close> = gateway.start { dir = dir }
    assert(lfs.link("..two", dir .. "/..data_tmp", true))
    assert(os.rename(dir .. "/..data_tmp", dir .. "/..data"))
    g:wait_log("reloaded", { changes = "~ moonpool.yaml (server.name)" })
    local me <close> = g:client "2025-11-25"
    assert.equal("two", me.server.serverInfo.name)
    me:delete()
  end)

  it("is read at SIGHUP, POST /reload and moonpool reload where nothing is watched", function()
    local g <close> = gateway.start { scripts = scripts, config = { scripts = { watch = "false" } } }
    local function set(name) write(g.dir .. "/moonpool.yaml", config { scripts = { path = "scripts", watch = "false" }, server = { name = name } }) end
    set "second"
    assert.equal(1, generation(g))
    assert.same({ 200, "~ moonpool.yaml (server.name)\n" }, { reload(g) })
    set "third"
    g:signal "sighup"
    g:wait_log("reloaded", { generation = 3 })
    set "fourth"
    assert.same({ 0, "~ moonpool.yaml (server.name)\n", "" }, { gateway.exec { "reload", "--admin", "127.0.0.1:" .. g.admin_port } })
    assert.same({ 200, "nothing changed\n" }, { reload(g) })
    assert.equal(4, generation(g))
  end)

  it("logs which keys need a restart, and applies the others", function()
    local g <close> = gateway.start { scripts = scripts }
    write(g.dir .. "/moonpool.yaml", config { workers = 3, listen = "127.0.0.1:1", server = { name = "renamed" } })
    g:wait_log("reloaded", { changes = "~ moonpool.yaml (server.name)  needs a restart: listen, workers" })
    assert.equal("listen, workers", g:status().scripts.needs_restart)
    assert.same({ 200, "nothing changed  needs a restart: listen, workers\n" }, { reload(g) })
    write(g.dir .. "/moonpool.yaml", config { workers = 3, server = { name = "renamed" } })
    assert.same({ 200, "nothing changed  needs a restart: workers\n" }, { reload(g) })
    assert.equal(2, generation(g))
    write(g.dir .. "/moonpool.yaml", config { server = { name = "renamed" } })
    assert.same({ 200, "nothing changed\n" }, { reload(g) })
    assert.is_nil(g:status().scripts.needs_restart)
  end)

  it("with a mistake changes nothing, good scripts neither, and is logged with its place", function()
    local g <close> = gateway.start { scripts = scripts }
    local session <close> = g:client "2025-11-25"
    write(g.dir .. "/moonpool.yaml", "sessions:\n  idle: soon\nserver: {name: renamed}\n")
    local line = g:wait_log "config refused"
    assert.truthy(line.fields.error:find("moonpool.yaml:2:9: 'idle' is not a time", 1, true), line.fields.error)
    assert.truthy(g:status().scripts.errors:find("moonpool.yaml:2:9:", 1, true))
    write(g.dir .. "/scripts/tools/two.lua", 'return tool { "Two.", function() return "two" end }')
    local status, text = reload(g)
    assert.equal(422, status)
    assert.truthy(text:find("moonpool.yaml:2:9:", 1, true))
    assert.equal(1, #session:result("tools/list").tools)
    assert.equal(1, generation(g))
    write(g.dir .. "/moonpool.yaml", config {})
    g:wait_log("reloaded", { generation = 2, changes = "+ two" })
    assert.equal(2, #session:result("tools/list").tools)
    session:delete()
  end)

  it("is not read half written: a file that has become empty changes nothing", function()
    local g <close> = gateway.start { scripts = scripts }
    write(g.dir .. "/moonpool.yaml", "")
    assert.same({ 422, "moonpool.yaml:1:1: the file is empty\n  hint: to use every default, write a comment into the file\n" }, { reload(g) })
    assert(os.remove(g.dir .. "/moonpool.yaml"))
    local status, text = reload(g)
    assert.equal(422, status)
    assert.truthy(text:find("moonpool.yaml: cannot read the configuration: No such file", 1, true), text)
    write(g.dir .. "/moonpool.yaml", config {})
    g:wait_status(function(now) return now.scripts.ok end)
    assert.equal(1, generation(g))
  end)

  it("that only was touched, or has another comment, changes nothing", function()
    local g <close> = gateway.start { config = config {} .. "\n" }
    write(g.dir .. "/moonpool.yaml", config {} .. "\n# the same\n")
    assert.same({ 200, "nothing changed\n" }, { reload(g) })
    assert.equal(1, generation(g))
  end)

  it("keeps what the command line said", function()
    local g <close> = gateway.start { scripts = scripts, args = { "--listen", "127.0.0.1:0", "--log-level", "debug" } }
    write(g.dir .. "/moonpool.yaml", config { listen = "127.0.0.1:5", log = { level = "error" }, server = { name = "renamed" } })
    assert.same({ 200, "~ moonpool.yaml (server.name)\n" }, { reload(g) })
  end)
end)

describe("the cause of a reload", function()
  it("is answered once, also while the saved file serves by itself", function()
    local g <close> = gateway.start { scripts = scripts }
    for i = 1, 12 do
      write(g.dir .. "/moonpool.yaml", config { server = { name = "n" .. i } })
      local one, other = client.connect(g, { admin = true }), client.connect(g, { admin = true })
      for _, connection in ipairs { one, other } do connection:send { method = "POST", path = "/reload", body = "" } end
      for _, connection in ipairs { one, other } do
        assert.equal(200, connection:read_response(5).status)
        connection:close()
      end
    end
  end)
end)

describe("a key that is reloaded", function()
  local function changed(g, more)
    write(g.dir .. "/moonpool.yaml", config(more))
    local status, text = reload(g)
    assert.equal(200, status, text)
    return text
  end

  it("gives scripts other grants, or another folder", function()
    local g <close> = gateway.start { scripts = scripts, env = { COLOUR = "green" } }
    local me <close> = g:client "2026-07-28"
    local function says() return me:result("tools/call", { name = "one" }).content[1].text end
    assert.equal("no colour", says())
    changed(g, { scripts = { path = "scripts", allow = { env = "COLOUR" } } })
    assert.equal("green", says())
    assert(lfs.mkdir(g.dir .. "/other"))
    assert(lfs.mkdir(g.dir .. "/other/tools"))
    write(g.dir .. "/other/tools/one.lua", 'return tool { "One.", function() return "other" end }')
    changed(g, { scripts = { path = "other" } })
    assert.equal("other", says())
    write(g.dir .. "/other/tools/one.lua", 'return tool { "One.", function() return "saved there" end }')
    wait.for_fact("the other folder to be watched", 20, function() return says() == "saved there" end)
  end)

  it("limits sessions, bodies, calls and the store from then on", function()
    local g <close> = gateway.start { scripts = { ["tools/slow.lua"] = [[return tool { "Slow.", function() sleep(5) return "late" end }]] } }
    local first = g:client "2025-11-25"
    changed(g, { sessions = { max = 1 }, limits = { body = "1KiB", call = { time = "50ms" } }, store = { entries = 5 } })
    local refused = client.request(g, { method = "POST", path = "/mcp", headers = { Accept = "application/json, text/event-stream" }, body = {
      jsonrpc = "2.0", id = 1, method = "initialize",
      params = { protocolVersion = "2025-11-25", capabilities = {}, clientInfo = { name = "s", version = "1" } },
    } })
    assert.equal(429, refused.status)
    assert.equal(413, client.request(g, { method = "POST", path = "/mcp", headers = { ["Content-Type"] = "application/json" }, body = ("x"):rep(1100) }).status)
    assert.truthy(first:call("tools/call", { name = "slow" }).error.message:find("too long", 1, true))
    changed(g, {})
    local second <close> = g:client "2025-11-25"
    first:delete()
    second:delete()
    first:close()
  end)
end)

describe("moonpool run --watch", function()
  it("prints each reload as a plan, with its mistakes, on the terminal", function()
    local g <close> = gateway.start { scripts = scripts, config = { scripts = { watch = "false" } }, args = { "--watch" } }
    local function printed(text)
      wait.for_fact(text, 20, function()
        local file <close> = assert(io.open(g.dir .. "/stdout", "rb"))
        return file:read("a"):find("%d%d:%d%d:%d%d  " .. text:gsub("%p", "%%%0"))
      end)
    end
    write(g.dir .. "/scripts/tools/refund.lua", 'return tool { "Refunds.", input = { id = t.string "Which" }, function() return "done" end }')
    printed "+ refund\n"
    write(g.dir .. "/scripts/tools/refund.lua", 'return tool { "Refunds.", input = { order = t.string "Which" }, function() return "done" end }')
    assert(os.remove(g.dir .. "/scripts/tools/one.lua"))
    printed "- one  ~ refund (schema)\n"
    assert(lfs.mkdir(g.dir .. "/scripts/jobs"))
    write(g.dir .. "/scripts/jobs/sweep.lua", 'return job { "Sweeps.", every = 5 * minutes, function() end }')
    printed "+ job sweep\n"
    write(g.dir .. "/scripts/jobs/sweep.lua", 'return job { "Sweeps.", every = 6 * minutes, function() end }')
    printed "~ job sweep (every)\n"
    write(g.dir .. "/scripts/tools/bad.lua", "return 5")
    printed "not reloaded:\nscripts/tools/bad.lua:1: "
    assert(os.remove(g.dir .. "/scripts/tools/bad.lua"))
    printed "change reverted: the files equal what is served\n"
    g:wait_log("change reverted", { generation = 5 })
  end)
end)
