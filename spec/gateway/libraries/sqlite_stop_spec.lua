-- One step of full-text search, and one call of some SQL functions, may take minutes: each ends soon after its call was
-- cancelled. One call of any other function is over soon by itself. The times are of the processor.
local beat = require "spec.helpers.beat"
local code = require "spec.helpers.code"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local STOPS_S <const> = 0.1 -- seconds of processor time between the end of a call and that of its statement
local LONGEST_S <const> = 0.3 -- seconds of processor time of one call of a function that nothing interrupts
local RUNS_S <const> = 0.5  -- seconds that a statement has run when its call is cancelled

local words = [[local function words(word, n, between) return (word .. (between or " ")):rep(n - 1) .. word end ]]
local fts = words .. [[
  try(db:exec "create virtual table f using fts5(x)")
  try(db:exec("insert into f values (?)", { words("a", %d) .. " b" })) ]]

-- What is measured: the setup, and the statement with its parameters, as Lua text.
local cases = {
  { "a phrase of many words", fts:format(1000000), [["select count(*) from f where f match ?", { '"' .. words("a", 300) .. '"' }]] },
  { "a NEAR of many words", fts:format(300000), [["select count(*) from f where f match ?", { "NEAR(" .. words("a", 300) .. ", 1000)" }]] },
  { "many phrases", fts:format(300000), [["select count(*) from f where f match ?", { words('"a a a a a a"', 200, " OR ") }]] },
  { "bm25() of many words", fts:format(300000), [["select bm25(f) from f where f match ?", { words("a", 800, " OR ") }]] },
  { "snippet() of a long text", fts:format(1000000), [["select snippet(f, 0, '<', '>', '.', 64) from f where f match 'a'"]] },
  { "highlight() of a long text", fts:format(1000000), [["select length(highlight(f, 0, '<', '>')) from f where f match 'a'"]] },
  { "a trigram search", words .. [[try(db:exec "create virtual table f using fts5(x, tokenize = 'trigram')")
    try(db:exec("insert into f values (?)", { ("a"):rep(1000000) })) ]],
    [["select count(*) from f where f match ?", { '"' .. ("a"):rep(400) .. '"' }]] },
  { "LIKE", "", [["select ? like ?", { ("a"):rep(12000000), "%" .. ("a"):rep(120) .. "b" }]] },
  { "GLOB", "", [["select ? glob ?", { ("a"):rep(12000000), "*" .. ("a"):rep(120) .. "b" }]] },
  { "trim()", "", [["select length(trim(?, ?))", { ("a"):rep(12000000), ("b"):rep(255) .. "a" }]] },
  { "unhex() with characters to ignore", "", [["select length(unhex(?, ?))", { ("-"):rep(200000), ("b"):rep(200000) .. "-" }]] },
  -- one call takes less than half a second, and nothing but the function itself looks between two calls
  { "strftime() of a long format", "", [["select " .. ("strftime(?1, '1970-01-01'), "):rep(20) .. "1", { ("%s"):rep(7500000) }]] },
  { "a function of JSON with many paths", [[local paths = {} for i = 1, 60 do paths[i] = ("'$[%d]', 1"):format(5000000 + i) end ]],
    [["select length(json_set(?, " .. table.concat(paths, ",") .. "))", { "[" .. ("0,"):rep(6000000) .. "0]" }]] },
}

-- The longest calls of functions that are not interrupted, as found by trying all that the database has.
local longest = {
  { "json() of a list", [[select length(json(?))]], [["[" .. ("1,"):rep(7900000) .. "1]"]] },
  { "json() of hexadecimal numbers", [[select length(json(?))]], [["[" .. ("0x1,"):rep(3900000) .. "1]"]] },
  { "json_remove() of the last member", [[select length(json_remove(?, '$.a'))]], [["{" .. ('"b":1,'):rep(2600000) .. '"a":1}']] },
  { "json_each() of a list", [[select count(*) from json_each(?)]], [["[" .. ("1,"):rep(7900000) .. "1]"]] },
  { "json_error_position() of a list without its end", [[select json_error_position(?)]], [["[" .. ("1,"):rep(7900000)]] },
  { "printf() of many numbers", [[select length(printf(?))]], [[("%,d"):rep(5000000)]] },
  { "a cast to a number", [[select typeof(cast(? as numeric))]], [[("1"):rep(16000000)]] },
  { "upper()", [[select length(upper(?))]], [[("a"):rep(16000000)]] },
  { "replace()", [[select length(replace(?, 'a', 'cd'))]], [[("ab"):rep(4000000)]] },
  { "instr()", [[select instr(?1, substr(?1, 1, 1000000) || 'b')]], [[("a"):rep(15000000)]] },
  { "a comparison", [[select ?1 || 'a' = ?1 || 'A' collate nocase]], [[("a"):rep(15000000)]] },
}

