-- A start serves what served last: where the files on the disk have errors, the last good generation from the state
-- folder serves, and this is told.
local cjson = require "cjson.safe"
local lfs = require "lfs"
local uv = require "luv"
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local stdio = require "spec.helpers.stdio"
local wait = require "spec.helpers.wait"

local function says(text) return ("return tool { 'Says it.', function() return '%s' end }"):format(text) end

local POLICY <const> = "return policy { tools = { 'guarded' }, function() fail 'not today' end }"

-- A file of each kind.
local SCRIPTS <const> = {
  ["tools/one.lua"] = says "one", ["tools/two.lua"] = says "two", ["tools/guarded.lua"] = says "open", ["tools/who.lua"] = credentials.who,
  ["policy/guard.lua"] = POLICY, ["auth/main.lua"] = credentials.script, ["lib/words.lua"] = "return { hello = 'hello' }",
  ["tools/hello.lua"] = "local words = require 'words' return tool { 'Greets.', function() return words.hello end }",
}

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

local function config(more)
  local made = { listen = "127.0.0.1:0", admin = { listen = "127.0.0.1:0" }, workers = 2 }
  for key, value in pairs(more or {}) do made[key] = value end
  return made
end

local function prepare(options)
  options = options or {}
  local dir = gateway.prepare { config = cjson.encode(config(options.config)), scripts = options.scripts or SCRIPTS, files = options.files }
  return dir, { XDG_STATE_HOME = dir .. "/state" }
end

local function start(dir, env) return gateway.start { dir = dir, env = env } end

-- The one file of the state folder; nil: none.
local function kept_file(dir)
  local found
  local folder = dir .. "/state/moonpool/last-good"
  if lfs.attributes(folder, "mode") ~= "directory" then return nil end
  for name in lfs.dir(folder) do
    if #name == 32 then
      assert(not found, "two files")
      found = folder .. "/" .. name
    end
  end
  return found
end

local function wait_kept(g, generation)
  return g:wait_status(function(status) return status.scripts.last_good.kept == (generation or status.scripts.generation) end)
end

-- Runs a gateway until its generation is kept, then kills it as a power failure does. Returns its folder and
-- environment.
local function served(options)
  local dir, env = prepare(options)
  local g = start(dir, env)
  wait_kept(g)
  g:kill()
  return dir, env
end

local function call(g, name, token)
  local me <close> = g:client "2026-07-28"
  me.token = token or "ann-1"
  local answer, response = me:call("tools/call", { name = name })
  local result = answer and answer.result
  return result and result.content[1].text, result and result.isError, response.status
end

-- Asserts that each tool answers as the last good generation has it, and that policies and auth scripts still refuse.
local function serves_all(g)
  assert.equal("one", (call(g, "one")))
  assert.equal("two", (call(g, "two")))
  assert.equal("hello", (call(g, "hello")))
  assert.equal("user:ann", (call(g, "who")))
  assert.truthy(select(2, call(g, "guarded")))
  assert.equal(401, select(3, call(g, "one", "stranger-1")))
end

local function wait_metric(g, value)
  wait.for_fact("moonpool_config_ok " .. value, 20, function()
    return g:admin("/metrics").body:find("\nmoonpool_config_ok " .. value .. "\n", 1, true)
  end)
end

-- Asserts that /status and the log name `file` as the one on the disk that has errors.
local function tells(g, file, event)
  local status = g:status().scripts
  assert.is_false(status.ok)
  assert.truthy(status.errors:find(file, 1, true), status.errors)
  assert.equal("last_good", status.start.serves)
  assert.truthy(g:wait_log(event or "script refused").fields.error:find(file, 1, true))
  assert.equal("error", g:wait_log "the last good generation serves".level)
  wait_metric(g, 0)
  local code, out = gateway.exec { "status", "--admin", "127.0.0.1:" .. g.admin_port }
  assert.equal(0, code)
  assert.matches("^warning   the last good generation serves[^\n]*\n", out)
  assert.truthy(out:find(file, 1, true), out)
