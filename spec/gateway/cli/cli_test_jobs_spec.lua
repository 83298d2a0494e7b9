-- due_jobs and run_due_jobs of `moonpool test`: the jobs that are due as the time of fake.time passes.
local code = require "spec.helpers.code"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local scripts = {
  ["jobs/nightly.lua"] = [[return job { "At three.", every = "0 3 * * 1-5", zone = "Europe/Berlin", jitter = 30,
    function() store.set("cleaned", time.now()) end }]],
  ["jobs/monthly.lua"] = [[return job { "Each month.", every = "30 6 1 * *", function() return "monthly" end }]],
  ["jobs/often.lua"] = [[return job { "Often.", every = 5 * minutes, function() return nil, "the disk is full" end }]],
  ["jobs/off.lua"] = [[return job { "Never.", every = 1, enabled = false, function() end }]],
}

-- Runs `body` as one spec: returns the exit code and the output.
local function run(body)
  local all = { ["jobs/jobs_spec.lua"] = 'it("works", function()\n' .. body .. "\nend)" }
  for path, text in pairs(scripts) do all[path] = text end
  local dir = gateway.prepare { scripts = all }
  local status, out, err = gateway.exec({ "test" }, { cwd = dir })
  os.execute("rm -rf '" .. dir .. "'")
  return status, out .. err
end

local function passes(body)
  local status, told = run(body)
  assert.equal(0, status, told)
end

describe("jobs in moonpool test", function()
  it("are due at their time of day, in their zone", function()
    passes [[
      fake.time(time.parse "2026-03-27T00:00:00Z")                 -- a Friday
      store.set("seen", true)
      assert.same({}, due_jobs())
      sleep(1 * hours + 59 * minutes)
      run_due_jobs()
      assert.same({}, due_jobs())
      sleep(1 * minutes)                                          -- 03:00 in Berlin
      assert.same({ "nightly" }, due_jobs())
      sleep(2 * minutes)
      assert.same({ "nightly" }, due_jobs())
      assert.same({ { name = "nightly", done = true } }, run_due_jobs())
      assert.equal(time.now(), store.get "cleaned")
      assert.same({}, due_jobs())
      fake.time(time.parse "2026-03-29T12:00:00Z")                 -- the weekend, on which clocks are put forward
      assert.same({ "often" }, due_jobs())
      fake.time(time.parse "2026-03-30T00:59:59Z")
      assert.same({ "often" }, due_jobs())
      fake.time(time.parse "2026-03-30T01:00:00Z")                 -- 03:00 in Berlin's summer
      assert.same({ "nightly", "often" }, due_jobs())]]
  end)

  it("are due by their interval, and once however much time has passed", function()
    passes [[
      fake.time(time.parse "2026-01-03T12:00:00Z")
      assert.same({}, run_due_jobs())
      sleep(299)
      assert.same({}, due_jobs())
      sleep(1)
      assert.same({ "often" }, due_jobs())
      assert.same({ { name = "often", why = "the disk is full" } }, run_due_jobs())
      assert.same({}, run_due_jobs())
      sleep(1 * hours)
      assert.equal(1, #run_due_jobs())
      assert.same({}, due_jobs())]]
  end)

  it("are due in the minute that is set, and a month later", function()
    passes [[
      fake.time(time.parse "2026-02-01T06:30:10Z")
      assert.same({ { name = "monthly", done = true, value = "monthly" } }, run_due_jobs())
      sleep(20)
      assert.same({}, due_jobs())
      fake.time(time.parse "2026-03-31T06:00:00Z")
      local names = due_jobs()
      assert.contains("monthly", table.concat(names, " "))]]
  end)

  it("begin anew when time goes back, and in the next it", function()
    passes [[
      fake.time(1000000)
      sleep(300)
      assert.same({ "often" }, due_jobs())
      fake.time(500000)
      assert.same({}, due_jobs())]]
  end)

  it("need a fake time", function()
    local status, told = run "due_jobs()"
    assert.equal(1, status)
    assert.truthy(told:find("due_jobs needs a time", 1, true), told)
    assert.truthy(told:find("jobs_spec.lua:2", 1, true), told)
  end)

  it("begin by themselves neither there nor in moonpool call, but where the gateway serves", function()
    local counted = {
      ["jobs/often.lua"] = 'return job { "Often.", every = 0.1, function() store.incr "runs" end }',
      ["tools/runs.lua"] = [[return tool { "Counts runs for a second.", input = { wait = t.optional(t.number) }, function(args)
        sleep(args.wait or 1) return tostring(store.get "runs" or 0) end }]],
      ["jobs/often_spec.lua"] = 'it("counts", function() sleep(1) assert.is_nil(store.get "runs") end)',
    }
    local dir = gateway.prepare { scripts = counted }
    local status, out, err = gateway.exec({ "test" }, { cwd = dir })
    assert.equal(0, status, out .. err)
    status, out, err = gateway.exec({ "call", "runs" }, { cwd = dir })
    os.execute("rm -rf '" .. dir .. "'")
    assert.equal(0, status, out .. err)
    assert.equal("0", (out:gsub("%s+$", "")))
    counted["jobs/often_spec.lua"] = nil
    local g <close> = code.start { scripts = counted }
    local me <close> = g:client "2026-07-28"
    wait.for_fact("the job to run", 10, function() return code.run(me, "return store.get 'runs'") end)
  end)
end)