describe("a statement whose call ends in the middle of", function()
  local g, me
  lazy_setup(function()
    g = code.start {
      workers = 1, config = {
        scripts = { allow = { write = { "data/" } } },
        limits = { sqlite = { memory = "500MiB" }, call = { memory = "160MiB", time = "60s", cpu = "20s" } },
      },
    }
    uv.fs_mkdir(g.dir .. "/data", 493)
    me = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    me:close()
    assert.has_nothing_left(g)
    g:stop()
  end)

  for _, case in ipairs(cases) do
    local name, setup, statement = table.unpack(case)
    it(name .. " ends soon", function()
      local stream = me:open("tools/call", code.params(([[local db = sqlite.open ":memory:" %s
        store.set("there", true)
        local rows, why = db:query(%s)
        return why or "the statement has ended"]]):format(setup, statement)))
      wait.for_fact("the statement to begin", 60, function() return code.run(me, [[return store.get "there"]]) end)
      local began = g:cpu()
      wait.for_fact("the statement to run", 60, function() return g:cpu() - began >= RUNS_S end)
      assert.equal(1, g:status().gauges.statements, "the statement has ended by itself: " .. name)
      local before = g:cpu()
      stream:close()
      g:wait_status(function(status) return status.gauges.statements == 0 end)
      local took = g:cpu() - before
      if os.getenv "BOUNDS" then print(("%-40s %6.0f ms"):format(name, took * 1000)) end
      assert.is_true(took <= STOPS_S * beat.factor(), ("%s: %.2f s"):format(name, took))
      code.run(me, [[store.delete "there" return true]])
    end)
  end

  -- Its time is that of reading the table from its file, which a large one makes minutes.
  it("clearing a whole table ends soon, and leaves the table as it was", function()
    code.run(me, [[
      local db = try(sqlite.open "data/large.db")
      try(db:exec "create table t (x)")
      try(db:query "with recursive n(i) as (select 1 union all select i + 1 from n where i < 40000) insert into t select zeroblob(3900) from n")
      return true]], 60)
    local stream = me:open("tools/call", code.params [[local db = try(sqlite.open "data/large.db")
      store.set("there", true)
      return try(db:exec "delete from t")]])
    wait.for_fact("the call to begin", 60, function() return code.run(me, [[return store.get "there"]]) end)
    g:wait_status(function(status) return status.gauges.statements == 1 end)
    local before = g:cpu()
    stream:close()
    g:wait_status(function(status) return status.gauges.statements == 0 end)
    local took = g:cpu() - before
    if os.getenv "BOUNDS" then print(("%-40s %6.0f ms"):format("clearing a whole table", took * 1000)) end
    assert.is_true(took <= STOPS_S * beat.factor(), ("%.2f s"):format(took))
    assert.equal(40000, code.run(me, [[
      store.delete "there"
      local db = try(sqlite.open "data/large.db")
      local count = try(db:query "select count(*) as n from t")[1].n
      db:close()
      return count]]))
  end)

  for _, case in ipairs(longest) do
    local name, statement, parameter = table.unpack(case)
    it(name .. " ends by itself soon", function()
      code.run(me, "shared = sqlite.open ':memory:' return true")
      code.run(me, ("given = %s return try(shared:query('select 1'))[1]"):format(parameter))
      local before = g:cpu()
      assert.truthy(code.run(me, ("return try(shared:query(%q, { given }))[1]"):format(statement)))
      local took = g:cpu() - before
      code.run(me, "given = nil shared:close() return true")
      if os.getenv "BOUNDS" then print(("%-40s %6.0f ms"):format(name, took * 1000)) end
      assert.is_true(took <= LONGEST_S * beat.factor(), ("%s: %.2f s"):format(name, took))
    end)
  end
end)
