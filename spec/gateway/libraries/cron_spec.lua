-- Jobs at times of day: one worker begins each of them once, and errors in a job are reported.
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

describe("a job with times as cron has them", function()
  it("runs once in its minute, on one of the workers", function()
    local g <close> = gateway.start { workers = 2, scripts = {
      ["jobs/each.lua"] = [[return job { "Each minute.", every = "* * * * *", jitter = 0.01, function() store.incr "each" store.set("at", time.now()) end }]],
      ["jobs/never.lua"] = [[return job { "Never.", every = "0 0 30 2 *", zone = "Europe/Berlin", function() store.incr "never" end }]],
      ["jobs/often.lua"] = [[return job { "Often.", every = 0.1, function() store.incr "often" end }]],
      ["tools/told.lua"] = [[return tool { "Tells.", function()
        return { each = store.get "each" or 0, never = store.get "never" or 0, often = store.get "often" or 0, minute = time.now() // 60 }
      end }]],
    } }
    local c = g:client "2026-07-28"
    local function told() return c:result("tools/call", { name = "told" }).structuredContent end
    local first = told()
    wait.for_fact("a run", 15, function() return told().each > 0 end)
    -- `often` runs every 0.1 s: waits for more than six seconds, and one further check
    wait.for_fact("other jobs to go on", 15, function() return told().often > 60 end)
    local last = told()
    assert.is_true(last.each <= last.minute - first.minute + 1)
    assert.equal(0, last.never)
    c:close()
  end)

  it("is checked while it loads", function()
    for text, said in pairs {
      ['every = "0 3 * *"'] = "has 4 fields, not five", ['every = "0 25 * * *"'] = "'25' is not a hour",
      ['every = "0 3 * * *", zone = "Europe/Berlon"'] = "there is no time zone 'Europe/Berlon'",
      ['every = 5, zone = "Europe/Berlin"'] = "'zone' applies only to times of day",
      ['every = "5m"'] = "as in every = 5 * minutes", ["every = 5, jitter = -1"] = "'jitter' must be from 0 to an hour",
    } do
      local dir = gateway.prepare { scripts = { ["jobs/it.lua"] = "return job { 'It.', " .. text .. ", function() end }" } }
      local code, out, err = gateway.exec { "check", dir .. "/moonpool.yaml" }
      assert.not_equal(0, code, text)
      assert.match(said, out .. err, 1, true)
    end
  end)
end)
