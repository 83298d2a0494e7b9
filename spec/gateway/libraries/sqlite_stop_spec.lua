-- One step of full-text search, and one call of some SQL functions, may take minutes: each ends soon after its call was
-- cancelled. The times are of the processor.
local beat = require "spec.helpers.beat"
local code = require "spec.helpers.code"
local wait = require "spec.helpers.wait"

local STOPS_S <const> = 0.1 -- seconds of processor time between the end of a call and that of its statement
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
  { "a function of JSON with many paths", [[local paths = {} for i = 1, 60 do paths[i] = ("'$[%d]', 1"):format(5000000 + i) end ]],
    [["select length(json_set(?, " .. table.concat(paths, ",") .. "))", { "[" .. ("0,"):rep(6000000) .. "0]" }]] },
}

describe("a statement whose call ends in the middle of", function()
  local g, me
  lazy_setup(function()
    g = code.start {
      workers = 1, config = { limits = { sqlite = { memory = "500MiB" }, call = { memory = "160MiB", time = "60s", cpu = "20s" } } },
    }
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
end)
