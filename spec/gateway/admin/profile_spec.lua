-- lane: quiet
-- POST /api/profile of the admin listener: where the workers' time goes, within a few points.
local cjson = require "cjson.safe"
local lfs = require "lfs"
local profile = require "spec.helpers.profile"
local wait = require "spec.helpers.wait"

local start, token = profile.start, profile.token

-- Samples. Those of one call come in equal distances, so that a part is wrong by a sample or two of each call: a call must
-- be long enough for a hundred. On a busy machine one sample may stand for several, and a part of 0.7 is measured as 0.63
-- now and then.
local ENOUGH <const> = 600

describe("a profile", function()
  it("says what each line takes, within 5 points, of which call, and in which frames", function()
    local g <close> = start { workers = 1 }
    local me <close> = g:client "2026-07-28"
    local run <close> = profile.begin(g, token, { seconds = 300, hz = 997 })
    assert.equal(1, run.began.workers)
    run:gather(2 * ENOUGH, function() me:call("tools/call", { name = "hot", arguments = { n = 9000000 } }) end)
    local stacks, ended = run:stacks()
    assert.equal("an operator has ended it", ended.why)
    assert.equal(0, ended.lost)
    assert.equal(0, ended.workers_without_answer)
    local of = profile.has "^tools/call hot$"
    for line, part in pairs { [3] = 0.7, [4] = 0.2, [5] = 0.1 } do
      profile.near(part, profile.part(stacks, profile.ends("/hot%.lua:" .. line .. "$"), of), 5)
    end
    assert.is_true(profile.part(stacks, profile.phase "handler") > 0.9)
    for _, stack in ipairs(stacks) do
      assert.is_true(#stack.frames == 1 or stack.frames[2]:find "^tools/call" ~= nil, cjson.encode(stack))
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("takes as many samples as it says, for the processor time that is used, above the ticks of the kernel, too", function()
    local g <close> = start { workers = 1 }
    local me <close> = g:client "2026-07-28"
    -- The processor time of all threads, in seconds.
    local function used()
      local ns = 0
      for name in lfs.dir("/proc/" .. g.pid .. "/task") do
        local file = name:find "^%d" and io.open(("/proc/%d/task/%s/schedstat"):format(g.pid, name))
        if file then
          ns = ns + tonumber(file:read "a":match "^%d+")
          file:close()
        end
      end
      return ns / 1e9
    end
    for _, hz in ipairs { 199, 997 } do
      local run <close> = profile.begin(g, token, { seconds = 300, hz = hz })
      assert.equal(hz, run.began.hz)
      local before = used()
      repeat me:call("tools/call", { name = "hot", arguments = { n = 9000000 } }) until used() - before > 2
      local seconds = used() - before
      local stacks, ended = run:stacks()
      local rate = ended.samples / seconds
      assert.truthy(rate > 0.6 * hz and rate < 1.1 * hz, ("%d samples in %.2f s at %d"):format(ended.samples, seconds, hz))
      local of = profile.has "^tools/call hot$"
      for line, part in pairs { [3] = 0.7, [4] = 0.2, [5] = 0.1 } do
        profile.near(part, profile.part(stacks, profile.ends("/hot%.lua:" .. line .. "$"), of), 10)
      end
    end
    -- An idle worker is not woken: the loop makes no turns.
    local run <close> = profile.begin(g, token, { seconds = 300, hz = 997 })
    wait.for_fact("two seconds of the profile", 20, function()
      for _, event in ipairs(run.reader:messages()) do
        if type(event) == "table" and event.event == "progress" and event.ms and event.ms > 2000 then return true end
      end
    end)
    local _, ended = run:stacks()
    assert.truthy(ended.samples < 200, ended.samples)
  end)

  it("sees coroutines inside coroutines, with the frames around them", function()
    local g <close> = start { workers = 1 }
    local me <close> = g:client "2026-07-28"
    local run <close> = profile.begin(g, token, { seconds = 300, hz = 997 })
    run:gather(ENOUGH, function() me:call("tools/call", { name = "inner", arguments = { n = 9000000 } }) end)
    local stacks = run:stacks()
    local of = profile.has "^tools/call inner$"
    for line, part in pairs { [5] = 0.7, [7] = 0.2, [13] = 0.1 } do
      profile.near(part, profile.part(stacks, profile.ends("/inner%.lua:" .. line .. "$"), of), 10)
    end
    for _, stack in ipairs(stacks) do
      if profile.ends "/inner%.lua:5$"(stack) then
        local shown = table.concat(stack.frames, ";")
        assert.matches("^handler;tools/call inner;.*/inner%.lua:12;.*/inner%.lua:9;.*/inner%.lua:5$", shown)
      end
    end
  end)

  it("counts a long C function for the line that calls it", function()
    local g <close> = start { workers = 1 }
    local me <close> = g:client "2026-07-28"
    local run <close> = profile.begin(g, token, { seconds = 300, hz = 997 })
    run:gather(2 * ENOUGH, function() me:call("tools/call", { name = "native", arguments = { n = 13 } }) end)
    local stacks = run:stacks()
    local of = profile.has "^tools/call native$"
    profile.near(0.7, profile.part(stacks, profile.ends "/native%.lua:3$", of), 5)
    profile.near(0.3, profile.part(stacks, profile.ends "/native%.lua:4$", of), 5)
  end)

  it("says which phase the time in C belongs to", function()
    local g <close> = start { workers = 1 }
    local me <close> = g:client "2026-07-28"
    local list = {}
    for i = 1, 20000 do list[i] = { i } end
    local run <close> = profile.begin(g, token, { seconds = 300, hz = 997 })
    run:gather(150, function() me:call("tools/call", { name = "large", arguments = {} }) end)
    local stacks = run:stacks()
    assert.is_true(profile.part(stacks, profile.phase "encode") > 0.5, cjson.encode(stacks))
    local other <close> = profile.begin(g, token, { seconds = 300, hz = 997 })
    other:gather(150, function() me:call("tools/call", { name = "takes", arguments = { list = list } }) end)
    stacks = other:stacks()
    local decode, encode = profile.part(stacks, profile.phase "decode"), profile.part(stacks, profile.phase "encode")
    assert.is_true(decode > 0.2 and encode < 0.05, cjson.encode(stacks))
    assert.is_true(profile.part(stacks, profile.phase "gc") > 0, cjson.encode(stacks))
    assert.is_true(profile.part(stacks, profile.phase "validate") > 0, cjson.encode(stacks))
  end)
end)