end

describe("a start", function()
  for path, text in pairs {
    ["tools/one.lua"] = "return tool {", ["tools/new.lua"] = "return tool {", ["policy/guard.lua"] = "return policy {", ["auth/main.lua"] = "return auth {",
    ["lib/words.lua"] = "return {", ["wrong/folder.lua"] = "return 1", ["auth/second.lua"] = "error 'x'",
  } do
    it("with a broken " .. path .. " serves the last good generation, names the file, and serves the file once it is good", function()
      local dir, env = served()
      lfs.mkdir(dir .. "/scripts/" .. path:match "^%w+")
      write(dir .. "/scripts/" .. path, text)
      local g <close> = start(dir, env)
      serves_all(g)
      tells(g, path)
      assert.equal(78, (gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })))
      if SCRIPTS[path] then write(dir .. "/scripts/" .. path, SCRIPTS[path]) else os.remove(dir .. "/scripts/" .. path) end
      g:wait_status(function(status) return status.scripts.ok and not status.scripts.start end)
      wait_metric(g, 1)
      serves_all(g)
      write(dir .. "/scripts/tools/one.lua", says "one again")
      wait_kept(g, 2)
      assert.equal("one again", (call(g, "one")))
      assert.has_nothing_left(g)
    end)
  end

  it("with a broken moonpool.yaml serves the last good generation, and the mended file", function()
    for _, text in ipairs { "listen: [", "workerz: 2\n", "" } do
      local dir, env = served()
      local good = read(dir .. "/moonpool.yaml")
      write(dir .. "/moonpool.yaml", text)
      local g <close> = start(dir, env)
      serves_all(g)
      tells(g, "moonpool.yaml:", "config refused")
      assert.equal(422, g:admin("/reload", "POST").status)
      write(dir .. "/moonpool.yaml", (good:gsub("^{", '{ "server": { "name": "mended" },')))
      g:wait_status(function(status) return status.scripts.ok and status.scripts.generation == 2 end)
      serves_all(g)
    end
  end)

  it("with a moonpool.yaml or a folder of scripts that is gone serves the last good generation", function()
    for _, name in ipairs { "moonpool.yaml", "scripts" } do
      local dir, env = served()
      assert(os.rename(dir .. "/" .. name, dir .. "/away"))
      local g <close> = start(dir, env)
      serves_all(g)
      assert(os.rename(dir .. "/away", dir .. "/" .. name))
      g:wait_status(function(status) return status.scripts.ok end)
    end
  end)

  it("with files that cannot be read serves the last good generation", function()
    local dir, env = served()
    assert(uv.fs_symlink("nowhere", dir .. "/scripts/tools/three.lua"))
    local g <close> = start(dir, env)
    serves_all(g)
    tells(g, "tools/three.lua")
  end)

  it("without auth scripts, where others can reach the gateway, serves those that served last", function()
    local dir, env = served { config = { listen = "0.0.0.0:0", hosts = "*" } }
    assert(os.remove(dir .. "/scripts/auth/main.lua"))
    local g <close> = start(dir, env)
    assert.equal(401, select(3, call(g, "one", "stranger-1")))
    tells(g, "is reachable from other machines")
  end)

  it("without the auth scripts that served last serves those, unless `auth: none` comes with it", function()
    local dir, env = served()
    assert(os.rename(dir .. "/scripts/auth/main.lua", dir .. "/away"))
    local g = start(dir, env)
    serves_all(g)
    tells(g, "the last authentication script was removed")
    write(dir .. "/moonpool.yaml", cjson.encode(config { auth = "none" }))
    g:wait_status(function(status) return status.scripts.ok and status.scripts.last_good.kept == 2 end)
    g:kill()
    assert.truthy(read(kept_file(dir)):find('"none"', 1, true))
    local again <close> = start(dir, env)
    assert.equal("anonymous", (call(again, "who", "stranger-1")))
  end)

  it("with a certificate that is not there serves the last good generation, with the certificate that it names", function()
    local here = require "spec.helpers.certificates".here()
    local function listening(name) return { listen = { { address = "127.0.0.1:0", tls = { certificate = name, key = "key.pem" } } } } end
    local dir, env = prepare { config = listening "cert.pem", files = { ["cert.pem"] = here.certificate, ["key.pem"] = here.key } }
    local g = gateway.start { dir = dir, env = env, tls = true }
    wait_kept(g)
    g:kill()
    write(dir .. "/moonpool.yaml", cjson.encode(config(listening "gone.pem")))
    local again <close> = gateway.start { dir = dir, env = env, tls = true }
    assert.equal("one", (call(again, "one")))
    tells(again, "gone.pem", "config refused")
    assert.is_false(again:status().scripts.ok)
  end)

  it("serves the whole last good generation: no file of the disk is mixed with it", function()
    local dir, env = served()
    write(dir .. "/scripts/tools/one.lua", says "new one")
    write(dir .. "/scripts/tools/broken.lua", "return tool {")
    local g <close> = start(dir, env)
    serves_all(g)
    os.remove(dir .. "/scripts/tools/broken.lua")
    g:wait_status(function(status) return status.scripts.ok and status.scripts.generation == 2 end)
    assert.equal("new one", (call(g, "one")))
  end)

  it("serves what a reload has put in place, and not what it has refused", function()
    local dir, env = prepare()
    local g = start(dir, env)
    write(dir .. "/scripts/tools/two.lua", says "two again")
    wait_kept(g, 2)
    write(dir .. "/scripts/tools/two.lua", "return tool {")
    g:wait_status(function(status) return status.scripts.ok == false end)
    g:kill()
    local again <close> = start(dir, env)
    assert.equal("two again", (call(again, "two")))
  end)

  it("of moonpool stdio does the same", function()
    local dir, env = served()
    write(dir .. "/scripts/tools/one.lua", "return tool {")
    local process <close> = stdio.start { dir = dir, env = env }
    assert.equal("one", process:client("2026-07-28"):result("tools/call", { name = "one" }).content[1].text)
    process:wait_log "the last good generation serves"
  end)

  it("of a command of the workbench does not use it", function()
    local dir, env = served()
    write(dir .. "/scripts/tools/one.lua", "return tool {")
    local code, _, err = gateway.exec({ "call", "two" }, { cwd = dir, env = env })
    assert.equal(78, code)
    assert.truthy(err:find("tools/one.lua", 1, true))
  end)

  it("with `scripts.broken: refuse` or `leave_out` uses no last good generation, and none is kept", function()
    for _, word in ipairs { "refuse", "leave_out" } do
      local dir, env = served()
      assert.truthy(kept_file(dir))
      write(dir .. "/moonpool.yaml", cjson.encode(config { scripts = { broken = word } }))
      write(dir .. "/scripts/auth/main.lua", "return auth {")
      local code, _, err = gateway.exec({ "run", "moonpool.yaml" }, { cwd = dir, env = env })
      assert.equal(78, code, word)
      assert.truthy(err:find("auth/main.lua:", 1, true), err)
      write(dir .. "/scripts/auth/main.lua", SCRIPTS["auth/main.lua"])
      local g <close> = start(dir, env)
      wait.for_fact("the file to be gone", 10, function() return not kept_file(dir) end)
      assert.equal(0, g:status().scripts.last_good.kept)
    end
  end)
