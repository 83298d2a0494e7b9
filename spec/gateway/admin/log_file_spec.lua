-- log.file and log.audit, which other programs rename: no line is lost, and none is written twice.
local cjson = require "cjson"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local token = ("o"):rep(32)
local scripts = {
  ["tools/log.lua"] = [[return tool { "Logs.", input = { from = t.integer, to = t.integer }, function(args)
    for i = args.from, args.to do log.info("counted", { i = i, text = ("x"):rep(80) }) end
    return "done"
  end }]],
}

local function read(path)
  local file = io.open(path)
  if not file then return "" end
  local text = file:read "a"
  file:close()
  return text
end

local function exists(path) return uv.fs_stat(path) ~= nil end

-- The texts of NAME and of all its renamed files, the oldest first.
local function files_of(path)
  local texts = { read(path) }
  for number = 1, 10 do
    local name = ("%s.%d"):format(path, number)
    if exists(name) then table.insert(texts, 1, read(name)) end
  end
  return texts
end

-- The values of `member` in the lines with this event, in the order of the lines. Each line must be whole; with
-- `is_written`, while the gateway writes, the end of a file may be the beginning of a line.
local function values(path, event, member, is_written)
  local found = {}
  for _, text in ipairs(files_of(path)) do
    for line in text:gmatch(is_written and "[^\n]*\n" or "[^\n]*\n?") do
      if line ~= "" then
        local object = cjson.decode(line)
        if object.event == event then found[#found + 1] = object[member] end
      end
    end
  end
  return found
end

local function start(log, more)
  local all = { scripts = scripts, workers = 1, constants = { log_repeat = 1000000 }, config = { log = { format = "json" }, limits = { call = { cpu = "30s" } },
    admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } } } }
  for name, value in pairs(log) do all.config.log[name] = value end
  for name, value in pairs(more or {}) do all[name] = value end
  return gateway.start(all)
end

local function write_lines(g, from, to, step)
  local me <close> = g:client "2026-07-28"
  for first = from, to, step or 200 do
    me:result("tools/call", { name = "log", arguments = { from = first, to = math.min(to, first + (step or 200) - 1) } })
  end
end

local function dropped(g)
  local response = client.request(g, { path = "/status", headers = { Authorization = "Bearer " .. token } }, { admin = true })
  return response:json().counters.dropped
end

