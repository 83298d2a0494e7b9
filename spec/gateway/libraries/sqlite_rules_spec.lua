-- V1: SQL of scripts runs no native code, reaches nothing outside of its database, and every call of it ends.
local code = require "spec.helpers.code"
local gateway = require "spec.helpers.gateway"
local uv = require "luv"

describe("SQL of scripts", function()
  local g, me
  lazy_setup(function()
    g = code.start { workers = 1, config = { scripts = { allow = { write = { "data/" } } } } }
    uv.fs_mkdir(g.dir .. "/data", 493)
    me = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    me:close()
    assert.has_nothing_left(g)
    g:stop()
  end)

  local function run(text, seconds) return code.run(me, text, seconds) end
  local function why(sql, params)
    return select(2, run(("return sqlite.open(':memory:'):exec(%q%s)"):format(sql, params and ", " .. params or "")))
  end

  it("calls no address", function()
    for _, case in ipairs {
      { "select fts3_tokenizer('simple')" }, { "select FTS3_TOKENIZER('simple')" },
      { "select fts3_tokenizer('evil', ?)", "{ sqlite.blob(('A'):rep(8)) }" },
      { "create view v as select fts3_tokenizer('simple') as a; select * from v" },
      { "create table t (a default (fts3_tokenizer('simple'))); insert into t default values" },
      { "create table t (a); create trigger g after insert on t begin select fts3_tokenizer('simple'); end; insert into t values (1)" },
      { "create table t (a check (fts3_tokenizer(a) is null)); insert into t values ('simple')" },
      { "create virtual table t using fts3(a, tokenize=simple)" }, { "create virtual table t using fts4(a)" },
      { "create virtual table t using FTS3Tokenize" }, { "create virtual table temp.t using fts4aux(main, t)" },
      { "select load_extension('libc.so.6')" },
    } do
      local told = why(case[1], case[2])
      assert.truthy(told and (told:find("not available to scripts", 1, true) or told:find("unsafe use", 1, true)
        or told:find("no such", 1, true)), case[1] .. ": " .. tostring(told))
    end
    assert.is_true(g:is_alive())
  end)

  it("reads no table of SQLite's own workings", function()
    for _, sql in ipairs { "select * from dbstat", "select * from sqlite_dbpage", "select * from sqlite_stmt", "select * from pragma_database_list",
      "pragma temp_store_directory = '/tmp'", "select * from pragma_temp_store_directory", "pragma hard_heap_limit = 1", "pragma max_page_count = 1000000000",
      "pragma mmap_size = 1000000000", "pragma cache_size = 1000000", "pragma threads = 8", "pragma temp_store = 1", "pragma trusted_schema = off" } do
      assert.is_string(why(sql), sql)
    end
  end)

  it("still runs ordinary SQL", function()
    assert.same({ 3, "b", 2, "x-y", 1 }, run [[
      local db = sqlite.open ":memory:"
      try(db:exec "create table t (a integer primary key, b text default 'x'); alter table t rename to u; alter table u rename column b to c")
      try(db:exec "alter table u add column d; alter table u drop column d; create index i on u (c); analyze")
      try(db:exec "insert into u (c) values ('a'), ('b'), ('c')")
      local each = try(db:query "select value from json_each('[1, 2]')")
      try(db:exec "create virtual table r using rtree(id, x0, x1); insert into r values (1, 0, 1)")
      return { try(db:one "select count(*) as n from u").n, try(db:one "select c from u where c glob 'b*'").c, #each,
        try(db:one "select replace('x+y', '+', '-') as s").s, try(db:one "select count(*) as n from r where x0 >= 0").n }]])
  end)

  it("has FTS5 with an external table and triggers, as SQLite's manual writes it", function()
    assert.same({ { "<b>moon</b> pool" }, {}, { "<b>moon</b>" } }, run [[
      local db = try(sqlite.open("data/fts.db", { setup = [=[
        CREATE TABLE IF NOT EXISTS tbl(a INTEGER PRIMARY KEY, b, c);
        CREATE VIRTUAL TABLE IF NOT EXISTS fts_idx USING fts5(b, c, content='tbl', content_rowid='a');
        CREATE TRIGGER IF NOT EXISTS tbl_ai AFTER INSERT ON tbl BEGIN
          INSERT INTO fts_idx(rowid, b, c) VALUES (new.a, new.b, new.c);
        END;
        CREATE TRIGGER IF NOT EXISTS tbl_ad AFTER DELETE ON tbl BEGIN
          INSERT INTO fts_idx(fts_idx, rowid, b, c) VALUES('delete', old.a, old.b, old.c);
        END;
        CREATE TRIGGER IF NOT EXISTS tbl_au AFTER UPDATE ON tbl BEGIN
          INSERT INTO fts_idx(fts_idx, rowid, b, c) VALUES('delete', old.a, old.b, old.c);
          INSERT INTO fts_idx(rowid, b, c) VALUES (new.a, new.b, new.c);
        END;]=] }))
      local function found(word)
        local list = {}
        for i, row in ipairs(try(db:query("select highlight(fts_idx, 0, '<b>', '</b>') as h from fts_idx where fts_idx match ? order by rank", { word }))) do
          list[i] = row.h
        end
        return list
      end
      try(db:exec "insert into tbl (b, c) values ('moon pool', 'ship'), ('sun', 'sky')")
      local first = found "moon"
      try(db:exec "delete from tbl where b = 'moon pool'")
      local second = found "moon"
      try(db:exec "update tbl set b = 'moon' where b = 'sun'")
      local third = found "moon"
      db:close()
      return { first, second, third }]])
  end)

  -- A script that may write the file of a database can write any bytes into it, also a schema that the SQL of scripts
  -- could not make.
  it("calls nothing that the schema of a file brings along", function()
    local path = g.dir .. "/data/crafted.db"
    for _, statement in ipairs {
      "create table t (a default (load_extension('libc.so.6')), b check (typeof(likely(b)) is not null))",
      -- written into the schema, since SQLite 3.53 makes no table with such a check
      "pragma writable_schema = on; update sqlite_schema set sql = replace(sql, 'likely', 'load_extension') where name = 't'",
      "create table u (a)", "create view v as select fts3_tokenizer('simple') as a", "create view w as select load_extension('libc.so.6') as a",
      "create trigger g after insert on u begin select fts3_tokenizer('simple', x'00'); end",
      "create virtual table f using fts4(x, tokenize=simple)", "create virtual table d using dbstat(main)",
    } do
      -- The system's program makes the file: the library that is linked in has no load_extension.
      local ended, _, err = gateway.run_program("/usr/bin/sqlite3", { path, ".dbconfig defensive off", statement })
      assert.equal(0, ended, err)
    end
    for _, statement in ipairs {
      "insert into t default values", "insert into t values (1, 'x')", "insert into u values (1)", "select * from v", "select * from w",
      "select * from f", "insert into f values ('a')", "select * from d" } do
      local done, told = run(("return sqlite.open('data/crafted.db'):exec(%q)"):format(statement))
      assert.is_nil(done, statement)
      assert.truthy(told:find("not available to scripts", 1, true) or told:find("no such module", 1, true) or told:find("unsafe use", 1, true),
        statement .. ": " .. told)
    end
    run "sqlite.open('data/crafted.db'):close() return true"
  end)

  it("ends every single call of a function soon", function()
    for _, expression in ipairs {
      "instr(a, substr(a, 1, 8000000) || 'b')", "length(replace(a, substr(a, 1, 8000000) || 'b', ''))", "length(trim(a || 'b', 'xyzaé'))",
      "a like '%' || substr(a, 1, 120) || 'b'", "a glob '*' || substr(a, 1, 120) || 'b'", "a like '%a%a%a%a%a%a%a%a%b'",
    } do
      run(([[
        local db = sqlite.open ":memory:"
        db:query %q
        return true]]):format("with t as materialized (select replace(hex(zeroblob(8000000)), '0', 'a') as a) select " .. expression .. " as v from t"), 60)
    end
    assert.truthy(why("select 'a' like hex(zeroblob(100))"):find "pattern too complex")
    assert.truthy(why("select trim('a', hex(zeroblob(500)))"):find "256 bytes")
  end)
end)
