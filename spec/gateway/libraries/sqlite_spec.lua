-- sqlite of scripts: values in both directions, transactions, exclusive use, limits, the SQL that is denied, and
-- cancellation.
local uv = require "luv"
local cjson = require "cjson.safe"
local code = require "spec.helpers.code"
local memory = require "spec.helpers.memory"
local wait = require "spec.helpers.wait"

-- The largest amount of memory that the process has had, in KiB.
local function peak(g) return g:rss "VmHWM" // 1024 end

describe("sqlite", function()
  local g, me
  lazy_setup(function()
    g = code.start {
      workers = 1,
      config = {
        scripts = { allow = { write = { "data/" }, read = { "given/" } } },
      },
      constants = { sqlite_busy_ms = 200, sql_rows = 100, sql_bytes = 65536 },
      scripts = {
        ["lib/notes.lua"] = [[return sqlite.open("data/notes.db", { setup = "create table if not exists notes (id integer primary key, text text unique)" })]],
      },
    }
    uv.fs_mkdir(g.dir .. "/data", 493)
    uv.fs_mkdir(g.dir .. "/given", 493)
    me = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    code.run(me, [[
      for _, name in ipairs { "turns", "move" } do sqlite.open("data/" .. name .. ".db"):close() end
      sqlite.open("given/none.db"):close() sqlite.open("given/read.db"):close() sqlite.open("data/turns.db", { setup = "select 1" }):close()
      require "notes":close() return true]])
    me:close()
    assert.has_nothing_left(g)
    g:stop()
  end)

  local function run(text, seconds) return code.run(me, text, seconds) end
  local function why(text) return select(2, run(text)) end

  it("returns rows by column name, and values unchanged", function()
    assert.same({ { i = "9007199254740993", r = 0.5, t = "é", b = true, n = cjson.null, five = 5 }, "integer real text blob null" }, run [[
      local db = try(sqlite.open ":memory:")
      try(db:exec "create table v (i, r, t, b, n)")
      local changes, id = try(db:exec("insert into v values (?, ?, ?, ?, ?)", { 9007199254740993, 0.5, "é", sqlite.blob "\0\xff", json.null }))
      assert(changes == 1 and id == 1)
      local row = try(db:one("select *, :five as five from v", { five = 5 }))
      row.i, row.b = tostring(row.i), row.b == "\0\xff"
      return { row, try(db:one "select typeof(i) || ' ' || typeof(r) || ' ' || typeof(t) || ' ' || typeof(b) || ' ' || typeof(n) as s from v").s }]])
    assert.same({ "[]", true, 1, 2 }, run [[
      local db = try(sqlite.open ":memory:")
      return { json.encode(try(db:query "select 1 where 0")), db:one "select 1 where 0" == nil, try(db:query "select 1 as a union select 2 order by 1")[1].a,
        (try(db:exec "create table t (a); insert into t values (1); insert into t values (2);")) }]])
  end)

  it("keeps written rows, with a setup that runs once, in a file that every script shares", function()
    assert.equal(1, (run [[return (try(require "notes":exec("insert into notes (text) values (?)", { "first" })))]]))
    assert.same({ { id = 1, text = "first" } }, run [[return try(require "notes":query "select * from notes")]])
    assert.truthy(uv.fs_stat(g.dir .. "/data/notes.db"))
    assert.truthy(why [[return require "notes":exec("insert into notes (text) values (?)", { "first" })]]
      :find("data/notes.db: UNIQUE constraint failed", 1, true))
  end)

  it("reports mistakes in SQL and its parameters", function()
    for sql, wanted in pairs {
      ['"selec"'] = 'syntax error', ['"select * from nope"'] = "no such table", ['"select ?"'] = "the SQL has 1 parameters, and 0 values were given",
      ['"select ?1", { 1, 2 }'] = "the SQL has 1 parameters, and 2 values", ['"select :a", { b = 1 }'] = "the SQL has no parameter 'b'",
      ['"select 1; select 2"'] = "a query is one statement",
    } do
      assert.truthy(why("return sqlite.open(':memory:'):query(" .. sql .. ")"):find(wanted, 1, true), sql)
    end
    assert.truthy(run([[
      local ok, why = pcall(function() return sqlite.open(":memory:"):query("select ?", { {} }) end)
      return tostring(why)]]):find "parameter 1 is a table")
  end)

  it("commits a transaction, or rolls it back whole", function()
    assert.same({ "kept", { "a", "d" } }, run [[
      local db = try(sqlite.open "data/turns.db")
      try(db:exec "create table t (v text)")
      local function put(v, how) return function(tx) try(tx:exec("insert into t values (?)", { v })) return how() end end
      local value = try(db:transaction(put("a", function() return "kept" end)))
      local nothing, why = db:transaction(put("b", function() return nil, "no" end))
      assert(nothing == nil and why == "no")
      assert(not pcall(db.transaction, db, put("c", function() error "bug" end)))
      assert(db:transaction(put("d", function() end)) == true)
      local kept
      db:transaction(function(tx) kept = tx end)
      assert(tostring(select(2, pcall(kept.query, kept, "select 1"))):find "has ended")
      assert(tostring(select(2, pcall(db.transaction, db, function() return db:query "select 1" end))):find "would wait for itself")
      local all = {}
      for _, row in ipairs(try(db:query "select v from t order by v")) do all[#all + 1] = row.v end
      return { value, all }]])
  end)

  it("makes other calls wait until a transaction is over", function()
    assert.same({ "1", "inside", "2", "outside" }, run [[
      local db, seen = try(sqlite.open "data/turns.db"), {}
      parallel {
        function() db:transaction(function(tx) seen[#seen + 1] = "1" tx:query "select 1" sleep(0.05) tx:query "select 1" seen[#seen + 1] = "inside" end) end,
        function() sleep(0.01) db:query "select 1" seen[#seen + 1] = "2" end,
        function() sleep(0.06) db:query "select 1" sleep(0.02) seen[#seen + 1] = "outside" end,
      }
      return seen]])
  end)

  it("opens 24 in memory at once for one script, closes its idle files to make room for them, and frees those that no script holds", function()
    local opened = run [[
      local all, why = {}
      for i = 1, 40 do
        local db
        db, why = sqlite.open ":memory:"
        all[#all + 1] = db
      end
      return { #all, why }]]
    assert.is_true(opened[1] >= 23 and opened[1] <= 24, opened[1]) -- a file of this script may still be open
    assert.matches(("this script has %d databases open, and the others of 32 are for other scripts: close some"):format(opened[1]), opened[2], 1, true)
    assert.equal(100, run "for i = 1, 99 do try(sqlite.open ':memory:') end return try(sqlite.open ':memory:':one 'select 100 as n').n")
  end)

  it("bounds a result", function()
    local many = "with recursive n(i) as (select 1 union all select i + 1 from n where i < %d) select %s from n"
    assert.equal(100, run(("return #try(sqlite.open(':memory:'):query %q)"):format(many:format(100, "i"))))
    assert.truthy(why(("return sqlite.open(':memory:'):query %q"):format(many:format(101, "i"))):find "more than 100 rows")
    assert.truthy(why(("return sqlite.open(':memory:'):query %q"):format(many:format(50, "hex(zeroblob(1000))"))):find "more than 65536 bytes")
    assert.truthy(why "return sqlite.open(':memory:'):query 'select zeroblob(100000000)'":find "too big")
  end)

  it("bounds a result of one row with many columns", function()
    local other <close> = code.start { workers = 1, env = memory.environment(), constants = { sql_bytes = 4 << 20 } }
    local you = other:client "2026-07-28"
    local before = peak(other)
    local sql = "select " .. ("zeroblob(4000000), "):rep(39) .. "1"
    assert.truthy(select(2, code.run(you, ("return sqlite.open(':memory:'):query %q"):format(sql), 20)):find("limits.sqlite.memory", 1, true))
    assert.is_true(peak(other) - before < 110 << 10, "a row that is larger than limits.sqlite.memory is not made")
    you:close()
    assert.has_nothing_left(other)
  end)

  it("refuses SQL that reaches files outside the database", function()
    for sql, wanted in pairs {
      ["attach '/tmp/x.db' as x"] = "ATTACH", ["vacuum into 'data/copy.db'"] = "ATTACH", ["select load_extension('x')"] = "not available to scripts",
      ["begin"] = "db:transaction", ["savepoint a"] = "db:transaction", ["pragma writable_schema = on"] = "pragma",
      ["pragma temp_store_directory = '/tmp'"] = "pragma", ["pragma journal_mode = delete"] = "pragma", ["detach main"] = "", ["vacuum"] = "VACUUM",
    } do
      assert.truthy(why(("return sqlite.open('data/turns.db'):exec(%q)"):format(sql)):find(wanted, 1, true), sql)
    end
    assert.is_nil(uv.fs_stat(g.dir .. "/data/copy.db"))
  end)

  it("opens granted files, for reading or writing as granted", function()
    local refused = why "return sqlite.open 'elsewhere/x.db'"
    assert.truthy(refused:find('tools/code.lua may not write elsewhere/x.db: no grant allows it', 1, true), refused)
    for _, path in ipairs { "data/../x.db", "/etc/x.db", "data2/x.db" } do
      assert.truthy(why(("return sqlite.open(%q)"):format(path)):find "no grant", path)
    end
    local folder = uv.fs_realpath(g.dir)
    assert.equal("given/none.db: cannot open the database: unable to open database file: No such file or directory (" .. folder .. "/given/none.db)",
      why "return sqlite.open('given/none.db'):query 'select 1'")
    assert.equal("data/none/x.db: cannot open the database: unable to open database file: No such file or directory (" .. folder .. "/data/none/x.db)",
      why "return sqlite.open('data/none/x.db'):query 'select 1'")
    run "local db = sqlite.open 'data/move.db' db:exec 'create table t (a)' return db:exec 'pragma wal_checkpoint(truncate)'"
    uv.fs_link(g.dir .. "/data/move.db", g.dir .. "/given/read.db")
    assert.truthy(why "return sqlite.open('given/read.db'):exec 'insert into t values (1)'":find "readonly")
    uv.fs_symlink("/etc", g.dir .. "/data/etc")
    uv.fs_symlink("/tmp/moonpool-nowhere.db", g.dir .. "/data/link.db")
    for _, path in ipairs { "data/etc/x.db", "data/link.db" } do
      assert.truthy(why(("return sqlite.open(%q):query 'select 1'"):format(path)):find "symbolic link", path)
    end
  end)

  it("ends a statement whose call is cancelled, and rolls its transaction back", function()
    local stream = me:open("tools/call", code.params [[
      local db = try(sqlite.open "data/turns.db")
      db:transaction(function(tx)
        try(tx:exec "insert into t values ('never')")
        store.set("there", true)
        tx:query "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n"
      end)]])
    wait.for_fact("the statement to run", 20, function() return run 'return store.get "there"' end)
    stream:close()
    assert.same({ 0 }, run([[store.delete "there" return { try(sqlite.open "data/turns.db":one "select count(*) as n from t where v = 'never'").n }]], 5))
    g:wait_status(function(status) return status.gauges.ops == 0 end)
  end)

  it("goes on while another process has the file, for a while", function()
    assert.same({ "locked", 1 }, run [[
      local one, other = try(sqlite.open "data/turns.db"), try(sqlite.open("data/turns.db", { setup = "select 1" }))
      local why
      one:transaction(function(tx)
        tx:exec "insert into t values ('x')"
        why = select(2, other:exec "insert into t values ('y')")
      end)
      return { why:match "locked", (try(other:exec "insert into t values ('z')")) }]])
  end)

  it("serves other calls while a database works", function()
    local stream = me:open("tools/call", code.params [[
      sqlite.open(":memory:"):query "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n"]])
    for _ = 1, 20 do assert.equal(1, run("return 1", 1)) end
    stream:close()
  end)
end)

describe("sqlite of several workers", function()
  it("counts right when all write at once", function()
    local g <close> = code.start { workers = 2, config = { scripts = { allow = { write = { "data/" } } } } }
    uv.fs_mkdir(g.dir .. "/data", 493)
    local clients, streams = {}, {}
    for i = 1, 8 do
      clients[i] = g:client "2026-07-28"
      streams[i] = clients[i]:open("tools/call", code.params [[
        local db = sqlite.open("data/n.db", { setup = "create table if not exists n (v integer); insert into n select 0 where not exists (select * from n)" })
        for _ = 1, 20 do
          try(db:transaction(function(tx)
            local row = try(tx:one "select v from n")
            try(tx:exec("update n set v = ?", { row.v + 1 }))
          end))
        end
        return true]])
    end
    for i = 1, 8 do assert.is_true(code.read(streams[i]:answer(20))) end
    assert.equal(160, code.run(clients[1], [[return try(sqlite.open("data/n.db"):one "select v from n").v]]))
    for i = 1, 8 do clients[i]:close() end
  end)

  it("stops with the gateway, in the middle of a statement", function()
    local g <close> = code.start { workers = 1, config = { limits = { drain = "0s" } } }
    local me = g:client "2026-07-28"
    me:open("tools/call", code.params [[store.set("there", true)
      sqlite.open(":memory:"):query "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n"]])
    wait.for_fact("it to run", 20, function() return g:status().gauges.databases == 1 end)
    g:stop()
    me:close()
  end)
end)

describe("the limits of sqlite", function()
  it("bounds databases of a worker and the calls that wait for one, and counts refusals", function()
    local g <close> = code.start {
      workers = 1, constants = { sqlite_databases = 2, sqlite_queue = 4 },
    }
    local me = g:client "2026-07-28"
    assert.same({ 2, "more than 2 databases are open" }, code.run(me, [[
      local one, two = sqlite.open ":memory:", sqlite.open ":memory:"
      local three, why = sqlite.open ":memory:"
      return { (one and 1 or 0) + (two and 1 or 0) + (three and 1 or 0), why }]]))
    assert.equal(1, g:status().counters.refused.databases)
    local refused = code.run(me, [[
      local db, refused, list = sqlite.open ":memory:", 0, {}
      for i = 1, 12 do
        list[i] = function()
          local done, why = db:query "with recursive n(i) as (select 1 union all select i + 1 from n where i < 50000) select count(*) as n from n"
          if not done and why:find("too many statements wait for this database", 1, true) then refused = refused + 1 end
          return true
        end
      end
      parallel(list)
      return refused]])
    assert.is_true(refused >= 6 and refused <= 8, tostring(refused))
    g:wait_status(function(status) return status.counters.refused.statements == refused and status.gauges.statements == 0 end)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
