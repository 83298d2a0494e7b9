-- A database of scripts whose file is moved, removed or replaced: the file at the path is used from the next statement
-- on, by every worker, and never with the -wal of the file before.
local cjson = require "cjson"
local lfs = require "lfs"
local gateway = require "spec.helpers.gateway"
local trusted = require "spec.helpers.trusted"

local ROWS <const> = 200

local function start()
  return trusted.start {
    config = cjson.encode {
      listen = "127.0.0.1:0", admin = { listen = "127.0.0.1:0" }, workers = 2,
      scripts = { path = "scripts", trust = "full", allow = { write = { "data/" } } },
    },
    files = { ["data/.keep"] = "" },
    scripts = { ["lib/notes.lua"] = [[return sqlite.open("data/notes.db", { setup = "create table if not exists notes (text text not null)" })]] },
  }
end

local run, workers = trusted.run, trusted.workers

local function shell(g, command)
  local ended, _, err = gateway.run_program("/bin/sh", { "-c", command }, { cwd = g.dir .. "/data" })
  assert.equal(0, ended, command .. ": " .. err)
end

local function fill(me, letter)
  assert.is_true(run(me, ([[
    for i = 1, %d do try(require "notes":exec("insert into notes values (?)", { ("%s"):rep(300) })) end return true]]):format(ROWS, letter)))
end

-- The number of rows of each letter.
local function held(me)
  local count = {}
  for _, row in ipairs(run(me, 'return try(require "notes":query "select substr(text, 1, 1) as a, count(*) as n from notes group by 1")')) do
    count[row.a] = row.n
  end
  assert.equal("ok", run(me, 'return try(require "notes":one "pragma integrity_check").integrity_check'))
  return count
end

-- Counts the rows by the program sqlite3, not by the gateway.
local function read_alone(g, name)
  local counts = "select substr(text, 1, 1) || count(*) from notes group by substr(text, 1, 1)"
  local _, out = gateway.run_program("/usr/bin/sqlite3", { g.dir .. "/data/" .. name, counts })
  return out
end

-- A gateway with b rows, of which some are in the -wal, and a.db with a rows.
local function with_backup()
  local g = start()
  local me = g:client "2026-07-28"
  fill(me, "a")
  me:close()
  g:stop()
  shell(g, "mv notes.db a.db")
  g = gateway.start { dir = g.dir }
  local one, two = workers(g)
  fill(one, "b")
  assert.same({ b = ROWS }, held(two))
  return g, one, two
end

local function ended(g, one, two)
  one:close()
  two:close()
  g:stop()
end

describe("a database of scripts", function()
  it("that is moved over one in use is read and written by all workers, and by the next start", function()
    local g, one, two = with_backup()
    shell(g, "mv a.db notes.db")
    assert.same({ a = ROWS }, held(one))
    fill(two, "c")
    assert.same({ a = ROWS, c = ROWS }, held(one))
    assert.same({ a = ROWS, c = ROWS }, held(two))
    g:wait_log "database file was replaced"
    ended(g, one, two)
    assert.equal("a200\nc200\n", read_alone(g, "notes.db"))
  end)

  it("that is moved away has everything that was written; moved back, it is used alone", function()
    local g, one, two = with_backup()
    shell(g, "mv notes.db b.db")
    assert.same({}, held(one))
    fill(two, "c")
    assert.same({ c = ROWS }, held(one))
    shell(g, "mv notes.db c.db && cp b.db b2.db && mv b.db notes.db")
    assert.same({ b = ROWS }, held(two))
    assert.same({ b = ROWS }, held(one))
    ended(g, one, two)
    assert.equal("b200\n", read_alone(g, "b2.db"))
    assert.equal("c200\n", read_alone(g, "c.db"))
    assert.equal("b200\n", read_alone(g, "notes.db"))
  end)

  it("that is removed, alone or with the files beside it, is created again, while another worker still has it open", function()
    for _, which in ipairs { "notes.db", "notes.db notes.db-wal", "notes.db notes.db-wal notes.db-shm", "notes.db notes.db-shm" } do
      local g, one, two = with_backup()
      shell(g, "rm " .. which)
      fill(one, "c")
      assert.same({ c = ROWS }, held(two))
      fill(two, "d")
      assert.same({ c = ROWS, d = ROWS }, held(one))
      ended(g, one, two)
      assert.equal("c200\nd200\n", read_alone(g, "notes.db"))
    end
  end)

  it("keeps a transaction in the file that it began in", function()
    local g, one, two = with_backup()
    assert.is_true(run(one, [[
      return try(require "notes":transaction(function(tx)
        try(tx:exec "insert into notes values ('t')")
        sleep(0.3)
        try(tx:exec "insert into notes values ('t')")
        return true
      end))]]))
    shell(g, "mv notes.db b.db && mv a.db notes.db")
    assert.same({ a = ROWS }, held(two))
    assert.same({ a = ROWS }, held(one))
    ended(g, one, two)
    assert.equal("b200\nt2\n", read_alone(g, "b.db"))
  end)

  it("that is put there after the process was killed is not mixed with the -wal of the file before", function()
    local g, one, two = with_backup()
    assert.truthy(lfs.attributes(g.dir .. "/data/notes.db-wal").size > 50000)
    g:kill()
    one:close()
    two:close()
    shell(g, "mv a.db notes.db")
    g = gateway.start { dir = g.dir }
    one, two = workers(g)
    assert.same({ a = ROWS }, held(one))
    g:wait_log "database wal set aside"
    ended(g, one, two)
  end)

  it("that is copied together with its -wal keeps what was written, and so does one after a kill", function()
    local g, one, two = with_backup()
    g:kill()
    one:close()
    two:close()
    shell(g, "cp -a notes.db copy.db && cp -a notes.db-wal copy.db-wal")
    assert.equal("b200\n", read_alone(g, "copy.db"))
    shell(g, "mkdir old && cp -a notes.db notes.db-wal notes.db-shm old && rm notes.db* && cp -a old/* .")
    g = gateway.start { dir = g.dir }
    one, two = workers(g)
    assert.same({ b = ROWS }, held(one))
    ended(g, one, two)
    assert.equal("b200\n", read_alone(g, "notes.db"))
  end)

  it("is restored by sqlite3 while the gateway runs", function()
    local g, one, two = with_backup()
    shell(g, 'sqlite3 notes.db ".backup b.db" && sqlite3 notes.db ".restore a.db"')
    assert.same({ a = ROWS }, held(one))
    fill(two, "c")
    assert.same({ a = ROWS, c = ROWS }, held(one))
    ended(g, one, two)
    assert.equal("b200\n", read_alone(g, "b.db"))
  end)
end)
