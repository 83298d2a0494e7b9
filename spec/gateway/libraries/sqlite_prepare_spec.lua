-- T5: SQLite cannot be interrupted while it prepares a statement, and short texts can make that long: what a statement
-- may take to be prepared is bounded, in length, in terms and in memory.
local uv = require "luv"
local beat = require "spec.helpers.beat"
local code = require "spec.helpers.code"

local PREPARES_S <const> = 2 -- seconds of processor time, for the worst statement; 0.4 on an ordinary machine

-- Views and subqueries that refer to each other: with each step, the work to prepare the statement doubles.
local doubled = [[local s = "select a as x from t" for i = 1, 40 do s = "select x+x as x from (" .. s .. ")" end]]
local chained = [[local list = { "x0 as (select a from t)" }
  for i = 1, 30 do list[#list + 1] = ("x%d as (select p.a from x%d p, x%d q)"):format(i, i - 1, i - 1) end
  local s = "with " .. table.concat(list, ",") .. " select 1 from x30"]]
-- `n` expressions of about `bytes` bytes that differ at their ends.
local terms = [[local function terms(n, bytes, from, form)
    local list = {}
    for i = 1, n do list[i] = (form or "%s"):format(("a+"):rep(bytes // 2 - 4) .. from + i) end
    return table.concat(list, ",")
  end ]]

describe("preparing a statement of SQL", function()
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

  -- Runs the Lua code `text`, which makes the string `s`, and prepares `s` as a statement of a database with a table t.
  -- Returns the error.
  local function prepare(text, setup)
    local before = g:cpu()
    local told = code.run(me, text .. ([[
      local db = sqlite.open ":memory:"
      try(db:exec "create table t (a, b)")
      %s
      local _, why = db:query(s)
      db:close()
      return why or "none"]]):format(setup or ""), 60)
    assert.is_true(g:cpu() - before < PREPARES_S * beat.factor(), text)
    return told
  end

  local nested = "preparing the statement takes more than 16 MiB: nest fewer views and subqueries"

  it("is bounded by memory for subqueries and for views that refer to each other", function()
    local refused = g:status().counters.refused.sqlite_prepare or 0
    assert.matches(nested, prepare(doubled), 1, true)
    assert.matches(nested, prepare(chained), 1, true)
    assert.matches(nested, prepare("local s = 'select x from v40'", [[
      try(db:exec "create view v0 as select a as x from t")
      for i = 1, 40 do try(db:exec(("create view v%d as select x+x as x from v%d"):format(i, i - 1))) end]]), 1, true)
    assert.equal(refused + 3, g:status().counters.refused.sqlite_prepare)
  end)

  it("is bounded by the terms of a statement, each of which is compared with each", function()
    for _, text in ipairs {
      "local s = 'select ' .. terms(480, 64, 0) .. ' from t order by ' .. terms(480, 64, 1000)",
      "local s = 'select ' .. terms(480, 64, 0) .. ' from t group by ' .. terms(480, 64, 1000)",
      "local s = 'select distinct ' .. terms(200, 150, 0) .. ' from t order by ' .. terms(200, 150, 1000)",
      "local s = 'select ' .. terms(480, 120, 0, 'sum(%s)') .. ' from t'",
    } do
      assert.equal("none", prepare(terms .. text), text)
    end
    assert.matches("too many columns", prepare(terms .. "local s = 'select ' .. terms(501, 10, 0) .. ' from t'"))
    assert.matches("more than 500 aggregate terms", prepare(terms .. "local s = 'select ' .. terms(502, 10, 0, 'sum(%s)'):gsub(',', '+') .. ' from t'"))
  end)

  it("is bounded by the length of a statement, not by that of a text of several", function()
    assert.equal("sqlite: a statement is at most 64 KiB of SQL: pass values as parameters, or split it",
      prepare "local s = 'select 1 in (' .. ('1,'):rep(33000) .. '1)'")
    assert.equal("none", prepare("local s = 'select 1'", [[try(db:exec(("insert into t values (1, 2);"):rep(30000)))]]))
  end)

  it("holds for the setup of a database, too", function()
    local told = code.run(me, chained .. [[
      local db = sqlite.open("data/set.db", { setup = "create table t (a); " .. s })
      local _, why = db:query "select 1"
      return why]], 60)
    assert.matches(nested, told, 1, true)
  end)
end)