end)

describe("the last good generation", function()
  it("has the configuration as written: no secret that it names, and a mode for its user alone", function()
    local secret = "s3cr3t-value"
    local dir, env = prepare {
      config = { seal_keys = { "${SEAL}-0123456789abcdef", "${file:key}-fedcba9876543210" }, scripts = { allow = { env = { "API_KEY" } } } },
      scripts = { ["tools/one.lua"] = "local key = secret 'API_KEY' return tool { 'One.', function() return 'one' end }" }, files = { key = secret },
    }
    env.SEAL, env.API_KEY = secret, secret
    local g <close> = start(dir, env)
    wait_kept(g)
    local path = kept_file(dir)
    local text = read(path)
    assert.is_nil(text:find(secret, 1, true))
    assert.truthy(text:find("${SEAL}", 1, true))
    assert.equal("rw-------", lfs.attributes(path, "permissions"))
    for folder in pairs { ["/state/moonpool/last-good"] = true, ["/state/moonpool"] = true } do
      assert.equal("rwx------", lfs.attributes(dir .. folder, "permissions"))
    end
  end)

  it("whose variable is not set now cannot serve: the start ends with 78 and prints both", function()
    local dir, env = prepare { config = { server = { name = "${NAME}" } } }
    env.NAME = "x"
    local g = start(dir, env)
    wait_kept(g)
    g:kill()
    write(dir .. "/moonpool.yaml", "listen: [")
    env.NAME = nil
    local code, _, err = gateway.exec({ "run", "moonpool.yaml" }, { cwd = dir, env = env })
    assert.equal(78, code)
    assert.truthy(err:find("moonpool.yaml:1:", 1, true), err)
    assert.truthy(err:find("last good generation cannot serve: .*NAME is not set"), err)
    write(dir .. "/moonpool.yaml", cjson.encode(config()))
    write(dir .. "/scripts/tools/one.lua", "return tool {")
    local again <close> = start(dir, env)
    assert.equal("two", (call(again, "two")))
    assert.truthy(again:wait_log "scripts left out".fields.why:find("cannot serve", 1, true))
    assert.truthy(kept_file(dir))
  end)

  it("of one configuration is not that of another", function()
    local dir, env = served()
    write(dir .. "/other.yaml", "listen: [")
    local code = gateway.exec({ "run", "other.yaml" }, { cwd = dir, env = env })
    assert.equal(78, code)
    write(dir .. "/moonpool.yaml", "listen: [")
    assert.equal(78, (gateway.exec({ "run", "other.yaml" }, { cwd = dir, env = env })))
    local g <close> = gateway.start { dir = dir, env = env }
    serves_all(g)
  end)

  it("is found by the path of the configuration, however that is written and wherever its links lead", function()
    local dir, env = served()
    assert(os.rename(dir .. "/moonpool.yaml", dir .. "/real.yaml"))
    assert(uv.fs_symlink("real.yaml", dir .. "/moonpool.yaml"))
    write(dir .. "/real.yaml", "listen: [")
    for _, path in ipairs { "./moonpool.yaml", dir .. "//moonpool.yaml" } do
      local code, _, err = gateway.exec({ "stdio", path }, { cwd = dir, env = env })
      assert.equal(0, code, err)
      assert.truthy(err:find("the last good generation serves", 1, true), err)
    end
    local g <close> = start(dir, env)
    serves_all(g)
  end)

  it("is in $STATE_DIRECTORY where that is set", function()
    local dir = prepare()
    local g <close> = start(dir, { STATE_DIRECTORY = dir .. "/unit:" .. dir .. "/second", XDG_STATE_HOME = dir .. "/state" })
    wait_kept(g)
    assert.equal("directory", lfs.attributes(dir .. "/unit/last-good", "mode"))
    assert.is_nil(lfs.attributes(dir .. "/state", "mode"))
  end)

  it("is written only when it has changed", function()
    local dir, env = served()
    local before = lfs.attributes(kept_file(dir), "ino")
    local g <close> = start(dir, env)
    wait_kept(g)
    assert.equal(before, lfs.attributes(kept_file(dir), "ino"))
    write(dir .. "/scripts/tools/one.lua", says "another")
    wait_kept(g, 2)
    assert.not_equal(before, lfs.attributes(kept_file(dir), "ino"))
  end)

  it("is not used if it is damaged, of another form, or of a moonpool whose scripts do not load here", function()
    local dir, env = served()
    local path, good = kept_file(dir), read(kept_file(dir))
    write(dir .. "/moonpool.yaml", "listen: [")
    for what, text in pairs {
      ["damaged"] = good:gsub("hello", "hullo"), ["damaged "] = good:sub(1, -20), ["another version"] = good:gsub("generation 1", "generation 9", 1),
      ["damaged  "] = "x", [" damaged"] = "",
    } do
      write(path, text)
      local code, _, err = gateway.exec({ "run", "moonpool.yaml" }, { cwd = dir, env = env })
      assert.equal(78, code, what)
      assert.truthy(err:find("cannot serve: [^\n]*" .. what:match "%S.*%S"), what .. err)
    end
    write(path, good)
    local g <close> = start(dir, env)
    serves_all(g)
  end)

  it("is not used if another user can have written it", function()
    local dir, env = served()
    local path, folder = kept_file(dir), dir .. "/state/moonpool/last-good"
    local good = read(path)
    write(dir .. "/moonpool.yaml", "listen: [")
    local function refused(what)
      local code, _, err = gateway.exec({ "run", "moonpool.yaml" }, { cwd = dir, env = env })
      assert.equal(78, code, what)
      assert.truthy(err:find("other users can change", 1, true) or err:find("not a folder", 1, true), what .. ": " .. err)
    end
    uv.fs_chmod(path, 438)                        -- 0666
    refused "a file that all can write"
    uv.fs_chmod(path, 384)
    uv.fs_chmod(folder, 511)                      -- 0777
    refused "a folder that all can write"
    uv.fs_chmod(folder, 448)
    assert(uv.fs_link(path, dir .. "/second"))
    refused "a file with two names"
    assert(os.remove(dir .. "/second"))
    write(dir .. "/elsewhere", good)
    assert(os.remove(path))
    assert(uv.fs_symlink(dir .. "/elsewhere", path))
    refused "a symbolic link"
    assert(os.remove(path))
    write(path, good)
    uv.fs_chmod(path, 384)
    assert(os.rename(folder, dir .. "/moved"))
    assert(uv.fs_symlink(dir .. "/moved", folder))
    refused "a folder behind a symbolic link"
    if uv.getuid() == 0 then
      assert(os.remove(folder))
      assert(os.rename(dir .. "/moved", folder))
      assert(uv.fs_chown(path, 65534, 65534))
      refused "another user's file"
      assert(uv.fs_chown(path, 0, 0))
      assert(uv.fs_chown(folder, 65534, 65534))
      refused "another user's folder"
    end
  end)

  it("is out of reach for scripts, whatever their grants are", function()
    local dir, env = prepare {
      scripts = { ["tools/run.lua"] = [[return tool { "Tries.", input = { what = t.string(), path = t.string() }, function(args)
        local ran, got, why = pcall(fs[args.what], args.path, args.what == "write" and "x" or nil)
        return ran and got and (type(got) == "string" and got or "done") or "nothing: " .. tostring(why or got)
      end }]] },
      files = { ["state/moonpool/own.txt"] = "own" }, config = { scripts = { allow = { read = { "state" }, write = { "state" } } } },
    }
    uv.fs_chmod(dir .. "/state/moonpool", 448)
    local g <close> = start(dir, env)
    wait_kept(g)
    local me <close> = g:client "2026-07-28"
    local function try(what, path) return me:result("tools/call", { name = "run", arguments = { what = what, path = path } }).content[1].text end
    assert.equal("own", try("read", "state/moonpool/own.txt"))
    local path = kept_file(dir)
    local before, name = read(path), path:match "[^/]+$"
    for _, folder in ipairs { "state/moonpool/last-good", dir .. "/state/moonpool/last-good" } do
      assert.truthy(try("list", folder):find "^nothing")
      assert.truthy(try("mkdir", folder .. "/more"):find "^nothing")
      assert.truthy(try("write", folder .. "/new"):find "^nothing")
      for _, what in ipairs { "read", "write", "remove", "stat" } do
        assert.truthy(try(what, folder .. "/" .. name):find "^nothing", what .. folder)
      end
    end
    assert.equal(before, read(path))
  end)

  it("that cannot be written stays as it was, with a warning, and is written once it can be", function()
    local dir, env = prepare { scripts = { ["tools/one.lua"] = says "one", ["lib/long.lua"] = "return 1 -- " .. ("x"):rep(60000) } }
    local g <close> = start(dir, env)
    wait_kept(g)
    local before = read(kept_file(dir))
    assert.equal(0, (gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--fsize=40000:unlimited" })))
    write(dir .. "/scripts/tools/one.lua", says "another")
    local status = g:wait_status(function(status) return status.scripts.last_good.why end)
    assert.equal(1, status.scripts.last_good.kept)
    assert.equal("warn", g:wait_log("last good generation not kept", { generation = 2 }).level)
    assert.equal(before, read(kept_file(dir)))
    assert.equal("another", (call(g, "one")))
    assert.equal(0, (gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--fsize=unlimited:unlimited" })))
    write(dir .. "/scripts/tools/one.lua", says "a third")
    wait_kept(g, 3)
    g:wait_log("last good generation kept", { generation = 3 })
  end)

  it("is written although a process that was killed left its file half written", function()
    local dir, env = served()
    local half = kept_file(dir) .. ".new"
    write(half, "moonpool generation 1\n")
    write(dir .. "/scripts/tools/one.lua", says "another")
    local g <close> = start(dir, env)
    wait_kept(g)
    assert.is_nil(lfs.attributes(half, "mode"))
    assert.truthy(read(kept_file(dir)):find("another", 1, true))
  end)

  it("is there in whole after a kill at any moment", function()
    local scripts = {}
    for i = 1, 300 do scripts[("tools/t%d.lua"):format(i)] = says("x") .. " -- " .. ("x"):rep(4000) end
    local dir, env = prepare { scripts = scripts }
    local g = start(dir, env)
    wait_kept(g)
    for round = 1, 8 do
      write(dir .. "/scripts/tools/t1.lua", says("x" .. round))
      g:wait_status(function(status) return status.scripts.generation == 2 end)
      g:kill()
      write(dir .. "/scripts/tools/t1.lua", "return tool {")
      local broken = start(dir, env)
      assert.truthy(call(broken, "t1"):find "^x%d*$")
      broken:stop()
      write(dir .. "/scripts/tools/t1.lua", says "x")
      g = start(dir, env)
      wait_kept(g)
      assert.equal("number", type(lfs.attributes(kept_file(dir), "size")))
    end
    g:stop()
  end)

  it("of a configuration that has not existed for 30 days is removed when another one is kept", function()
    local dir, env = served()
    local old = kept_file(dir)
    local other = gateway.prepare { config = cjson.encode(config()), scripts = { ["tools/one.lua"] = says "one" } }
    local function keep_another(text)
      write(other .. "/scripts/tools/one.lua", text)
      local g = gateway.start { dir = other, env = env }
      wait_kept(g)
      g:stop()
    end
    local long_ago = os.time() - 31 * 24 * 3600
    assert(uv.fs_utime(old, long_ago, long_ago))
    keep_another(says "two")
    assert.truthy(lfs.attributes(old, "mode"))      -- the file stays: its configuration still exists
    assert(os.remove(dir .. "/moonpool.yaml"))
    keep_another(says "three")
    assert.is_nil(lfs.attributes(old, "mode"))
  end)

  it("is not kept without a state folder, which /status says", function()
    local g <close> = gateway.start { scripts = SCRIPTS, env = { HOME = "relative", XDG_STATE_HOME = "also/relative" } }
    assert.same({ kept = 0, why = "there is no state folder" }, g:status().scripts.last_good)
  end)
end)
