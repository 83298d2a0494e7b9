-- V5: the memory that SQLite allocates for a script is bounded: per database, per process, and for parameters and
-- results.
local code = require "spec.helpers.code"
local memory = require "spec.helpers.memory"
local uv = require "luv"

-- The largest amount of memory that the process has had, in KiB.
local function peak(g) return g:rss "VmHWM" // 1024 end

describe("memory of SQLite", function()
  local g, me
  lazy_setup(function()
    g = code.start { workers = 1, env = memory.environment(), constants = { sqlite_heap = 40 << 20, sqlite_held = 6 << 20, sql_bytes = 4 << 20 }, config = {
      scripts = { allow = { write = { "data/" } } },
      limits = { sqlite = { memory = "16MiB" }, call = { memory = "48MiB" } },
    } }
    uv.fs_mkdir(g.dir .. "/data", 493)
    me = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    code.run(me, "sqlite.open('data/bound.db'):close() return true")
    me:close()
    assert.has_nothing_left(g)
    g:stop()
  end)

  local function run(text) return code.run(me, text, 20) end

  it("is bounded for a database in memory, which goes on afterwards", function()
    local before = peak(g)
    local told = assert(run [[
      local db = sqlite.open ":memory:"
      try(db:exec "create table t (a)")
      local why
      for i = 1, 100 do
        local done
        done, why = db:exec "insert into t values (randomblob(1000000))"
        if not done then break end
      end
      local n = try(db:one "select count(*) as n from t").n
      try(db:exec "delete from t")
      try(db:exec "insert into t values (1)")
      return { why, n }]])
    assert.truthy(told[1]:find("the memory limit of this database is reached (limits.sqlite.memory)", 1, true), told[1])
    assert.is_true(told[2] >= 8 and told[2] < 16, tostring(told[2]))
    assert.is_true(peak(g) - before < 64 << 10)
  end)

  it("is bounded for temporary tables, sorting, endless recursion and values, of a file too", function()
    local before = peak(g)
    for _, sql in ipairs {
      "create temp table x as with recursive n(i) as (select 1 union all select i + 1 from n) select randomblob(1000) as b from n",
      "with recursive n(i) as (select 1 union select i + 1 from n) select max(i) from n",
      "with recursive n(i) as (select 1 union all select i + 1 from n) select i, randomblob(500) as b from n order by b",
      "with recursive n(i) as (select 1 union all select i + 1 from n limit 100) select count(*) from (select distinct randomblob(1000000) from n)",
      "with recursive n(i) as (select 1 union all select i + 1 from n limit 20000) select group_concat(randomblob(1000)) from n",
      "with recursive n(i) as (select 1 union all select i + 1 from n limit 20000) select json_group_array(hex(randomblob(1000))) from n",
      "select " .. ("randomblob(4000000), "):rep(30) .. "1", "pragma page_size = 65536; create table big (a); insert into big select zeroblob(1000000) from "
        .. "(with recursive n(i) as (select 1 union all select i + 1 from n limit 100) select i from n)",
    } do
      for _, where in ipairs { ":memory:", "data/bound.db" } do
        if where == ":memory:" or not sql:find "page_size" then
          local told = select(2, run(("return sqlite.open(%q):exec(%q)"):format(where, sql)))
          assert.truthy(told and (told:find("limits.sqlite.memory", 1, true) or told:find("too big", 1, true)), where .. " " .. sql .. ": " .. tostring(told))
        end
      end
    end
    assert.is_true(peak(g) - before < 96 << 10)
  end)

  it("is bounded for all databases together", function()
    local told = run [[
      local all, why = {}
      for i = 1, 8 do
        all[i] = sqlite.open ":memory:"
        try(all[i]:exec "create table t (a)")
        local done
        done, why = all[i]:exec "insert into t select randomblob(1000000) from (values (1), (2), (3), (4), (5), (6), (7), (8), (9))"
        if not done then break end
      end
      local n = #all
      for _, db in ipairs(all) do db:close() end
      local db = sqlite.open ":memory:"
      return { why, n, try(db:one "select length(randomblob(3000000)) as n").n }]]
    assert.truthy(told[1]:find("the memory limit of all databases is reached (512 MiB)", 1, true), told[1])
    assert.is_true(told[2] >= 3 and told[2] <= 6)
    assert.equal(3000000, told[3])
  end)

  it("is bounded for parameters and results", function()
    local before = peak(g)
    assert.truthy(select(2, run [[
      local big, list = ("x"):rep(1000000), {}
      for i = 1, 1000 do list[i] = big end
      return sqlite.open(":memory:"):query("select 1", list)]]):find("the parameters are larger than 16 MiB", 1, true))
    assert.truthy(select(2, run "local list = {} for i = 1, 1001 do list[i] = i end return sqlite.open(':memory:'):query('select 1', list)")
      :find("more than 1000 parameters", 1, true))
    local told = run [[
      local big, list, refused = ("x"):rep(1000000), {}, 0
      local db = sqlite.open ":memory:"
      for i = 1, 30 do
        list[i] = function()
          local row, why = db:one("select ? as a, ? as b, ? as c", { big, big, big })
          if not row and why:find("too many bytes of SQL results and parameters", 1, true) then refused = refused + 1 end
          return true
        end
      end
      parallel(list)
      return refused]]
    assert.is_true(told >= 20, tostring(told))
    assert.is_true(g:status().counters.refused.sqlite_bytes >= told)
    assert.is_true(peak(g) - before < 64 << 10)
    assert.equal(0, g:status().gauges.sqlite_bytes)
    assert.truthy(tostring(run [[local _, why = pcall(function() return sqlite.open(":memory:"):query(("-"):rep(2000000)) end) return tostring(why)]])
      :find("at most 1 MiB", 1, true))
  end)
end)
