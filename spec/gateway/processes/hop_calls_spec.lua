-- Calls over a hop: questions, cancels, resumed streams, clients that leave, processes that die, readers that are slow.
local processes = require "spec.helpers.processes"
local http2 = require "spec.helpers.http2"
local resume = require "spec.helpers.resume"
local task_client = require "spec.helpers.task_client"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"
require "spec.helpers.asserts"

local two, opens, move, text = processes.two, processes.opens, processes.move, processes.text
local STATEFUL <const> = "2025-11-25"
local BOUND <const> = 10 * wait.slower -- seconds

local scripts = {
  ["tools/ask.lua"] = [[return tool { "Asks.", function(_, call)
    local yes, why = call:elicit("sure", "Sure?", { name = t.string })
    return yes and yes.name or why
  end }]],
  ["tools/stay.lua"] = [[return tool { "Stays.", function(_, call)
    local cleaned <close> = setmetatable({}, { __close = function() log.info "stay ended" end })
    call:progress(1)
    sleep(60)
  end }]],
  ["tools/large.lua"] = [[return tool { "Large.", input = { size = t.integer }, function(args) return ("x"):rep(args.size) end }]],
  ["tools/flood.lua"] = [[local much = ("x"):rep(8000)
return tool { "Reports much, for ever.", function(_, call)
  for i = 1, math.huge do
    call:progress(i, nil, much)
    sleep(0.002)
  end
end }]],
  ["tools/steps.lua"] = resume.scripts["tools/steps.lua"],
  ["tools/slow.lua"] = [[return tool { "Slow.", task = "optional", function(_, call)
    call:status "at work"
    sleep(60)
  end }]],
  ["tools/name.lua"] = [[return tool { "Asks, as a task.", task = "optional", function(_, call)
    local said, whys = call:ask { name = ask.elicit("Name?", { name = t.string }) }
    return try(said.name, whys.name).name
  end }]],
}

local function pair(revision, options, config, constants)
  return two { scripts = scripts, config = config, constants = constants, before = opens(revision, options) }
end

local function stay(c) return c:open("tools/call", { name = "stay", _meta = { progressToken = "p" } }) end

