-- Upstreams that are programs, below lua/moonpool/upstream: channels and exchanges over stdin and stdout, on two
-- workers.
local cjson = require "cjson.safe"
local low = require "spec.helpers.upstream.low"
local process = require "spec.helpers.process"
local trusted = require "spec.helpers.trusted"
local uv = require "luv"
local wait = require "spec.helpers.wait"

-- A server whose methods are named for what they do; `echo` answers with its params' `text`. What it reads is in the
-- file `heard` if it was opened with a key, as the spec does it: the gateway reads the lists of its upstreams by a
-- process of its own.
local child = [=[
io.stdout:setvbuf "no"
local held = {}
local function answer(id, result) io.write('{"jsonrpc":"2.0","id":', id, ',"result":', result, "}\n") end
local log = { write = function() end }
for line in io.lines() do
  if line:find '"method":"initialize"' and line:find '"key"' then
    log = io.open(arg[1], "a")
    log:setvbuf "line"
    log:write("start ", io.open("/proc/self/stat"):read "n", "\n")
  end
  log:write(#line > 300 and #line .. " bytes" or line, "\n")
  local id, method = line:match '"id"%s*:%s*(%d+)', line:match '"method"%s*:%s*"([^"]*)"'
  local text = line:match '"text"%s*:%s*("[^"]*")' or "null"
  local number = math.tointeger(tonumber(line:match '"number"%s*:%s*(%d+)'))
  if method == "initialize" then
    answer(id, '{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"child","version":"1"}}')
  elseif method == "echo" then
    answer(id, text)
  elseif method == "size" then
    answer(id, #line)
  elseif method == "big" then
    answer(id, '"' .. ("b"):rep(number) .. '"')
  elseif method == "hold" then
    held[#held + 1] = id
    if number and #held == number then
      for i = #held, 1, -1 do answer(held[i], held[i]) end
    end
  elseif method == "exit" then
    io.stderr:write("EACCES /srv/x\n")
    os.exit(7)
  elseif method == "deaf" then
    os.execute "sleep 800"
  elseif method == "noise" then
    for i = 1, number do io.write(i % 4 == 0 and "\n" or i % 4 == 1 and "\27[1mbanner\27[0m\r\n" or i % 4 == 2 and '{"jsonrpc":\n' or "[1]x\n") end
    answer(id, '"quiet"')
  elseif method == "odd" then
    answer(99999, '"of nobody"')
    io.write('[{"jsonrpc":"2.0","id":', id, ',"result":"first"},{"jsonrpc":"2.0","method":"notifications/message"}]\n')
    answer(id, '"second"')
  elseif method == "progress" then
    for i = 1, number do
      io.write('{"jsonrpc":"2.0","method":"notifications/progress","params":{"meta":{"progressToken":77},"progressToken":', id, ',"progress":', i, "}}\n")
    end
    answer(id, '"done"')
  elseif method == "env" then
    local names = {}
    for name in io.open("/proc/self/environ"):read("a"):gmatch "([^=%z]+)=[^%z]*" do names[#names + 1] = name end
    table.sort(names)
    answer(id, '"' .. table.concat(names, " ") .. '"')
  elseif method == "stderr" then
    for i = 1, number do io.stderr:write("line ", i, " ", ("e"):rep(1000), "\n") end
    answer(id, '"done"')
  elseif id then
    io.write('{"jsonrpc":"2.0","id":', id, ',"error":{"code":-32601,"message":"Method not found"}}\n')
  end
end
log:write "eof\n"
]=]

-- Starts a gateway with the upstream `one` (the program above), and others in `more`.
local function start(entry, more, options)
  options = options or {}
  options.files = { ["child.lua"] = child }
  local upstreams = { one = { command = { "lua5.4", "child.lua", "heard" } } }
  for key, value in pairs(entry or {}) do upstreams.one[key] = value end
  for name, one in pairs(more or {}) do upstreams[name] = one end
  local g = low.start(upstreams, options)
  return g, low.workers(g, 2)
end

local function heard(g)
  local file <close> = io.open(g.dir .. "/heard")
  local lines = {}
  for line in file and file:lines() or function() end do lines[#lines + 1] = line end
  return lines
end

local function count(list, pattern)
  local n = 0
  for _, line in ipairs(list) do
    if line:find(pattern) then n = n + 1 end
  end
  return n
end

local function call(me, method, params, seconds)
  return trusted.run(me, ([[
    local event, failure = kept.call("one", "k", %q, { params = require "moonpool.json".decode(%q) })
    return { result = event and event.result, failure = failure }]]):format(method, cjson.encode(params or { none = 1 })), seconds)
end

local function stop(g, one, two)
  one:close()
  two:close()
  g:stop()
end

describe("an upstream over stdio", function()
  it("is one process for the tasks of all workers, which a restart follows", function()
    local g <close>, one, two = start()
    assert.equal('"a"', call(one, "echo", { text = "a" }).result)
    assert.equal('"b"', call(two, "echo", { text = "b" }).result)
    assert.equal(1, count(heard(g), "^start"))
    assert.is_true(g:status().gauges.upstream_processes >= 1)
    local failure = call(two, "exit").failure
    assert.equal("unknown", failure.outcome)
    assert.equal("closed", failure.reason)
    assert.equal("the program ended: exit 7: EACCES /srv/x", failure.why)
    g:wait_log("upstream printed to stderr", { upstream = "one", text = "EACCES /srv/x" })
    assert.equal('"c"', call(one, "echo", { text = "c" }).result)
    assert.equal(2, count(heard(g), "^start"))
    stop(g, one, two)
    assert.equal("eof", heard(g)[#heard(g)])
  end)

  it("gives each task its own answer, out of order and at once", function()
    local g <close>, one, two = start()
    call(one, "echo")
    local code = [[
      local channel = kept.open("one", "k")
      local list, good = {}, 0
      for i = 1, 20 do
        local id = channel:next_id()
        list[i] = { id = id, exchange = channel:send('{"jsonrpc":"2.0","id":' .. id .. ',"method":"hold","params":{"number":40}}', { id = id }) }
      end
      for _, it in ipairs(list) do
        local event = it.exchange:next()
        if event and event.result == tostring(it.id) then good = good + 1 end
      end
      return good]]
    local first = one:open("tools/call", trusted.code(code))
    assert.equal(20, trusted.run(two, code))
    assert.equal(20, trusted.read(first:answer()))
    stop(g, one, two)
  end)

  it("takes 50 requests of 100 KB at once, breaks between tokens, and large answers", function()
    local g <close>, one, two = start()
    call(one, "echo")
    local code = [[
      local channel = kept.open("one", "k")
      local list, good = {}, 0
      for i = 1, 50 do
        local id = channel:next_id()
        local text = '{"jsonrpc":"2.0",\n\r\n"id":' .. id .. ',"method":"size","params":{"text":"' .. ("x"):rep(100000) .. '"}}'
        list[i] = { size = #text, exchange = channel:send(text, { id = id }) }
      end
      for _, it in ipairs(list) do
        local event = it.exchange:next()
        if event and event.result == tostring(it.size) then good = good + 1 end
      end
      return good]]
    assert.equal(50, trusted.run(two, code))
    assert.equal(2000002, #call(one, "big", { number = 2000000 }).result)
    stop(g, one, two)
  end)

  it("has its noise skipped, and is ended after 200 lines of it", function()
    local g <close>, one, two = start()
    assert.equal('"quiet"', call(one, "noise", { number = 180 }).result)
    assert.equal('"quiet"', call(one, "noise", { number = 180 }).result)
    assert.equal('"first"', call(two, "odd").result)
    assert.equal('"d"', call(two, "echo", { text = "d" }).result)
    assert.is_true(g:status().counters.dropped.upstream_noise >= 270)
    assert.is_true(g:status().counters.dropped.upstream_id >= 1)
    local failure = call(one, "noise", { number = 400 }).failure
    assert.equal("unreadable", failure.reason)
    assert.equal("unknown", failure.outcome)
    assert.equal('"e"', call(two, "echo", { text = "e" }).result)
    stop(g, one, two)
  end)

  it("may print a number of them in a row", function()
    local g <close>, one, two = start(nil, nil, { constants = { upstream_noise = 20 } })
    assert.equal('"quiet"', call(one, "noise", { number = 15 }).result)
    assert.equal("unreadable", call(one, "noise", { number = 40 }).failure.reason)
    stop(g, one, two)
  end)

  it("ends for a line over limits.upstreams.answer", function()
    local g <close>, one, two = start(nil, nil, { config = { limits = { upstreams = { answer = "64KiB" } } } })
    assert.equal(60002, #call(one, "big", { number = 60000 }).result)
    local failure = call(one, "big", { number = 70000 }).failure
    assert.equal("too_large", failure.reason)
    assert.equal('"e"', call(two, "echo", { text = "e" }).result)
    stop(g, one, two)
  end)

  it("reports progress to the exchange that has the token", function()
    local g <close>, one, two = start()
    local got = trusted.run(two, [[
      local n = 0
      local event = kept.call("one", "k", "progress", { params = { number = 5 }, on_event = function(event) n = n + 1 end })
      return { n = n, result = event.result }]])
    assert.same({ n = 5, result = '"done"' }, got)
    stop(g, one, two)
  end)

  it("hears of a cancelled request by a notification, on whichever worker its task runs", function()
    local g <close>, one, two = start()
    call(one, "echo")
    for _, me in ipairs { one, two } do
      trusted.run(me, [[
        local channel = kept.open("one", "k")
        local id = channel:next_id()
        local exchange = channel:send('{"jsonrpc":"2.0","id":' .. id .. ',"method":"hold"}', { id = id })
        exchange:cancel('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":' .. id .. '}}')]])
    end
    wait.for_fact("two cancellations", 20, function() return count(heard(g), "notifications/cancelled") == 2 end)
    local lines = heard(g)
    for i, line in ipairs(lines) do
      local id = line:match '"requestId":(%d+)'
      if id then assert.is_true(count({ table.unpack(lines, 1, i - 1) }, '"id":' .. id .. ',"method":"hold"') == 1) end
    end
    assert.equal('"f"', call(two, "echo", { text = "f" }).result)
    stop(g, one, two)
  end)

  it("has what it has not been given reported as not run", function()
    local g <close>, one, two = start({ timeout = "20s" })
    call(one, "echo")
    local code = [[
      local channel = kept.open("one", "k")
      local id = channel:next_id()
      local deaf = channel:send('{"jsonrpc":"2.0","id":' .. id .. ',"method":"deaf"}', { id = id })
      local list, counts = {}, {}
      for i = 1, 40 do
        local id = channel:next_id()
        list[i] = channel:send('{"jsonrpc":"2.0","id":' .. id .. ',"method":"size","params":{"text":"' .. ("x"):rep(100000) .. '"}}', { id = id })
      end
      list[41] = deaf
      host.log.write("info", "all is sent", {})
      for i, exchange in ipairs(list) do
        local event, failure = exchange:next()
        local outcome = failure and failure.outcome or "answered"
        counts[outcome] = (counts[outcome] or 0) + 1
        if i == 40 then counts.last = outcome end
      end
      return counts]]
    local waiting = two:open("tools/call", trusted.code(code))
    g:wait_log "all is sent"
    local pid = wait.for_fact("the program to be deaf", 20, function()
      return count(heard(g), '"deaf"') == 1 and heard(g)[1]:match "start (%d+)"
    end)
    uv.kill(tonumber(pid), "sigkill")
    local counts = trusted.read(waiting:answer())
    assert.equal("not_run", counts.last)
    assert.is_nil(counts.answered)
    assert.is_true(counts.unknown >= 2 and counts.unknown <= 25, cjson.encode(counts))
    assert.equal(41, counts.unknown + counts.not_run)
    assert.equal('"g"', call(one, "echo", { text = "g" }).result)
    stop(g, one, two)
  end)

  it("is ended if it reads nothing for `timeout` while more than 1 MiB waits", function()
    local g <close>, one, two = start({ timeout = "500ms" })
    call(one, "echo")
    trusted.run(two, [[
      local channel = kept.open("one", "k")
      local id = channel:next_id()
      kept.deaf = channel:send('{"jsonrpc":"2.0","id":' .. id .. ',"method":"deaf"}', { id = id })
      for i = 1, 20 do
        local id = channel:next_id()
        kept[i] = channel:send('{"jsonrpc":"2.0","id":' .. id .. ',"method":"size","params":{"text":"' .. ("x"):rep(100000) .. '"}}', { id = id, timeout = 60 })
      end]])
    g:wait_log("upstream process ended", { upstream = "one", why = "the program ended: read nothing for 500 ms" })
    assert.equal('"h"', call(one, "echo", { text = "h" }).result)
    stop(g, one, two)
  end)

  it("says why it cannot start, and nobody else suffers", function()
    local g <close>, one, two = start(nil, { none = { command = { "no-such-program" } }, broken = { command = { "sh", "-c", "exit 3" } } })
    local code = 'local event, failure = kept.call(%q, "k", "echo") return failure'
    local failure = trusted.run(one, code:format "none")
    assert.equal("not_run", failure.outcome)
    assert.equal("refused", failure.reason)
    assert.matches("^no%-such%-program: there is no such program in PATH", failure.why)
    failure = trusted.run(one, code:format "broken")
    assert.equal("closed", failure.reason)
    assert.equal("the program ended: exit 3", failure.why)
    assert.equal('"i"', call(two, "echo", { text = "i" }).result)
    stop(g, one, two)
  end)

  it("is started at most 5 times a minute", function()
    local g <close>, one, two = start({ circuit = { failures = 100, open = "10ms..10ms" } })
    local failure
    for _ = 1, 6 do
      failure = call(one, "exit").failure
      if failure.reason ~= "closed" then break end
    end
    assert.equal("down", failure.reason)
    assert.equal("not_run", failure.outcome)
    assert.is_true(failure.retry_after > 10 and failure.retry_after <= 60)
    local starts = count(heard(g), "^start")
    -- a sixth program may have read the lists, and still runs
    assert.is_true(starts == 5 or starts == 6, starts .. " starts")
    stop(g, one, two)
  end)

  it("has its own variables only, and one that counts gateways", function()
    local g <close>, one, two = start({ process = { env = { MORE = "1" } } }, nil, { env = { TOP_SECRET = "1" } })
    local names = call(one, "env").result
    assert.is_nil(names:find "SECRET")
    assert.matches("MOONPOOL_HOPS MORE PATH", names)
    stop(g, one, two)
    local other <close>, me, you = start(nil, nil, { env = { MOONPOOL_HOPS = "1,2,3,4,5,6,7,8" } })
    local failure = call(me, "echo").failure
    assert.equal("refused", failure.reason)
    assert.matches("^8 gateways already run each other", failure.why)
    stop(other, me, you)
  end)

  it("has its stderr logged, and drained", function()
    local g <close>, one, two = start()
    assert.equal('"done"', call(one, "stderr", { number = 5000 }, 60).result)
    assert.is_true(g:status().counters.dropped.stderr > 1000)
    stop(g, one, two)
  end)

  it("ends when it is idle for idle_stop, and when its gateway is killed", function()
    local g <close>, one, two = start({ process = { idle_stop = "1s" } })
    call(one, "echo")
    wait.for_fact("the end of its stdin", 20, function() return count(heard(g), "^eof") == 1 end)
    g:wait_status(function(now) return now.gauges.upstream_processes == 0 end)
    call(two, "echo")
    local pids = process.below(g.pid)
    g:kill()
    g.stopped = true -- its exit code is not checked
    for _, pid in ipairs(pids) do
      wait.for_fact("process " .. pid .. " to be gone", 20, function() return process.is_gone(pid) end)
    end
    one:close()
    two:close()
  end)

  it("has the memory of its processes in the status", function()
    local g <close>, one, two = start()
    call(one, "echo")
    local status = g:wait_status(function(now) return now.upstreams.one.memory_bytes > 0 end, 40).upstreams.one
    assert.is_true(status.processes >= 1 and status.memory_bytes > 1e6 and status.memory_bytes < 1e8, cjson.encode(status))
    stop(g, one, two)
  end)

  it("ends above process.memory as soon as it is idle", function()
    local g <close>, one, two = start({ process = { memory = "1MiB" } })
    call(one, "echo")
    g:wait_log("upstream process ended", { upstream = "one" }, 40)
    -- the log has it before the channel is closed
    wait.for_fact("another program", 20, function() return call(two, "echo", { text = "j" }).result == '"j"' end)
    stop(g, one, two)
  end)
end)
