-- record.file: recorded calls outlive the process; a full disk costs records and no call, and nothing half-written is
-- read as whole.
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local token = ("o"):rep(32)
local scripts = {
  ["tools/echo.lua"] = 'return tool { "Echoes.", input = { text = t.string, password = t.optional(t.string) }, function(args) return args.text end }',
}

local function read(path)
  local file = io.open(path, "rb")
  local text = file and file:read "a" or ""
  if file then file:close() end
  return text
end

local function write(path, text, mode)
  local file <close> = assert(io.open(path, mode or "wb"))
  file:write(text)
end

local function start(constants)
  local more = { tools = { "*" }, file = "data/calls.jsonl" }
  return gateway.start { scripts = scripts, constants = constants, files = { ["data/.keep"] = "" },
    config = { record = more, admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } }, log = { audit = "audit.jsonl" } } }
end

local function echo(g, text)
  local peer <close> = g:client "2026-07-28"
  assert.equal(text, peer:result("tools/call", { name = "echo", arguments = { text = text, password = "MARK-secret" } }).content[1].text)
end

-- The texts of the calls that the gateway has recorded.
local function recorded(g)
  local texts, after = {}, 0
  repeat
    local body = client.request(g, { path = "/api/records?after=" .. after, headers = { Authorization = "Bearer " .. token } }, { admin = true }).body
    local facts = cjson.decode(body:match "^[^\n]*")
    for line in body:gsub("^[^\n]*\n", ""):gmatch "[^\n]+" do texts[#texts + 1] = assert(cjson.decode(line), line).arguments.text end
    after = facts.next
  until not facts.more
  return texts
end

local function wait_lines(path, n)
  wait.for_fact(n .. " lines in the file", 20, function() return select(2, read(path):gsub("\n", "")) >= n end)
end

-- Limits the size of the files that the gateway may write, as a full disk does.
local function limit(g, bytes)
  assert.equal(0, (gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--fsize=" .. bytes .. ":unlimited" })))
end

local function count_log(g, event)
  local n = 0
  for _, line in ipairs(g:log_lines()) do n = n + (line.event == event and 1 or 0) end
  return n
end

describe("record.file", function()
  it("has the recorded calls, without secrets, and gives them to the next process; moonpool replay reads it", function()
    local g = start()
    local path = g.dir .. "/data/calls.jsonl"
    for i = 1, 3 do echo(g, "text " .. i) end
    wait_lines(path, 3)
    assert.is_nil(read(path):find("MARK", 1, true))
    local _, modes = gateway.run_program("/usr/bin/stat", { "-c", "%a", path })
    assert.equal("600\n", modes)
    g:stop()
    local code, out, err = gateway.exec({ "replay", "data/calls.jsonl" }, { cwd = g.dir, seconds = 60 })
    assert.equal(0, code, out .. err)
    assert.matches("3 calls, all answered as recorded", out)
    local h <close> = gateway.start { dir = g.dir }
    assert.same({ "text 1", "text 2", "text 3" }, recorded(h))
    echo(h, "text 4")
    assert.same({ "text 1", "text 2", "text 3", "text 4" }, recorded(h))
    wait_lines(path, 4)
  end)

  it("is bounded: two files of 8 MiB, and 200 calls in memory", function()
    local constants = { record_bytes = 64 << 10, record_calls = 20 }
    local g = start(constants)
    local path = g.dir .. "/data/calls.jsonl"
    for i = 1, 150 do echo(g, i .. (" x"):rep(1000)) end
    wait.for_fact("a second file", 20, function() return read(path .. ".1") ~= "" end)
    g:stop()
    for _, name in ipairs { path, path .. ".1" } do assert.truthy(#read(name) <= (64 << 10), #read(name)) end
    assert.equal("", read(path .. ".2"))
    local h <close> = gateway.start { dir = g.dir, constants = constants }
    local texts = recorded(h)
    assert.truthy(#texts > 0 and #texts <= 20, #texts)
    assert.matches("^150 x", texts[#texts])
  end)

  it("that cannot be renamed has all calls in the file that is open, and says so once", function()
    local g <close> = start { record_bytes = 64 << 10 }
    local path = g.dir .. "/data/calls.jsonl"
    assert.equal(0, (gateway.run_program("/bin/mkdir", { "-p", path .. ".1/here" })))
    for i = 1, 60 do echo(g, i .. (" x"):rep(1000)) end
    wait_lines(path, 60)
    assert.equal("renamed", g:wait_log("record file not replaced").fields.step)
    assert.equal(1, count_log(g, "record file not replaced"))
    assert.equal(0, g:status().counters.dropped.records)
  end)

  it("never has more than 8 MiB, nor has the memory: a call that alone is larger is not recorded, and counted", function()
    local g <close> = start { record_bytes = 64 << 10, record_call = 1 << 20 }
    local path = g.dir .. "/data/calls.jsonl"
    echo(g, "small")
    echo(g, ("x"):rep(100000))
    echo(g, "after")
    wait_lines(path, 2)
    assert.truthy(#read(path) <= 64 << 10, #read(path))
    assert.same({ "small", "after" }, recorded(g))
    local status = g:status()
    assert.same({ 2, 1, 0 }, { status.counters.records.kept, status.counters.records.refused, status.counters.records.dropped })
    assert.equal(#read(path), status.gauges.record_bytes)
  end)

  it("on a full disk lacks calls, which are served, counted and logged once; what is cut is no record", function()
    local g = start()
    local path = g.dir .. "/data/calls.jsonl"
    echo(g, "whole")
    wait_lines(path, 1)
    limit(g, #read(path) + 100)                -- bytes: only a part of the next line fits into the file
    for i = 1, 20 do echo(g, "lost " .. i) end
    g:wait_status(function(status) return status.counters.dropped.records == 20 end)
    assert.equal(1, count_log(g, "records not written"))
    assert.equal("File too large", g:wait_log("records not written").fields.why)
    assert.equal(21, #recorded(g))             -- all calls are recorded whole in memory
    limit(g, "unlimited")
    echo(g, "after")
    wait.for_fact("the call after", 20, function() return read(path):find('"text":"after"', 1, true) end)
    g:stop()
    local code, out, err = gateway.exec({ "replay", "data/calls.jsonl" }, { cwd = g.dir, seconds = 60 })
    assert.matches("calls.jsonl:2: only the beginning of a record is there", err, 1, true)
    assert.matches("2 calls, 1 torn and left out", out, 1, true)
    assert.equal(0, code)
    local h <close> = gateway.start { dir = g.dir }
    assert.same({ "whole", "after" }, recorded(h))
    assert.equal(1, h:status().counters.records.torn)
  end)

  it("goes on behind a line that a killed process has left half-written, and behind lines of other programs", function()
    local g = start()
    local path = g.dir .. "/data/calls.jsonl"
    echo(g, "whole")
    wait_lines(path, 1)
    g:stop()
    local line = read(path)
    write(path, line .. "\nnonsense\n" .. '{"moonpool":"record 1","id":7\n' .. line:sub(1, -3))
    local h = gateway.start { dir = g.dir }
    assert.same({ "whole" }, recorded(h))
    echo(h, "next")
    wait.for_fact("the call after", 20, function() return read(path):find('\n{"moonpool"[^\n]*"text":"next"') end)
    h:stop()
    local i <close> = gateway.start { dir = g.dir }
    assert.same({ "whole", "next" }, recorded(i))
    assert.equal(3, i:status().counters.records.torn)
  end)

  for _, part in ipairs { 0.001, 0.05, 0.5, 0.99 } do
    it(("counts a last record of which %g are there, and replays the others"):format(part), function()
      local g = start()
      local path = g.dir .. "/data/calls.jsonl"
      echo(g, "whole")
      wait_lines(path, 1)
      g:stop()
      local line = read(path)
      write(path, line .. line:sub(1, math.max(1, #line * part // 1 | 0)))
      local code, out, err = gateway.exec({ "replay", "data/calls.jsonl" }, { cwd = g.dir, seconds = 60 })
      assert.equal(0, code, err)
      assert.matches("1 call, 1 torn and left out", out, 1, true)
      local h <close> = gateway.start { dir = g.dir }
      assert.same({ "whole" }, recorded(h))
      assert.equal(1, h:status().counters.records.torn)
    end)
  end

  it("refuses the start where it cannot be opened", function()
    local g = start()
    g:stop()
    assert(os.remove(g.dir .. "/data/calls.jsonl"))
    assert.equal(0, (gateway.run_program("/bin/mkdir", { g.dir .. "/data/calls.jsonl" })))
    local code, _, err = gateway.exec({ "run", "moonpool.yaml" }, { cwd = g.dir })
    assert.not_equal(0, code)
    assert.matches("record.file", err, 1, true)
  end)
end)
