-- What all scripts' databases share, filled by one script: the databases of another script are opened and answer.
local code = require "spec.helpers.code"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local MEMORY <const>, HEAP <const>, HELD <const>, DATABASES <const>, QUEUE <const> = 8 << 20, 24 << 20, 8 << 20, 8, 48

-- How each room is filled: Lua of the script that fills it, which ends when it is refused and returns why; what the
-- refusal says, and its counter.
local ways = {
  ["open databases"] = { says = "this script has 6 databases open, and the others of 8 are for other scripts: close some", counts = "databases", fill = [[
    for i = 1, 20 do
      local db, why = sqlite.open ":memory:"
      kept[i] = db
      if not db then return why end
    end]] },
  ["memory of SQLite"] = { says = "the memory limit of all databases is reached (512 MiB)", counts = "sqlite_heap", fill = [[
    local why, last
    for _ = 1, 4 do -- a script whose databases have taken all takes what becomes free, too
      for i = 1, 6 do
        local db, fine = kept[i] or sqlite.open ":memory:"
        kept[i] = db
        if db then
          db:exec "create table if not exists t (a)"
          repeat
            fine, why = db:exec "insert into t values (randomblob(100000))"
            if not fine and why:find("all databases", 1, true) then last = why end
          until not fine
        end
      end
    end
    return last or why]] },
  ["bytes of parameters"] = { waits = true, says = "too many bytes of SQL results and parameters are in memory, of this script or all (128 MiB): run fewer",
    counts = "sqlite_bytes", fill = [[
    return wait_in_line("select ? as a", { ("x"):rep(250000) }) ]] },
  ["statements that wait for a database"] = { waits = true, says = "too many statements wait for this database", counts = "statements", fill = [[
    return wait_in_line "select 1" ]] },
}

-- Behind a statement that does not end, statements wait until one is refused; these are cancelled with their call.
local MANY <const> = 64
local WAITING <const> = ([[
  local kept = {}
  local endless <const> = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
  local function wait_in_line(sql, params)
    local db = try(sqlite.open "data/both.db")
    local all = { function() return db:one(endless) end }
    for i = 2, MANY do
      all[i] = function()
        local row, why = db:one(sql, params)
        log.warn(row and "finished" or "refused: " .. why) -- finished: on a busy machine before the endless statement
        return true
      end
    end
    parallel(all)
  end
]]):gsub("MANY", MANY)

describe("a script that fills a room of databases", function()
  for what, way in pairs(ways) do
    it("leaves room for the databases of another script, and is refused with the reason: " .. what, function()
      local g <close> = code.start { workers = 1,
        constants = { sqlite_databases = DATABASES, sqlite_heap = HEAP, sqlite_held = HELD, sqlite_queue = QUEUE },
        config = { scripts = { allow = { write = { "data/" } } },
          limits = { sqlite = { memory = MEMORY .. "B" }, call = { memory = "128MiB", time = "60s" } } },
        scripts = {
          ["tools/greedy.lua"] = WAITING .. 'return tool { "Fills a room.", function()\n' .. way.fill .. "\nend }",
        } }
      uv.fs_mkdir(g.dir .. "/data", 493)
      local mallory = g:client "2026-07-28"
      local bob <close> = g:client "2026-07-28"
      local said
      if way.waits then
        mallory:open("tools/call", { name = "greedy", arguments = {} })
        g:wait_status(function(status) return status.counters.refused[way.counts] > 0 end)
        wait.for_fact("the reason in the log", 20, function()
          said = g:log()
          return said:find("refused: ", 1, true)
        end)
      else
        said = mallory:result("tools/call", { name = "greedy", arguments = {} }).content[1].text
      end
      assert.matches(way.says, said, 1, true)
      assert.is_true(g:status().counters.refused[way.counts] > 0)
      assert.same({ 1, 300000 }, code.run(bob, [[
        local db = try(sqlite.open ":memory:")
        try(db:exec "create table t (a)")
        try(db:exec("insert into t values (?)", { ("x"):rep(300000) }))
        return { try(db:one "select count(*) as n from t").n, try(db:one "select length(a) as n from t").n }]]))
      if way.waits then -- its statements wait for the endless one, and are not refused
        local function settled(status)
          local _, finished = g:log():gsub("warn  finished", "")
          return status.gauges.statements + status.counters.refused[way.counts] + finished == MANY
        end
        local before = g:wait_status(settled).counters.refused[way.counts]
        local waiting = g:status().gauges.statements
        local call = bob:open("tools/call", code.params [[
          local db = try(sqlite.open "data/both.db")
          local function seven() return try(db:one "select 7 as a").a end
          local two = parallel { seven, seven } -- the one place that the endless statement had at first is free again
          return two[1][1] == 7 and two[2][1] ]])
        g:wait_status(function(status) return status.gauges.statements == waiting + 2 or status.counters.refused[way.counts] > before end)
        assert.equal(before, g:status().counters.refused[way.counts])
        mallory:close()
        assert.equal(7, code.read(call:answer()))
      else
        mallory:close()
      end
    end)
  end

  it("filled with parameters, leaves room for the results of the statements that run", function()
    local g <close> = code.start { workers = 1, constants = { sqlite_held = HELD }, scripts = {}, config = {
      limits = { call = { memory = "128MiB" } } } }
    local client <close> = g:client "2026-07-28"
    assert.same({ 100000, true }, code.run(client, [[
      local db = try(sqlite.open ":memory:")
      local slow <const> = "with recursive n(i) as (select 1 union all select i + 1 from n limit 500000) " ..
        "select zeroblob(100000) as a, count(*) as n from n"
      local bytes, refused
      local all = { function() bytes = #try(db:one(slow)).a return true end }
      for i = 2, 64 do
        all[i] = function()
          local row, why = db:one("select ? as a", { ("x"):rep(250000) })
          refused = refused or not row and why:find("too many bytes", 1, true) ~= nil
          return true
        end
      end
      parallel(all)
      return { bytes, refused } ]]))
  end)
end)