-- Waits until the newest file has the line with this number.
local function await_line(path, number)
  return wait.for_fact("line " .. number, 20, function()
    local got = values(path, "counted", "i", true)
    return got[#got] == number and got
  end)
end

-- The numbers that each of two processes has written to a file, in the order of the lines, the oldest file first; each
-- line must be whole.
local function numbers_of(path)
  local numbers = { {}, {} }
  for _, text in ipairs(files_of(path)) do
    for line in text:gmatch "[^\n]*\n?" do
      local object = line ~= "" and cjson.decode(line)
      if object and object.process then table.insert(numbers[object.process], object.i) end
    end
  end
  return numbers
end

-- Runs a program that is beside the gateway's, in the folder `dir`. Returns what it printed.
local function run_driver(name, words, dir)
  local binary = uv.fs_realpath(gateway.binary):gsub("[^/]*$", name)
  local code, out, err = gateway.run_program(binary, words, { cwd = dir, seconds = 120, env = { SPEC_LIMIT_log_repeat = "1000000" } })
  assert.equal(0, code, err)
  return out
end

describe("two processes", function()
  it("write whole lines to the log and the audit, which are renamed and opened again, and to the recorded calls, each line once", function()
    local dir <const>, lines <const> = gateway.prepare {}, 12000
    assert.equal("0\n0\n", run_driver("lines_driver", { tostring(lines), "2000000" }, dir))
    local all = {}
    for i = 1, lines do all[i] = i end
    for _, name in ipairs { "out.log", "audit.jsonl", "calls.jsonl" } do
      local numbers = numbers_of(dir .. "/" .. name)
      for process = 1, 2 do
        assert.equal(lines, #numbers[process], name)
        assert.same(all, numbers[process], name)
      end
    end
    for _, name in ipairs { "out.log", "audit.jsonl" } do assert.equal(11, #files_of(dir .. "/" .. name), name) end
    assert.is_true(exists(dir .. "/calls.jsonl.1"))
  end)
end)

describe("log.file", function()
  it("gets a line of its own for each line, where another program has ended inside of one", function()
    local g <close> = start { file = "out.log" }
    write_lines(g, 1, 1)
    await_line(g.dir .. "/out.log", 1)
    local file <close> = assert(io.open(g.dir .. "/out.log", "a"))
    assert(file:write "half of a line")
    file:flush()
    write_lines(g, 2, 2)
    wait.for_fact("the next line", 20, function() return read(g.dir .. "/out.log"):find('\nhalf of a line\n{[^\n]*"i":2,[^\n]*}\n') end)
  end)

  it("gets the lines that stderr had, in a file for the user of the gateway alone", function()
    local g <close> = start { file = "out.log" }
    write_lines(g, 1, 3)
    assert.same({ 1, 2, 3 }, await_line(g.dir .. "/out.log", 3))
    assert.equal("", g:log())
    assert.equal(384, uv.fs_stat(g.dir .. "/out.log").mode & 511) -- 0600
    assert.same({ 1 }, values(g.dir .. "/out.log", "serving", "workers"))
  end)

  it("that cannot be opened stops the start, and says the key", function()
    local ok, why = pcall(start, { file = "nowhere/out.log" })
    assert.is_false(ok)
    assert.match("log.file: .*nowhere/out.log cannot be opened: No such file or directory", tostring(why))
  end)

  it("that takes nothing is counted, said on stderr, and delays no call", function()
    local g <close> = start { file = "/dev/full" }
    write_lines(g, 1, 10)
    wait.for_fact("a line on stderr", 10, function() return g:log():find "error log not written  lines=%d+ why=\"No space left on device\"" end)
    wait.for_fact("the counter", 10, function() return dropped(g).log >= 10 end)
  end)

  it("is named by `moonpool check` if its folder is missing, and so are log.audit and store.file", function()
    local dir = gateway.prepare { scripts = scripts, config = { log = { file = "no/log", audit = "none/audit.jsonl" }, store = { file = "nil/store.db" } } }
    local code, _, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
    assert.equal(0, code, err)
    for key, folder in pairs { ["log.file"] = "no", ["log.audit"] = "none", ["store.file"] = "nil" } do
      assert.match(key:gsub("%.", "%%.") .. ": the folder [^\n]*" .. folder .. " does not exist", err)
    end
    for _, folder in ipairs { "no", "none", "nil" } do uv.fs_mkdir(dir .. "/" .. folder, 448) end
    code, _, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
    assert.equal(0, code)
    assert.is_nil(err:find("does not exist", 1, true), err)
  end)
end)

describe("a file of lines", function()
  it("that another program has moved away, with its folder, is made anew once it can be", function()
    local g <close> = start({ file = "logs/out.log" }, { before = function(dir) uv.fs_mkdir(dir .. "/logs", 448) end })
    local folder = g.dir .. "/logs"
    write_lines(g, 1, 10)
    await_line(folder .. "/out.log", 10)
    assert(uv.fs_rename(folder, g.dir .. "/moved"))
    local number = 10
    local function one_more()
      number = number + 1
      write_lines(g, number, number)
    end
    wait.for_fact("a line that says so", 20, function()
      one_more()
      return read(g.dir .. "/moved/out.log"):find('"event":"log file not replaced","step":"opened"', 1, true)
    end)
    uv.fs_mkdir(folder, 448)
    wait.for_fact("a line in the new file", 20, function()
      one_more()
      return read(folder .. "/out.log"):find('"event":"counted"', 1, true)
    end)
    await_line(folder .. "/out.log", number)
    local all = values(g.dir .. "/moved/out.log", "counted", "i")
    table.move(values(folder .. "/out.log", "counted", "i"), 1, number, #all + 1, all)
    for i = 1, number do assert.equal(i, all[i]) end
    assert.equal(number, #all)
  end)

  it("that was moved away is opened again at SIGUSR1, SIGHUP and POST /api/log/reopen", function()
    local g <close> = start { file = "out.log", audit = "audit.jsonl" }
    local ways = {
      function() uv.kill(g.pid, "sigusr1") end,
      function() uv.kill(g.pid, "sighup") end,
      function()
        local response = client.request(g, { method = "POST", path = "/api/log/reopen", headers = {
          Authorization = "Bearer " .. token, ["moonpool-admin"] = "1", ["Content-Length"] = 0 } }, { admin = true })
        assert.equal(202, response.status, response.body)
      end,
    }
    for i, open in ipairs(ways) do
      for _, name in ipairs { "out.log", "audit.jsonl" } do assert(uv.fs_rename(g.dir .. "/" .. name, ("%s/%s.%d.old"):format(g.dir, name, i))) end
      open()
      wait.for_fact("both files to be there again", 20, function() return exists(g.dir .. "/out.log") and exists(g.dir .. "/audit.jsonl") end)
    end
    -- the file is there a moment before lines go to it
    local number = 0
    wait.for_fact("a line in the new file", 20, function()
      number = number + 1
      write_lines(g, number, number)
      return read(g.dir .. "/out.log"):find('"event":"counted"', 1, true)
    end)
    wait.for_fact("the line of the audit, in one of its files", 20, function()
      local audit = read(g.dir .. "/audit.jsonl")
      for i = 1, 3 do audit = audit .. read(("%s/audit.jsonl.%d.old"):format(g.dir, i)) end
      return audit:find '"event":"log reopened by operator"[^\n]*"caller":"token joe"'
    end)
  end)

  it("that is opened again while its writer opens it has the later file, and not the one that was renamed meanwhile", function()
    local dir = gateway.prepare {}
    run_driver("reopen_driver", {}, dir)
    assert.same({ 1, 2 }, values(dir .. "/out.log", "counted", "i"))
    for i = 1, 2 do assert.equal("", read(("%s/out.log.%d"):format(dir, i))) end
  end)

  it("has the last lines of a process that is ended by force, also where the thread that writes them waits for a processor", function()
    run_driver("hurried_driver", {}, (gateway.prepare {}))
  end)

  it("survives a disk that is full for a while: later lines are whole, and what was lost is counted", function()
    if os.execute "unshare -rm true 2>/dev/null" ~= true then return pending "needs namespaces of users" end
    local dir = gateway.prepare { workers = 1, scripts = scripts, config = {
      log = { format = "json", file = "disk/out.log" },
      limits = { call = { cpu = "30s" } }, admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } } } }
    uv.fs_mkdir(dir .. "/disk", 448)
    local wrapper = dir .. "/wrapper"
    local file <close> = assert(io.open(wrapper, "w"))
    local fill = "mount -t tmpfs -o size=64k none disk && head -c 20000 /dev/zero >disk/ballast"
    file:write(([[#!/bin/sh
exec unshare -rm sh -c '%s && exec "$0" "$@"' %s "$@"
]]):format(fill, uv.fs_realpath(gateway.binary)))
    file:close()
    uv.fs_chmod(wrapper, 448)
    local g <close> = gateway.with_binary(wrapper, gateway.start, { dir = dir, constants = { log_repeat = 1000000 } })
    local disk = ("/proc/%d/root%s/disk"):format(g.pid, dir)
    write_lines(g, 1, 1000, 100)
    -- a disk that is emptied before would be filled again by lines that still wait
    wait.for_fact("all lines to be written or lost", 20, function()
      local _, written = read(disk .. "/out.log"):gsub('"i":', "")
      local lost = dropped(g).log
      return lost > 0 and written + lost >= 1000
    end)
    assert(uv.fs_unlink(disk .. "/ballast"))
    local number = 1000
    wait.for_fact("a line after the disk was full", 20, function()
      number = number + 1
      write_lines(g, number, number)
      return read(disk .. "/out.log"):find(('"i":%d,'):format(number), 1, true)
    end)
    local seen, torn = {}, 0
    for line in read(disk .. "/out.log"):gmatch "[^\n]+" do
      local whole, object = pcall(cjson.decode, line)
      if not whole then torn = torn + 1 end
      if whole and object.i then
        assert.is_nil(seen[object.i])
        seen[object.i] = true
      end
    end
    assert.is_true(torn <= 10, torn)
    assert.is_true(seen[number])
  end)
end)
