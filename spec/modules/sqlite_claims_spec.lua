-- What comments of core/data say about SQLite, tried on the SQLite that is linked. docs/dev/libraries.md names each.
local lfs = require "lfs"
local modules = require "modules"
local gateway = require "spec.helpers.gateway"

local sqlite, sql = modules.sqlite, modules.sql

local dir

local function shell(command)
  local code, out, err = gateway.run_program("/bin/sh", { "-c", command }, { cwd = dir })
  assert.equal(0, code, command .. ": " .. err)
  return out
end

local function read(name)
  local file <close> = assert(io.open(dir .. "/" .. name, "rb"))
  return file:read "a"
end

local function open(name) return sqlite.open(dir .. "/" .. name) end

-- A connection to a new database in WAL mode, whose rows are all `letter`, none of them in the database itself yet.
local function filled(name, letter, rows)
  local db = open(name)
  assert(db:run("pragma journal_mode = wal; pragma wal_autocheckpoint = 0; create table t (text)"))
  assert(db:run "pragma wal_checkpoint(truncate)")
  local all = "with recursive n(i) as (select 1 union all select i + 1 from n where i < %d)"
  assert(db:run((all .. " insert into t select '%s' || hex(zeroblob(200)) from n"):format(rows or 50, letter)))
  return db
end

local function letters(db) return assert(db:run "select distinct substr(text, 1, 1) from t order by 1") end

describe("SQLite", function()
  before_each(function() dir = gateway.new_folder() end)
  after_each(function() gateway.run_program("/bin/rm", { "-r", dir }) end)

  it("replays the -wal of another database that lies beside a database", function()
    local a = filled("a.db", "a")
    shell "cp a.db b.db && cp a.db-wal b.db-wal"
    a:close()
    local b = open "b.db"
    assert.same({ "a" }, letters(b))
    b:close()
    assert.equal(read "a.db", read "b.db")
  end)

  it("goes on with a file that was removed or moved, and says so when it is asked", function()
    local db = filled("a.db", "a")
    assert.is_false(db:moved())
    shell "mv a.db b.db"
    assert.is_true(db:moved())
    assert(db:run "insert into t values ('b')")
    shell "rm b.db"
    assert(db:run "insert into t values ('c')")
    assert.same({ "a", "b", "c" }, letters(db))
    db:close()
  end)

  it("writes a checkpoint to a file that was moved, when it is told to", function()
    local db = filled("a.db", "a")
    shell "mv a.db b.db"
    assert.same({ "0" }, db:run "pragma wal_checkpoint(truncate)")
    db:close()
    local moved = open "b.db"
    assert.same({ "a" }, letters(moved))
    moved:close()
  end)

  it("does not remove the -wal of a file that was moved, nor writes it back at the close", function()
    local db = filled("a.db", "a")
    local before = read "a.db"
    shell "mv a.db b.db"
    db:close()
    assert.truthy(lfs.attributes(dir .. "/a.db-wal"))
    assert.equal(before, read "b.db")
  end)

  it("writes back over bytes that were replaced in place, at the close", function()
    local other = filled("other.db", "o")
    other:close()
    local db = filled("a.db", "a")
    shell "cp other.db a.db"
    db:close()
    assert.not_equal(read "other.db", read "a.db")
  end)

  it("writes back and removes the -wal at the close; an interrupt that came before keeps it from that, up to the next statement", function()
    for _, case in ipairs { { false, false, nil }, { true, false, "there" }, { true, true, nil } } do
      local db = filled("a.db", "a")
      if case[1] then db:interrupt() end
      if case[2] then assert(db:run "select 1") end
      db:close()
      assert.equal(case[3], lfs.attributes(dir .. "/a.db-wal") and "there")
      shell "rm a.db*"
    end
  end)

  it("gives the -wal the mode of the database", function()
    shell "touch a.db && chmod 600 a.db"
    local db = filled("a.db", "a")
    assert.equal("rw-------", lfs.attributes(dir .. "/a.db-wal", "permissions"))
    db:close()
  end)

  it("locks bytes of the file for the process: the lock is gone when the process closes any descriptor of the file", function()
    local db = filled("a.db", "a")
    db:close()
    db = open "a.db"
    assert(db:run "pragma locking_mode = exclusive; begin immediate; insert into t values ('b'); commit")
    local try = "sqlite3 a.db 'select count(*) from t' 2>&1 || true"
    assert.truthy(shell(try):find("locked", 1, true))
    read "a.db"
    assert.falsy(shell(try):find("locked", 1, true))
    db:close()
  end)

  it("notices a broken page when it uses the page, or is asked to check", function()
    local db = filled("a.db", "a")
    assert(db:run "create table other (x); insert into other values (1)")
    db:close()
    local file = assert(io.open(dir .. "/a.db", "r+b"))
    file:seek("set", 4096) -- the root page of t
    file:write(("?"):rep(4096))
    file:close()
    db = open "a.db"
    assert.same({ "1" }, db:run "select x from other")
    assert.is_nil((db:run "select * from t"))
    assert.not_same({ "ok" }, db:run "pragma quick_check(1)")
    db:close()
  end)

  it("removes the -wal beside an empty file", function()
    local a = filled("a.db", "a")
    shell "cp a.db-wal b.db-wal && touch b.db"
    a:close()
    local b = open "b.db"
    assert.same({}, b:run "select name from sqlite_master")
    assert.is_nil(lfs.attributes(dir .. "/b.db-wal"))
    b:close()
  end)

  it("writes the row of a transaction in one frame, in the page of its table, and updates of equal length as well", function()
    local db = open "a.db"
    assert(db:run "pragma journal_mode = wal; create table m (id integer primary key, bytes blob)")
    assert(db:run "insert into m values (1, randomblob(56)); pragma wal_checkpoint(truncate)")
    local page = math.tointeger(tonumber(db:run "select rootpage from sqlite_master where name = 'm'"[1]))
    for n = 1, 2 do
      assert(db:run "update m set bytes = randomblob(56)")
      local wal = read "a.db-wal"
      assert.equal(32 + n * (24 + 4096), #wal)
      assert.equal(page, (string.unpack(">I4", wal, 33 + (n - 1) * (24 + 4096))))
    end
    db:close()
  end)

  it("takes a text in double quotes for a value where no column has the name", function()
    assert.same({ "none" }, sql.query 'select "none"')
  end)

  it("refuses the functions of ALTER TABLE in other SQL", function()
    for _, call in ipairs { "sqlite_rename_column(1,2,3,4,5,6,7,8,9)", "sqlite_rename_table(1,2,3,4,5,6,7)", "sqlite_drop_column(1,2,3)" } do
      local rows, why = sql.query("select " .. call)
      assert.is_nil(rows)
      assert.truthy(why:find("no such function", 1, true) or why:find("not authorized", 1, true) or why:find("unsafe", 1, true), why)
    end
  end)

  it("takes time that grows with both lengths in instr and replace of its own", function()
    local function seconds(n)
      local from = os.clock()
      assert(sql.query(("select instr(hex(zeroblob(%d)), hex(zeroblob(%d)) || '1')"):format(n, n // 2)))
      return os.clock() - from
    end
    local short, long = math.huge, math.huge
    for _ = 1, 3 do short, long = math.min(short, seconds(20000)), math.min(long, seconds(80000)) end
    assert.is_true(long > 6 * short, long / short)
  end)

  it("refuses another allocator after it was used", function()
    assert.equal(21, sqlite.late_config()) -- SQLITE_MISUSE
  end)
end)
