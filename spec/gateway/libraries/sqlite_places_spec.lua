-- V13: what is counted are databases that are open, not names that were used before.
local code = require "spec.helpers.code"
local uv = require "luv"

describe("places for databases", function()
  local g, me
  lazy_setup(function()
    g = code.start { workers = 1, constants = { sqlite_databases = 3 }, config = { scripts = { allow = { write = { "data/" } } } } }
    uv.fs_mkdir(g.dir .. "/data", 493)
    me = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    me:close()
    g:stop()
  end)

  local function run(text) return code.run(me, text, 20) end

  it("are freed by files that no script uses, for any number of names and setups", function()
    assert.equal(60, run [[
      local sum = 0
      for i = 1, 60 do
        local db = try(sqlite.open(("data/%d.db"):format(i % 20), { setup = "create table if not exists t (a); select " .. i }))
        sum = sum + try(db:exec("insert into t values (?)", { i }))
      end
      return sum]])
    assert.is_true(g:wait_status(function(status) return status.gauges.databases <= 3 end).gauges.databases <= 3)
    assert.equal(0, g:status().counters.refused.databases)
  end)

  it("are taken from the file that was not used for longest, never from one in use", function()
    assert.same({ "kept", 1, 4 }, run [[
      local a, b = try(sqlite.open "data/a.db"), try(sqlite.open "data/b.db")
      try(a:exec "create table t (v)") try(b:exec "create temp table mine (v)")
      local kept = try(a:transaction(function(tx)
        try(tx:exec "insert into t values (1)")
        for i = 1, 4 do try(try(sqlite.open(("data/other%d.db"):format(i))):one "select 1") end
        try(tx:exec "insert into t values (2)")
        return "kept"
      end))
      local again = try(b:exec "create temp table mine (v); insert into mine values (1)") -- a new connection
      return { kept, again, try(a:one "select count(*) * 2 as n from t").n }]])
  end)

  it("are given back by close, at once, also of those in memory", function()
    assert.same({ 30, true }, run [[
      local all, n = {}, 0
      for i = 1, 30 do
        local db, why = sqlite.open ":memory:"
        all[i] = db
        if db and db:one "select 1" then n = n + 1 end
        if db then db:close() end
      end
      local last = try(all[1]:one "select 1 as n").n == 1
      all[1]:close()
      return { n, last }]])
  end)

  it("are refused when scripts hold as many in memory, and are free when they do not any more", function()
    assert.same({ 3, "more than 3 databases are open" }, run [[
      local all, why = {}
      for i = 1, 5 do local db db, why = sqlite.open ":memory:" all[#all + 1] = db end
      return { #all, why }]])
    assert.equal(20, run "local n = 0 for i = 1, 20 do if sqlite.open ':memory:' then n = n + 1 end end return n")
  end)
end)
