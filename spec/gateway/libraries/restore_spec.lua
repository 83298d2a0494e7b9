-- A file put at the path of store.file is served as it is: it is never mixed with the -wal that another file, or a
-- later state of the file, left.
local lfs = require "lfs"
local gateway = require "spec.helpers.gateway"
local trusted = require "spec.helpers.trusted"
local wait = require "spec.helpers.wait"

local KEYS <const> = 200

local function shell(g, command)
  local code, _, err = gateway.run_program("/bin/sh", { "-c", command }, { cwd = g.dir .. "/data" })
  assert.equal(0, code, command .. ": " .. err)
end

local function start(dir, name)
  if dir then return gateway.start { dir = dir } end
  return trusted.start { config = { store = { file = "data/" .. (name or "store.db") } }, files = { ["data/.keep"] = "" } }
end

-- Runs code in the gateway, with the functions of its own library.
local function run(g, code)
  local me = g:client "2026-07-28"
  local value = trusted.run(me, code)
  me:close()
  return value
end

local function write(g, letter, count)
  run(g, ('for i = 1, %d do host.store.set("s:%s" .. i, ("%s"):rep(300)) end'):format(count or KEYS, letter, letter))
end

local function fill(g, letter, count)
  write(g, letter, count)
  g:wait_status(function(status) return status.gauges.store_unsaved == 0 end)
end

-- Fills the store until the -wal has entries: a checkpoint that runs just then empties it.
local function fill_wal(g, letter)
  wait.for_fact("entries in the -wal", 20, function()
    fill(g, letter)
    return lfs.attributes(g.dir .. "/data/store.db-wal", "size") > 50000
  end)
end

-- How many keys of each letter the store has; an error if a key has a value of another letter.
local function held(g)
  return run(g, [[
    local count = {}
    for _, key in ipairs(host.store.keys "s:") do
      local letter = key:sub(3, 3)
      assert(host.store.get(key) == letter:rep(300), key)
      count[letter] = (count[letter] or 0) + 1
    end
    return count]])
end

-- A copy over a file in use is noticed unless it comes while a checkpoint writes to the file.
local function wait_checkpoint(g)
  wait.for_fact("a checkpoint", 20, function() return lfs.attributes(g.dir .. "/data/store.db-wal", "size") == 0 end)
end

local function ended(g, how)
  if how == "killed" then g:kill() else g:stop() end
  return g
end

-- Starts the gateway again and stops it; returns the keys in its store by their letters, and its log.
local function after(g)
  local again = start(g.dir)
  local keys = held(again)
  again:stop()
  return keys, again:log()
end

-- A gateway that holds the b keys, in a file that it made, and beside it a.db, with the a keys.
local function with_backup()
  local g = start()
  fill(g, "a")
  g:stop()
  shell(g, "mv store.db a.db")
  g = start(g.dir)
  fill_wal(g, "b")
  return g
end

local ENDS <const> = { "stopped", "killed" }
local PUTS <const> = { ["moved over"] = "mv a.db store.db", ["copied over in place"] = "cp a.db store.db", ["copied with its times"] = "cp -p a.db store.db" }

