-- The forms of the log: logfmt, JSON, lines for journald; and the limit of lines of one event.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local upgrading = require "spec.helpers.upgrading"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/log.lua"] = [[return tool { "Logs.", input = { n = t.integer }, function(args)
    for i = 1, args.n do log.info("counted", { i = i }) end
    log.info("once", { quote = 'a "b" \\ c', line = "one\ntwo", escape = "\27[2J\1", bad = "\xff\xc3", mark = "a\u{202e}b", time = "mine",
      level = "mine", event = "mine", flag = true, n = 12, long = ("x"):rep(2000) })
    log.error "broken"
    return "done"
  end }]],
}

-- Calls the tool, waits for its last line, and for that of the main thread, which may come later; returns all lines.
local function run(g, n)
  local me <close> = g:client "2026-07-28"
  me:result("tools/call", { name = "log", arguments = { n = n } })
  wait.for_fact("the last lines", 10, function()
    local text = g:log()
    return text:find "broken[^\n]*\n" and text:find "serving[^\n]*\n"
  end)
  local lines = {}
  for line in g:log():gmatch "[^\n]+" do lines[#lines + 1] = line end
  return lines
end

local function of_event(lines, event)
  local found = {}
  for _, line in ipairs(lines) do
    local ok, object = pcall(cjson.decode, line)
    if ok and object.event == event then found[#found + 1] = object end
  end
  return found
end

describe("log.format: json", function()
  it("writes each line as one object with the same keys, whatever the values are", function()
    local g <close> = gateway.start { scripts = scripts, config = { log = { format = "json" } } }
    local lines = run(g, 1)
    for _, line in ipairs(lines) do
      local object = cjson.decode(line)
      assert.matches("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%dZ$", object.time)
      assert.truthy(({ debug = 1, info = 1, warn = 1, error = 1 })[object.level], line)
      assert.equal("string", type(object.event))
      assert.is_nil(line:find "[%c]")
    end
    local once = of_event(lines, "once")[1]
    assert.equal('a "b" \\ c', once.quote)
    assert.equal("one\ntwo", once.line)
    assert.equal("\27[2J\1", once.escape)
    assert.equal("\u{fffd}\u{fffd}", once.bad)
    assert.equal("a\u{fffd}b", once.mark)
    assert.same({ "mine", "mine", "mine" }, { once.time_, once.level_, once.event_ })
    assert.equal("true", once.flag)
    assert.equal(12, once.n)
    assert.equal(512 + 3, #once.long)
    assert.equal("error", of_event(lines, "broken")[1].level)
    assert.equal(2, of_event(lines, "serving")[1].workers)
  end)

  it("is taken by a reload", function()
    local g <close> = gateway.start { config = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n" }
    local file = assert(io.open(g.dir .. "/moonpool.yaml", "w"))
    file:write "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nlog: {format: json}\n"
    file:close()
    wait.for_fact("a line in JSON", 20, function() return g:log():find('"event":"reloaded"', 1, true) end)
  end)
end)

describe("lines that repeat", function()
  it("are limited for one event in a second, the others counted, and other events left alone", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1, config = { log = { format = "json" } }, constants = { log_repeat = 5 } }
    local lines = run(g, 200)
    local counted = of_event(lines, "counted")
    -- 5 lines for each second that the loop of the script took
    assert.truthy(#counted >= 5 and #counted < 200, #counted)
    assert.equal(1, #of_event(lines, "once"))
    assert.equal(1, #of_event(lines, "broken"))
    local function told()
      local sum = 0
      for _, object in ipairs(of_event(run(g, 1), "counted")) do sum = sum + 1 + (object.suppressed or 0) end
      return sum
    end
    local calls = 0
    wait.for_fact("a later line that has the number of those left out", 10, function()
      calls = calls + 1
      local sum = told()
      return sum >= 200 and sum <= 200 + calls
    end)
    assert.truthy(g:status().counters.dropped.repeated >= 200 - #counted)
  end)

  it("are at least ten for an error", function()
    local g <close> = gateway.start {
      workers = 1, constants = { log_repeat = 1 },
      scripts = { ["tools/fail.lua"] = [[return tool { "Logs errors.", function() for _ = 1, 10 do log.error "wrong" end return "x" end }]] },
    }
    local me <close> = g:client "2026-07-28"
    me:result("tools/call", { name = "fail" })
    wait.for_fact("ten lines", 10, function() return select(2, g:log():gsub("error wrong", "")) == 10 end)
  end)
end)

describe("a log that journald reads", function()
  it("has priorities and no time of its own; elsewhere the variable changes nothing", function()
    for _, case in ipairs { { inode = 0, is_journal = true }, { inode = 1, is_journal = false } } do
      local dir = gateway.prepare { scripts = scripts }
      local file = assert(io.open(dir .. "/stderr", "a"))
      file:close()
      local stat = uv.fs_stat(dir .. "/stderr")
      local g <close> = gateway.start { dir = dir, env = { JOURNAL_STREAM = ("%d:%d"):format(stat.dev, stat.ino + case.inode) } }
      for _, line in ipairs(run(g, 1)) do
        assert.equal(case.is_journal, line:match "^<[3467]>%l" ~= nil, line)
        assert.equal(not case.is_journal, line:match "^%d%d%d%d%-" ~= nil, line)
      end
    end
  end)

  it("has the same form after an upgrade", function()
    local options = upgrading.prepare {}
    local file = assert(io.open(options.dir .. "/stderr", "a"))
    file:close()
    local stat = uv.fs_stat(options.dir .. "/stderr")
    options.env = { JOURNAL_STREAM = ("%d:%d"):format(stat.dev, stat.ino) }
    local g <close> = upgrading.of(gateway.start(options), options.binary)
    g:must_upgrade()
    local line = "\n<6>upgraded pid=" .. g.pid .. " "
    wait.for_fact(function() return "the line of the upgrade; the log is\n" .. g:log() end, 20, function() return g:log():find(line, 1, true) end)
  end)
end)