describe("over a hop", function()
  it("a question is asked and its answer delivered", function()
    for _, revision in ipairs { "2025-06-18", STATEFUL } do
      local _ <close>, _, new, c = pair(revision, { capabilities = { elicitation = {} } })
      local stream = move(c, new):open("tools/call", { name = "ask" })
      local question = stream:wait_event("elicitation/create").json
      assert.equal(202, c:post({ jsonrpc = "2.0", id = question.id, result = { action = "accept", content = { name = "Ann" } } }).status)
      assert.equal("Ann", stream:answer().result.content[1].text)
      c:close()
    end
  end)

  it("a cancelled call ends, wherever the notification arrives", function()
    local _ <close>, old, new, c = pair(STATEFUL)
    for _, at in ipairs { { new, new }, { old, new }, { new, old } } do
      local stream = stay(move(c, at[1]))
      stream:wait "notifications/progress"
      assert.equal(202, move(c, at[2]):notify("notifications/cancelled", { requestId = stream.id }).status)
      old:wait_status(function(status) return status.gauges.requests_in_flight == 0 end, BOUND)
    end
    c:close()
    new:wait_status(function(status) return status.gauges.hops == 0 end, BOUND)
  end)

  it("a client that leaves ends its call, before the first byte and within a stream", function()
    local _ <close>, old, new = two { scripts = scripts }
    local function in_flight(count) new:wait_status(function(status) return status.gauges.requests_in_flight == count end, BOUND) end
    for _, token in ipairs { "p", false } do
      local soonest = math.huge
      for _ = 1, 10 do
        local c <close> = old:client "2026-07-28"
        local stream = c:open("tools/call", { name = "stay", _meta = { progressToken = token or nil } })
        if token then stream:wait "notifications/progress" end
        in_flight(1)
        stream:hang_up()
        soonest = math.min(soonest, (wait.timed(in_flight, 0)))
        old:wait_status(function(status) return status.gauges.hops == 0 end, BOUND)
        if soonest < 1 then break end
      end
      assert.is_true(soonest < 1 * wait.slower, soonest)
    end
  end)

  it("a stream is resumed where it was left", function()
    local _ <close>, old, new, c = pair(STATEFUL)
    for _, at in ipairs { { new, new }, { old, new }, { new, old } } do
      local stream = resume.steps(move(c, at[1]), 12, 5)
      local last = stream:wait_event(resume.step(4)).id
      stream:hang_up()
      local rest = resume.after(move(c, at[2]), last)
      assert.same({ 5, 6, 7, 8, 9, 10, 11, 12, "counted to 12" }, resume.words(resume.all(rest)))
      rest:close()
    end
    c:close()
  end)

  it("a task is read, answered and cancelled in the process that runs it, whose number is in its id", function()
    local p <close>, old, new, c = pair("2026-07-28", { capabilities = task_client.CAN })
    local function both(g)
      local asks = task_client.result(g, c, "tools/call", { name = "name" }).taskId
      return asks, task_client.result(g, c, "tools/call", { name = "slow" }).taskId
    end
    local asks, slow = both(old) -- both tasks run in the new process, which is the newest one
    assert.equal(2, new:status().gauges.jobs)
    for round, at in ipairs { old, new } do
      local other = at == old and new or old
      task_client.wait(at, c, asks, "input_required")
      task_client.result(other, c, "tasks/update", { taskId = asks, inputResponses = { name = { action = "accept", content = { name = "Ann" } } } })
      assert.equal("Ann", task_client.wait(at, c, asks, "completed").result.content[1].text)
      task_client.result(at, c, "tasks/cancel", { taskId = slow })
      task_client.wait(other, c, slow, "cancelled")
      if round == 1 then
        p:is_newest(old)
        asks, slow = both(new)
        assert.equal(2, old:status().gauges.jobs)
        p:is_newest(new)
      end
    end
    c:close()
  end)

  it("answers of any size arrive whole", function()
    -- In this revision an answer that takes long does not become an event stream, to which limits.stream_queue would
    -- apply.
    local _ <close>, _, new, c = pair("2025-06-18", nil, { limits = { call = { output = "8MiB" } } })
    move(c, new)
    for _, size in ipairs { 1, 4000, 65000, 66000, 1 << 20, 6 << 20 } do
      assert.equal(size, #text(c, "large", { size = size }))
    end
    c:close()
  end)

  it("bodies of any size arrive whole", function()
    local _ <close>, _, new, c = pair(STATEFUL)
    move(c, new)
    for _, size in ipairs { 70000, 1 << 20, 3 << 20 } do
      local answer = c:call("tools/call", { name = "place", arguments = {}, _meta = { filler = ("y"):rep(size) } })
      assert.equal("old", answer.result.content[1].text)
    end
    c:close()
  end)

  it("a client of HTTP/2 is served as one of HTTP/1.1", function()
    local _ <close>, _, new, c = two { scripts = scripts, config = http2.config(), before = opens(STATEFUL) }
    local peer <close> = http2.connect(new, { settings = { [http2.INITIAL_WINDOW_SIZE] = 1 << 20 } })
    peer:send(http2.window(0, 1 << 20))
    local headers = { ["mcp-session-id"] = c.session, ["mcp-protocol-version"] = STATEFUL }
    for round = 1, 3 do
      local answer = peer:call(wire.message(round, "tools/call", { name = "place", arguments = {} }), headers)
      assert.equal(200, answer.status)
      assert.truthy(answer.data:find('"old"', 1, true), answer.data)
    end
    local id = peer:post(wire.message(9, "tools/call", { name = "steps", arguments = { n = 3 }, _meta = { progressToken = "p" } }), headers)
    local answer = peer:answer(id)
    assert.truthy(answer.data:find("counted to 3", 1, true), answer.data)
    local large = peer:call(wire.message(10, "tools/call", { name = "large", arguments = { size = 300000 } }), headers)
    assert.is_true(#large.data > 300000)
    c:close()
  end)

  it("event streams count for the limit of their HTTP/2 connection", function()
    local _ <close>, old, new, c = two { scripts = scripts, config = http2.config(), before = opens(STATEFUL) }
    local peer <close> = http2.connect(new)
    local headers = { ["mcp-session-id"] = c.session, ["mcp-protocol-version"] = STATEFUL }
    local function open(id) return peer:post(wire.message(id, "tools/call", { name = "stay", _meta = { progressToken = id } }), headers) end
    for id = 1, 50 do
      local stream = open(id)
      peer:wait("stream " .. stream, function(self) return self.streams[stream] and #self.streams[stream].events > 0 end, BOUND)
    end
    old:wait_status(function(status) return status.gauges.requests_in_flight == 50 end, BOUND)
    local refused = peer:answer(open(51))
    assert.equal(503, refused.status)
    assert.truthy(refused.data:find("too many event streams on this connection", 1, true), refused.data)
    peer:close()
    new:wait_status(function(status) return status.gauges.hops == 0 end, BOUND)
    for id = 1, 51 do c:notify("notifications/cancelled", { requestId = id }) end
    old:wait_status(function(status) return status.gauges.requests_in_flight == 0 end, BOUND)
    c:close()
  end)

  it("100 streams are open at once, each with its own events", function()
    local _ <close>, old, new, c = pair(STATEFUL)
    move(c, new)
    local streams = {}
    for i = 1, 100 do streams[i] = resume.steps(c, i % 7 + 1, 20) end
    for i = 1, 100 do assert.equal("counted to " .. (i % 7 + 1), streams[i]:answer().result.content[1].text) end
    c:close()
    new:wait_status(function(status) return status.gauges.hops == 0 end, BOUND)
    old:wait_status(function(status) return status.gauges.requests_in_flight == 0 end, BOUND)
  end)
end)

describe("a process that is killed", function()
  it("leaves an error with the id where nothing was sent yet, and a cut stream elsewhere; then its sessions are unknown", function()
    -- the processes keep connections between them for half of limits.request_time
    local config = { limits = { request_time = "4s" } }
    local p <close>, old, new, c = two { scripts = scripts, workers = 1, config = config, before = opens(STATEFUL) }
    new.baseline_fds = new.baseline_fds + 2 -- two descriptors of a pipe that libcurl makes at the first hop of a worker
    move(c, new)
    local silent = c:open("tools/call", { name = "stay" })
    local spoken = stay(c)
    spoken:wait "notifications/progress"
    old:wait_status(function(status) return status.gauges.requests_in_flight == 2 end, BOUND)
    old:kill()
    old.stopped = true
    local answer = silent.connection:read_response(BOUND)
    assert.equal(502, answer.status)
    assert.equal(silent.id, answer:json().id)
    assert.equal("the process of this session does not answer any more; the call may have run", answer:json().error.message)
    spoken.connection:wait_closed(BOUND)
    assert.is_false(pcall(spoken.answer, spoken, 1))
    local refused = c:post(c:message("ping"))
    assert.equal(503, refused.status)
    assert.equal("1", refused.headers["retry-after"])
    p:forget(old)
    assert.equal(404, c:post(c:message("ping")).status)
    c:close()
    assert.has_nothing_left(new)
  end)
end)

describe("a reader that does not read", function()
  it("ends as slow in the process that serves it, and delays nobody", function()
    local config = { heartbeat = "60s", limits = { stream_queue = "64KiB" } }
    local _ <close>, old, new, c = pair(STATEFUL, nil, config, { stall_ms = 1000 })
    move(c, new)
    local stream = c:open("tools/call", { name = "flood", _meta = { progressToken = "p" } }, { buffer = 4096 })
    stream:wait "notifications/progress"
    stream.connection:pause()
    assert.equal("old", text(c, "place"))
    old:wait_status(function(status) return status.counters.streams_ended.slow == 1 end, 30 * wait.slower)
    assert.equal("old", text(c, "place"))
    stream:hang_up()
    new:wait_status(function(status) return status.gauges.hops == 0 end, BOUND)
    c:close()
  end)
end)