describe("a database that is put at the path of store.file", function()
  for put, command in pairs(PUTS) do
    for _, how in ipairs(ENDS) do
      it(("is served alone, %s while the gateway runs, which writes and is %s"):format(put, how), function()
        local g = with_backup()
        if put ~= "moved over" then wait_checkpoint(g) end
        shell(g, command)
        run(g, 'host.store.set("s:c", "c")')
        g:wait_log("store not saved", { why = "another file is at this path" })
        ended(g, how)
        assert.same({ a = KEYS }, (after(g)))
      end)

      it(("is served alone, %s while the gateway runs, which is %s before it has seen that"):format(put, how), function()
        local g = with_backup()
        if put ~= "moved over" then wait_checkpoint(g) end
        shell(g, command)
        ended(g, how)
        assert.same({ a = KEYS }, (after(g)))
      end)

      it(("is served alone, %s after the gateway was %s"):format(put, how), function()
        local g = ended(with_backup(), how)
        shell(g, command)
        local keys, log = after(g)
        assert.same({ a = KEYS }, keys)
        local aside = lfs.attributes(g.dir .. "/data/store.db-wal.old") ~= nil
        assert.equal(how == "killed", aside)
        assert.equal(aside, log:find("store wal set aside", 1, true) ~= nil, log)
      end)
    end

    it("is served alone, an earlier copy of the same file, " .. put .. " after the gateway was killed", function()
      local g = start()
      fill(g, "a")
      g:stop()
      shell(g, "cp -p store.db a.db")
      g = start(g.dir)
      fill_wal(g, "b")
      g:kill()
      shell(g, command)
      assert.same({ a = KEYS }, (after(g)))
    end)

    it("is served alone, a copy made while the gateway ran, " .. put .. " after it was killed", function()
      local g = start()
      fill(g, "a", 20)
      g:stop()
      g = start(g.dir)
      shell(g, "cp -p store.db a.db") -- no checkpoint has run since the start
      fill_wal(g, "b")
      g:kill()
      shell(g, command)
      assert.same({ a = 20 }, (after(g)))
    end)
  end

  it("is served with its own -wal where both are put there", function()
    for _, command in ipairs { "mv b.db-wal store.db-wal && mv b.db store.db", "cp b.db store.db && cp b.db-wal store.db-wal" } do
      local g = start()
      fill_wal(g, "b")
      g:kill()
      shell(g, "cp store.db b.db && cp store.db-wal b.db-wal && rm store.db store.db-wal")
      g = start(g.dir)
      fill(g, "c")
      wait_checkpoint(g)
      shell(g, command)
      g:stop()
      assert.same({ b = KEYS }, (after(g)))
    end
  end)

  it("is created, where only the -wal of another database is there", function()
    local g = start()
    fill_wal(g, "b")
    g:kill()
    shell(g, "rm store.db")
    assert.same({}, (after(g)))
    assert.truthy(lfs.attributes(g.dir .. "/data/store.db-wal.old").size > 50000)
  end)

  it("does not get what an SQLite of another program left in a -wal", function()
    local g = start()
    fill(g, "a")
    g:stop()
    local made = [[
import sqlite3, shutil
db = sqlite3.connect("other.db")
db.execute("pragma journal_mode = wal")
db.execute("create table other (x)")
db.executemany("insert into other values (?)", [("x" * 900,)] * 100)
db.commit()
shutil.copy("other.db-wal", "store.db-wal")]]
    shell(g, "python3 -c '" .. made .. "'")
    assert.same({ a = KEYS }, (after(g)))
  end)
end)

describe("a database that is moved away while the gateway runs", function()
  it("has everything that was saved, and the new one, too; moved back, it is served alone", function()
    local g = start()
    fill(g, "a")
    shell(g, "mv store.db a.db")
    fill(g, "b")
    g:wait_log "store file created again"
    shell(g, "mv store.db b.db && mv a.db store.db")
    write(g, "c", 1)
    g:wait_log("store not saved", { why = "another file is at this path" })
    ended(g, "killed")
    assert.same({ a = KEYS }, (after(g)))
    shell(g, "mv b.db store.db")
    assert.same({ a = KEYS, b = KEYS }, (after(g)))
  end)

  it("is saved again at once where the other file is moved away, as the log says", function()
    local g = with_backup()
    shell(g, "mv a.db store.db")
    write(g, "c", 1)
    local line = g:wait_log("store not saved", { why = "another file is at this path" })
    assert.truthy(line.fields.hint:find("restart to serve that file", 1, true), line.text)
    assert.truthy(line.fields.hint:find("move that file away", 1, true), line.text)
    shell(g, "mv store.db a.db")
    g:wait_log "store saved again"
    g:wait_status(function(status) return status.gauges.store_unsaved == 0 end)
    g:kill()
    assert.same({ b = KEYS, c = 1 }, (after(g)))
    shell(g, "mv a.db store.db")
    assert.same({ a = KEYS }, (after(g)))
  end)
end)

describe("a store.file that is a symbolic link", function()
  it("is followed to the file that it names at the start, which keeps its own -wal", function()
    for _, how in ipairs(ENDS) do
      local g = start()
      fill(g, "a")
      g:stop()
      shell(g, "mkdir one two && mv store.db one/a.db && ln -s one/a.db store.db")
      g = start(g.dir)
      fill(g, "b")
      shell(g, "ln -sfn two/c.db store.db")
      fill(g, "c", 1)
      ended(g, how)
      assert.same({ a = KEYS, b = KEYS, c = 1 }, (after(g)))
      shell(g, "ln -sfn one/a.db store.db")
      assert.same({ a = KEYS, b = KEYS }, (after(g)))
    end
  end)
end)

describe("the reason why the store is not saved", function()
  it("is logged at once when it changes", function()
    local g <close> = with_backup()
    assert.equal(0, (gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--fsize=4096:unlimited" })))
    write(g, "c", 1)
    g:wait_log "store not saved"
    shell(g, "mv a.db store.db")
    g:wait_log("store not saved", { why = "another file is at this path" }, 5)
    assert.equal(0, (gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--fsize=unlimited:unlimited" })))
  end)
end)
