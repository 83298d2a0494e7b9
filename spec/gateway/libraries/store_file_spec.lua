-- store.file: values that scripts store outlive the process, however the process ends. A fault of the file is logged,
-- and delays no call.
local lfs = require "lfs"
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local trusted = require "spec.helpers.trusted"
local wait = require "spec.helpers.wait"

local run = trusted.run

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function start(more)
  local store = { file = "data/store.db" }
  for key, value in pairs(more or {}) do store[key] = value end
  return trusted.start { config = { store = store }, files = { ["data/.keep"] = "" } }
end

-- Stops the gateway and starts it again; `rest`: the time, by uv.hrtime, before which it is not started.
local function again(g, rest)
  g:stop()
  wait.for_fact("the end of its rest", 5, function() return uv.hrtime() >= (rest or 0) end)
  return gateway.start { dir = g.dir }
end

local function wait_saved(g)
  return g:wait_status(function(status) return status.gauges.store_unsaved == 0 end)
end

-- Limits the size of the files that the gateway may write.
local function limit(g, bytes)
  assert.equal(0, (gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--fsize=" .. bytes .. ":unlimited" })))
end

-- The output of `moonpool run` in the same folder.
local function refused(dir)
  local code, _, err = gateway.exec({ "run", "moonpool.yaml" }, { cwd = dir })
  assert.equal(1, code, err)
  return err
end

local function patch(path, offset, bytes)
  local file <close> = assert(io.open(path, "r+b"))
  file:seek("set", offset)
  file:write(bytes)
end

describe("store.file", function()
  it("keeps stored texts and their expiry over a restart, and MCP tasks", function()
    local g = start()
    local one, two = trusted.workers(g)
    run(one, [[
      host.store.set("s:text", "a\0b\255") host.store.set("s:empty", "") host.store.set("s:again", "old")
      host.store.set("s:gone", "x") host.store.set("s:brief", "x", 0.05) host.store.set("s:timed", "x", 4)
      host.store.set("task:1", "x") host.store.set("kept:1", "y") host.store.incr("s:n", 5, 1000)]])
    local brief_over = uv.hrtime() + 60000000
    wait_saved(g)
    run(two, 'host.store.delete "s:gone" host.store.set("s:again", "new") host.store.incr("s:n", 2)')
    local began = os.time()
    one:close()
    two:close()
    assert.has_nothing_left(g)
    g = again(g, brief_over)
    local served <close> = g -- luacheck: ignore 211
    local me = g:client "2026-07-28"
    assert.same({ "kept:1", "s:again", "s:empty", "s:n", "s:text", "s:timed", "task:1" }, run(me, 'return host.store.keys ""'))
    assert.is_true(run(me, 'return host.store.get "s:text" == "a\\0b\\255" and host.store.get "s:empty" == ""'))
    assert.same({ "new", 8 }, run(me, 'return { host.store.get "s:again", host.store.incr("s:n", 1) }'))
    wait.for_fact("the time of a text to be over", 10, function() return run(me, 'return host.store.get "s:timed"') == nil end)
    assert.is_true(os.time() - began <= 20)
    assert.equal("rw-------", lfs.attributes(g.dir .. "/data/store.db", "permissions"))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("loses nothing that was saved when the process is killed", function()
    local g = start()
    local me = g:client "2026-07-28"
    for round = 1, 3 do
      run(me, 'for i = 1, 2000 do host.store.incr("s:n", 1) host.store.set("s:" .. i, tostring(i)) end')
      wait_saved(g)
      run(me, 'for i = 1, 500 do host.store.set("s:late", tostring(i)) end')
      g:kill()
      me:close()
      g = gateway.start { dir = g.dir }
      me = g:client "2026-07-28"
      assert.same({ tostring(round * 2000), "2000", 2001 }, run(me, [[
        local keys = host.store.keys "s:"
        return { host.store.get "s:n", host.store.get "s:2000", #keys - (host.store.get "s:late" and 1 or 0) }]]))
    end
    me:close()
    local served <close> = g -- luacheck: ignore 211
    assert.has_nothing_left(g)
  end)

  it("belongs to one process: a second one is refused; `moonpool call` leaves it alone", function()
    local g <close> = start()
    local err = refused(g.dir)
    assert.truthy(err:find("store.file: " .. g.dir .. "/data/store.db: another process uses the file", 1, true)
      or err:find("store.file: data/store.db: another process uses the file", 1, true), err)
    assert.truthy(err:find("hint: each gateway needs its own store.file", 1, true))
    local code, out = gateway.exec({ "call", "-c", "moonpool.yaml", "lua", "code=return host.store.keys('') and 1" }, { cwd = g.dir })
    assert.equal(0, code, out)
    local me = g:client "2026-07-28"
    assert.is_true(run(me, 'return host.store.set("s:a", "1")'))
    wait_saved(g)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is refused where it is broken, another's, newer, out of reach, or larger than the store", function()
    local g = start()
    local me = g:client "2026-07-28"
    run(me, 'for i = 1, 200 do host.store.set("s:" .. i, ("x"):rep(1000)) end')
    me:close()
    g:stop()
    local path = g.dir .. "/data/store.db"
    patch(path, 68, "else")
    patch(path, 18, "\1\1") -- with a rollback journal, as most databases have
    local before = read(path)
    assert.truthy(refused(g.dir):find("the file is a database of another program", 1, true))
    assert.is_true(read(path) == before)
    patch(path, 18, "\2\2")
    patch(path, 68, "moon")
    patch(path, 60, "\0\0\0\9")
    assert.truthy(refused(g.dir):find("the file was made by a newer moonpool", 1, true))
    patch(path, 60, "\0\0\0\1")
    local file <close> = assert(io.open(g.dir .. "/moonpool.yaml"))
    local text = file:read "a"
    local function config(name, value)
      local out <close> = assert(io.open(g.dir .. "/moonpool.yaml", "w"))
      out:write((text:gsub('"file"', '"' .. name .. '":' .. value .. ',"file"')))
    end
    config("entries", "100")
    assert.truthy(refused(g.dir):find("the file holds more than store.entries and store.bytes allow", 1, true))
    config("bytes", '"100KiB"')
    assert.truthy(refused(g.dir):find("the file holds more than store.entries and store.bytes allow", 1, true))
    config("entries", "300")
    patch(path, 8192, ("?"):rep(4096))
    assert.truthy(refused(g.dir):find("the database is broken", 1, true))
    patch(path, 0, "this is no database at all")
    local err = refused(g.dir)
    assert.truthy(err:find("file is not a database", 1, true), err)
    assert.truthy(err:find("hint: move the file", 1, true), err)
    -- no file can be created in /sys; in a container /sys may be mounted read-only
    local _, _, refusal = uv.fs_open("/sys/store.db", "wx", 384)
    local reasons = { EACCES = ": its folder has uid ", EPERM = ": its folder has uid ", EROFS = "a file system that can be written" }
    local whys = { ["nowhere/store.db"] = "create its folder first", data = "Is a directory", ["/sys/store.db"] = assert(reasons[refusal], refusal) }
    for name, why in pairs(whys) do
      local out <close> = assert(io.open(g.dir .. "/moonpool.yaml", "w"))
      out:write((text:gsub('"data\\*/store.db"', '"' .. name .. '"')))
      out:close()
      local refused_with = refused(g.dir)
      assert.truthy(refused_with:find(why, 1, true), refused_with)
    end
    os.remove(path)
    local out <close> = assert(io.open(g.dir .. "/moonpool.yaml", "w"))
    out:write(text)
    out:close()
    local fine <close> = gateway.start { dir = g.dir }
    assert.has_nothing_left(fine)
  end)

  it("that cannot be written delays no call, is logged, and is written once it can be", function()
    local g = start()
    local me = g:client "2026-07-28"
    limit(g, 200000)
    run(me, 'for i = 1, 100 do host.store.set("s:" .. i, ("x"):rep(10000)) end')
    g:wait_log "store not saved"
    for _ = 1, 5 do
      run(me, [[
        for i = 1, 100 do
          host.store.set("s:" .. i, tostring(i))
          host.store.set("s:x" .. i, "x")
          host.store.delete("s:x" .. i)
        end]])
    end
    local status = g:wait_status(function(now) return now.counters.store_failures >= 2 end)
    assert.is_true(status.gauges.store_unsaved >= 100 and status.gauges.store_unsaved <= 300)
    assert.equal("100", run(me, 'return host.store.get "s:100"'))
    limit(g, "unlimited")
    g:wait_log "store saved again"
    wait_saved(g)
    g:kill()
    me:close()
    g = gateway.start { dir = g.dir }
    local served <close> = g -- luacheck: ignore 211
    me = g:client "2026-07-28"
    assert.same({ 100, "57" }, run(me, 'return { #host.store.keys "", host.store.get "s:57" }'))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("that cannot be written as the gateway stops does not keep it from stopping", function()
    local g <close> = start()
    local me = g:client "2026-07-28"
    limit(g, 200000)
    run(me, 'for i = 1, 100 do host.store.set("s:" .. i, ("x"):rep(10000)) end')
    g:wait_log "store not saved"
    me:close()
    g:stop()
    assert.truthy(g:log():find("store not saved at shutdown", 1, true))
  end)
end)

describe("a store.file that is removed while it is open", function()
  local function there(g) return lfs.attributes(g.dir .. "/data/store.db", "ino") end

  it("is noticed at the next change, counted, logged and made anew with everything in it", function()
    local g = start()
    local me = g:client "2026-07-28"
    run(me, 'for i = 1, 3000 do host.store.set("s:" .. i, tostring(i)) end host.store.set("kept:1", "y")')
    wait_saved(g)
    for _, name in ipairs { "store.db", "store.db-wal" } do assert(os.remove(g.dir .. "/data/" .. name)) end
    run(me, 'host.store.set("s:new", "x") host.store.delete "s:1"')
    g:wait_log("store not saved", { why = "the file was removed or moved away while it was open" })
    g:wait_log "store file created again"
    wait_saved(g)
    assert.equal(1, g:status().counters.store_failures)
    assert.equal("rw-------", lfs.attributes(g.dir .. "/data/store.db", "permissions"))
    g:kill()
    me:close()
    g = gateway.start { dir = g.dir }
    me = g:client "2026-07-28"
    assert.same({ "x", "2", "3000", "y" }, run(me, 'return { host.store.get "s:new", host.store.get "s:2", host.store.get "s:3000", host.store.get "kept:1" }'))
    assert.is_nil(run(me, 'return host.store.get "s:1"'))
    -- A removed file is written anew even if no value changes afterwards.
    assert(os.remove(g.dir .. "/data/store.db"))
    me:close()
    g = again(g)
    me = g:client "2026-07-28"
    assert.equal("x", run(me, 'return host.store.get "s:new"'))
    me:close()
    g:stop()
  end)

  it("stays what it is where another file was put in its place, until that is gone", function()
    local g = start()
    local me = g:client "2026-07-28"
    run(me, 'host.store.set("s:1", "one")')
    wait_saved(g)
    assert(os.rename(g.dir .. "/data/store.db", g.dir .. "/data/old.db"))
    local other <close> = assert(io.open(g.dir .. "/data/store.db", "w"))
    other:write "of somebody else"
    other:close()
    run(me, 'host.store.set("s:2", "two")')
    g:wait_status(function(status) return status.counters.store_failures >= 2 end, 10)
    assert.equal("of somebody else", read(g.dir .. "/data/store.db"))
    assert(os.remove(g.dir .. "/data/store.db"))
    g:wait_log("store saved again", nil, 10)
    assert.truthy(there(g))
    me:close()
    g = again(g)
    me = g:client "2026-07-28"
    assert.same({ "one", "two" }, run(me, 'return { host.store.get "s:1", host.store.get "s:2" }'))
    me:close()
    g:stop()
  end)
end)
