-- POST /api/profile of the admin listener, and `moonpool profile`: what a profile looks at, what allocates, limits while
-- it runs, and how it ends.
local cjson = require "cjson.safe"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local profile = require "spec.helpers.profile"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local start, token = profile.start, profile.token

describe("a profile", function()
  it("walks 64 frames at most, from the innermost one", function()
    local g <close> = start { workers = 1 }
    local me <close> = g:client "2026-07-28"
    local run <close> = profile.begin(g, token, { seconds = 300, hz = 997 })
    run:gather(100, function() me:call("tools/call", { name = "deep", arguments = { n = 2000000 } }) end)
    local deepest = 0
    for _, stack in ipairs((run:stacks())) do deepest = math.max(deepest, #stack.frames) end
    assert.equal(66, deepest) -- 64 frames, and one each for the phase and the call
  end)

  it("samples only what its pattern of tools admits", function()
    local g <close> = start { workers = 1 }
    local me <close> = g:client "2026-07-28"
    local run <close> = profile.begin(g, token, { seconds = 300, hz = 997, tool = "ho*" })
    run:gather(100, function()
      me:call("tools/call", { name = "native", arguments = { n = 1 } })
      me:call("tools/call", { name = "hot", arguments = { n = 2000000 } })
    end)
    local stacks = run:stacks()
    assert.equal(1, profile.part(stacks, profile.has "^tools/call hot$"))
  end)

  it("samples memory by the bytes that lines allocate", function()
    local g <close> = start { workers = 1 }
    local me <close> = g:client "2026-07-28"
    local run <close> = profile.begin(g, token, { seconds = 300, memory = true })
    assert.equal("512 KiB", run.began.unit)
    run:gather(600, function() me:call("tools/call", { name = "allocates", arguments = { n = 1000 } }) end)
    local stacks = run:stacks()
    local of = profile.has "^tools/call allocates$"
    profile.near(0.75, profile.part(stacks, profile.ends "/allocates%.lua:3$", of), 5)
    profile.near(0.25, profile.part(stacks, profile.ends "/allocates%.lua:4$", of), 5)
    me:call("tools/call", { name = "allocates", arguments = { n = 1000 } })
    assert.equal(0, g:status().gauges.profiles)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("leaves the limits of calls as they are", function()
    -- so the signal of a sample that waits swallows the clock's
    if os.getenv "TSAN_OPTIONS" then return pending "ThreadSanitizer keeps one signal of a number for each thread" end
    local g <close> = start { workers = 1, limits = { call = { cpu = "300ms", time = "5m" } } }
    local me <close> = g:client "2026-07-28"
    local run <close> = profile.begin(g, token, { seconds = 300, hz = 997 })
    for _ = 1, 3 do
      for _, name in ipairs { "endless", "stubborn" } do
        local answer = me:call("tools/call", { name = name, arguments = {} })
        assert.is_not_nil(answer.error, cjson.encode(answer))
      end
      local held = me:open("tools/call", { name = "endless", arguments = {} })
      assert.is_not_nil(me:call("tools/call", { name = "hot", arguments = { n = 1 } }).result)
      assert.is_not_nil(held:answer().error)
    end
    local stacks = run:stacks()
    assert.is_true(profile.part(stacks, profile.has "/endless%.lua:1$") > 0.3, cjson.encode(stacks))
    assert.is_true(profile.part(stacks, profile.has "/stubborn%.lua:2$") > 0, cjson.encode(stacks))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("counts what finds no place, and goes on", function()
    local lines = {}
    for i = 1, 3000 do lines[i] = ("f[%d] = function(text) local long = text:rep(550) return #long end"):format(i) end
    local many = "local f = {}\n" .. table.concat(lines, "\n") .. [[

return tool { "Has many lines that allocate.", function() local text = ("x"):rep(1000) for i = 1, #f do f[i](text) end return 1 end }]]
    local g <close> = start({ workers = 1 }, { constants = { profile_bytes = 256 << 10 }, scripts = { ["tools/many.lua"] = many } })
    local me <close> = g:client "2026-07-28"
    local run <close> = profile.begin(g, token, { seconds = 300, memory = true })
    run:gather(1000, function() me:call("tools/call", { name = "many", arguments = {} }) end)
    local _, ended = run:stacks()
    assert.is_true(ended.samples >= 1000 and ended.lost >= 1500, cjson.encode(ended))
    assert.equal(ended.samples, g:status().counters.profile_samples.taken)
    assert.equal(ended.lost, g:status().counters.profile_samples.lost)
  end)

  it("goes on through a reload, in the new scripts", function()
    local g <close> = start { workers = 2 }
    local me <close> = g:client "2026-07-28"
    local run <close> = profile.begin(g, token, { seconds = 300, hz = 997, memory = false })
    local file = assert(io.open(g.dir .. "/scripts/tools/late.lua", "w"))
    file:write 'return tool { "Is new.", input = { n = t.integer }, function(args) local x = 0\nfor i = 1, args.n do x = x + i end return x end }'
    file:close()
    assert.equal(200, g:admin("/reload", "POST").status)
    run:gather(100, function() me:call("tools/call", { name = "late", arguments = { n = 2000000 } }) end)
    assert.is_true(profile.part((run:stacks()), profile.ends "/late%.lua:2$") > 0.5)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("ends when its time is over, with its reader, and with the gateway", function()
    local g <close> = start({ workers = 2, log = { audit = "audit.log" } })
    local run <close> = profile.begin(g, token, { seconds = 1, worker = 1 })
    assert.equal(1, run.began.workers)
    local _, ended = run:read()
    assert.equal("its time is over", ended.why)
    local left <close> = profile.begin(g, token, { seconds = 300 })
    assert.equal(409, profile.post(g, "/api/profile", token, { seconds = 1 }).status)
    assert.equal(1, g:status().gauges.profiles)
    left.reader:reset()
    g:wait_status(function(now) return now.gauges.profiles == 0 end)
    assert.equal(404, profile.post(g, "/api/profile/end", token).status)
    local file <close> = assert(io.open(g.dir .. "/audit.log"))
    wait.for_fact("the lines of the audit", 20, function()
      file:seek "set"
      return file:read "a":find '"event":"profile requested".*"event":"profile requested"'
    end)
    file:seek "set"
    assert.matches('"event":"profile requested"[^\n]*"caller":"token joe"[^\n]*"why":"time for 1 s"', (file:read "a"))
    assert.has_nothing_left(g)
    local last <close> = profile.begin(g, token, { seconds = 300, memory = true })
    local me <close> = g:client "2026-07-28"
    me:call("tools/call", { name = "allocates", arguments = { n = 1000 } })
    me:close()
    g:signal "sigterm"
    local stacks
    stacks, ended = last:read()
    assert.equal("the gateway stops", ended.why)
    assert.is_true(#stacks > 0)
    assert.equal(0, g:wait_exit(20))
  end)

  it("refuses what makes no sense, and a caller without the role", function()
    local g <close> = start()
    for body, why in pairs {
      ['{"seconds":0}'] = "1 to 300", ['{"seconds":301}'] = "1 to 300", ['{"seconds":"1"}'] = "1 to 300",
      ['{"hz":0}'] = "1 to 1000", ['{"hz":1001}'] = "1 to 1000",
      ['{"worker":64}'] = "no such worker", ['{"worker":-1}'] = "from 0", ['{"memory":1}'] = "true or false", ['{"tool":""}'] = "a pattern",
      ['{"tool":"' .. ("x"):rep(256) .. '"}'] = "a pattern", ['{"tool":"\\u0000"}'] = "a pattern", ['{"toll":"x"}'] = "the members are",
      ["[]"] = "send an object", ["{"] = "send an object",
    } do
      local answer = client.request(g, { method = "POST", path = "/api/profile", body = body,
        headers = { Authorization = "Bearer " .. token, ["moonpool-admin"] = "1", ["Content-Type"] = "application/json" } }, { admin = true })
      assert.equal(400, answer.status, body)
      assert.truthy(answer.body:find(why, 1, true), body .. ": " .. answer.body)
    end
    for _, path in ipairs { "/api/profile", "/api/profile/end" } do
      assert.equal(403, profile.post(g, path, ("v"):rep(32)).status)
      assert.equal(401, client.request(g, { method = "POST", path = path }, { admin = true }).status)
      assert.equal(405, client.request(g, { path = path, headers = { Authorization = "Bearer " .. token } }, { admin = true }).status)
    end
    assert.equal(0, g:status().gauges.profiles)
  end)
end)

describe("moonpool profile", function()
  local env = { MOONPOOL_ADMIN_TOKEN = token }
  local folder

  before_each(function() folder = gateway.new_folder() end)
  after_each(function() os.execute("rm -r " .. folder) end)

  local function file(name)
    local found <close> = assert(io.open(folder .. "/" .. name))
    return found:read "a"
  end

  local function run(g, ...) return gateway.exec({ "profile", "--admin", "127.0.0.1:" .. g.admin_port, ... }, { env = env }) end

  -- Runs the command in `folder` while calls of `name` run, until it has ended.
  local function run_beside(g, name, ...)
    local me <close> = g:client "2026-07-28"
    local process = gateway.spawn(uv.fs_realpath(gateway.binary), { "profile", "--admin", "127.0.0.1:" .. g.admin_port, ... }, folder,
      { env = env, cwd = folder })
    g:wait_status(function(now) return now.gauges.profiles == 1 end)
    repeat me:call("tools/call", { name = name, arguments = { n = name == "hot" and 100000 or 500 } })
    until g:status().gauges.profiles == 0
    wait.for_fact("the command to end", 20, function() return process.code end)
    assert.equal(0, process.code, file "stderr")
  end

  it("prints the parts of phases and lines", function()
    local g <close> = start { workers = 1 }
    run_beside(g, "hot", "--for", "1s")
    local out, notes = file "stdout", file "stderr"
    assert.matches("^phases\n.*handler\n.*lines\n +%d+%.%d %%  [^\n]*/hot%.lua:3\n", out)
    assert.matches("profile of time for 1 s, of 1 worker", notes)
    assert.matches("its time is over: all calls, %d+%.%d s, %d+ samples", notes)
  end)

  it("writes a flame graph, folded stacks and JSON", function()
    local g <close> = start { workers = 1 }
    run_beside(g, "hot", "--for", "1s", "--tool", "hot", "--out", "time.svg")
    local svg = file "time.svg"
    assert.matches("^<svg ", svg)
    assert.truthy(svg:find("/hot.lua:3: ", 1, true), svg)
    for _, word in ipairs { "<script", " on%a+=", "href", "url%(", "@import" } do assert.is_nil(svg:find(word), word) end
    run_beside(g, "hot", "--for", "1s", "--out", "time.folded")
    assert.matches("handler;tools/call hot;[^\n]*/hot%.lua:3 %d+\n", file "time.folded")
    run_beside(g, "allocates", "--for", "1s", "--memory", "--out", "memory.json")
    local memory = cjson.decode(file "memory.json")
    assert.equal("512 KiB", memory.unit)
    assert.equal("handler", memory.stacks[1].frames[1])
    assert.is_true(memory.samples > 0)
  end)

  it("refuses options that make no sense, and says what the gateway refuses", function()
    local g <close> = start()
    for _, options in ipairs { { "--for", "6m" }, { "--for", "x" }, { "--hz", "1001" }, { "--worker", "-1" }, { "--out", "x.png" } } do
      local code, _, why = run(g, table.unpack(options))
      assert.equal(2, code, table.concat(options, " ") .. why)
    end
    local code, _, why = run(g, "--worker", "64")
    assert.equal(1, code)
    assert.matches("there is no such worker", why)
    local held <close> = profile.begin(g, token, { seconds = 300 })
    assert.matches("another profile runs", select(3, run(g)))
    held:stacks()
  end)

  it("draws hostile names as text", function()
    local flame = [[
package.path = "lua/?.lua;lua/?/init.lua"
local flame = dofile "lua/moonpool/workbench/format/flame.lua"
io.write(flame({ { frames = { "handler", "tools/call <script>\"'&", "a\n\27[1m<b>.lua:1" }, count = 3 } }, "samples", "</title><x>"))]]
    local pipe <close> = assert(io.popen("lua5.4 - <<'END'\n" .. flame .. "\nEND"))
    local svg = pipe:read "a"
    assert.truthy(svg:find("&lt;script&gt;&quot;'&amp;", 1, true), svg)
    assert.is_nil(svg:find("<script>", 1, true))
    assert.is_nil(svg:find("<x>", 1, true))
    assert.is_nil(svg:find "\27")
  end)
end)
