-- limits.call.output: a result or a message that is too large is not sent, not even in part, and the error says how
-- large it is.
local gateway = require "spec.helpers.gateway"

local wait = require "spec.helpers.wait"

local function tool(body, options)
  return "return tool { 'T.', " .. (options or "") .. " input = { n = t.integer }, function(args, call) " .. body .. " end }"
end

local scripts = {
  ["tools/text.lua"] = tool "return ('x'):rep(args.n)",
  ["tools/list.lua"] = tool "local list = {} for i = 1, args.n do list[i] = ('x'):rep(98) end return { list = list }",
  ["tools/bomb.lua"] = tool "local t = { 'x' } for i = 1, args.n do t = { t, t } end return { t = t }",
  ["tools/sends.lua"] = tool [[
    local ok, why = pcall(call.send, call, { jsonrpc = "2.0", method = "notifications/x", params = { text = ("x"):rep(args.n) } })
    return tostring(ok) .. " " .. tostring(why)]],
  ["tools/logs.lua"] = tool "local ok, why = pcall(call.log, call, 'error', ('x'):rep(args.n)) return tostring(ok) .. ' ' .. tostring(why)",
  ["tools/tells.lua"] = tool "local ok, why = pcall(call.progress, call, 1, 2, ('x'):rep(args.n)) return tostring(ok) .. ' ' .. tostring(why)",
}

local asks = [[
  local given, why = call:elicit("who", ("x"):rep(args.n), { name = t.string })
  return given and given.name or why]]

local more = {
  ["tools/data.lua"] = tool "fail_request(7, 'no', { text = ('x'):rep(args.n) })",
  ["tools/message.lua"] = tool "fail_request(7, ('x'):rep(args.n))",
  ["tools/asks.lua"] = tool(asks),
  ["tools/task.lua"] = tool("return ('x'):rep(args.n)", "task = 'required',"),
  ["tools/failing_task.lua"] = tool("fail_request(7, 'no', { text = ('x'):rep(args.n) })", "task = 'required',"),
  ["tools/asking_task.lua"] = tool(asks, "task = 'required',"),
}

-- The bytes of JSON around a text in an answer, as the error text counts them.
local function frame(me)
  local message = me:call("tools/call", { name = "text", arguments = { n = 100000 } }).error.message
  return assert(tonumber(message:match "^the result is (%d+) bytes of JSON")) - 100000
end

local function text_of(me, name, n)
  return me:result("tools/call", { name = name, arguments = { n = n } }).content[1].text
end

local config = { limits = { call = { output = "64KiB" } } }

describe("limits.call.output", function()
  it("is the most JSON that a result may be, to the byte: above it is an error that says how much it was", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1, config = config }
    for _, era in ipairs { "2024-11-05", "2025-11-25", "2026-07-28" } do
      local me = g:client(era)
      local before = g:status().counters.tool_aborted.output
      local room = 65536 - frame(me)
      assert.equal(room, #text_of(me, "text", room))
      local answer = me:call("tools/call", { name = "text", arguments = { n = room + 1 } })
      assert.equal(-32603, answer.error.code)
      assert.equal("the result is 65537 bytes of JSON, more than limits.call.output (65536): ask for less", answer.error.message)
      assert.truthy(me:call("tools/call", { name = "list", arguments = { n = 2000 } }).error.message:find "^the result is %d%d%d%d%d%d bytes")
      assert.equal(before + 3, g:status().counters.tool_aborted.output)
      if me.delete then me:delete() end
      me:close()
    end
    g:wait_log("call over its limit", { why = "the result is 65537 bytes of JSON, more than limits.call.output (65536): ask for less" })
    assert.has_nothing_left(g)
  end)

  it("ends early for tables that contain themselves many times", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1, config = config }
    local me = g:client "2026-07-28"
    assert.truthy(me:call("tools/call", { name = "bomb", arguments = { n = 16 } }).error.message:find "^the result is %d+ bytes")
    local answer = me:call("tools/call", { name = "bomb", arguments = { n = 100 } })
    assert.is_true(answer.error ~= nil or answer.result.isError) -- on a slow machine, limits.call.cpu is reached first
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is the most that a message may be: above it is an error in the script, and the call goes on", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1, config = config }
    local me = g:client "2026-07-28"
    local meta = { progressToken = 1, ["io.modelcontextprotocol/logLevel"] = "debug" }
    for _, name in ipairs { "sends", "logs", "tells" } do
      for n, ok in pairs { [60000] = true, [70000] = false } do
        local stream = me:open("tools/call", { name = name, arguments = { n = n }, _meta = meta })
        local told = stream:answer().result.content[1].text
        assert.equal(ok and 2 or 0, #stream:messages(), name)
        if ok then
          assert.truthy(told:find "^true", told)
        else
          assert.truthy(told:find "^false .*this message is %d+ bytes of JSON, more than limits.call.output %(65536%)", told)
        end
      end
    end
    assert.equal(0, g:status().counters.tool_aborted.output)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is the most that an error may be, its message and data together", function()
    local g <close> = gateway.start { scripts = more, workers = 1, config = config }
    local me = g:client "2026-07-28"
    local function answer(name, n) return me:call("tools/call", { name = name, arguments = { n = n } }).error end
    assert.equal(65520, #answer("data", 65520).data.text)
    assert.equal(65530, #answer("message", 65530).message)
    for name, n in pairs { data = 65525, message = 65535 } do
      local err = answer(name, n)
      assert.equal(-32603, err.code)
      assert.truthy(err.message:find "^the error is 6%d+ bytes of JSON, more than limits.call.output %(65536%): ask for less$", err.message)
      assert.is_nil(err.data)
    end
    assert.equal(2, g:status().counters.tool_aborted.output)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is the cap of a question to the client: a larger one is not sent", function()
    local g <close> = gateway.start { scripts = more, workers = 1, config = config }
    local able = { elicitation = { form = { [" "] = 1 } } }
    local me = g:client("2025-11-25", { capabilities = able })
    local stream = me:open("tools/call", { name = "asks", arguments = { n = 70000 } })
    assert.truthy(stream:answer().result.content[1].text:find "^internal error")
    assert.equal(0, #stream:messages())
    g:wait_log("tool failed", { name = "asks" })
    assert.truthy(g:log():find("this message is 70%d+ bytes of JSON, more than limits.call.output %(65536%)"))
    me:delete()
    me:close()
    me = g:client("2026-07-28", { capabilities = able })
    assert.truthy(me:call("tools/call", { name = "asks", arguments = { n = 70000 } }).error.message:find "^the result is 70%d+ bytes")
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is the most that a task keeps of its result, its error, and what it asks", function()
    local g <close> = gateway.start { scripts = more, workers = 1, config = config }
    local me = g:client("2026-07-28", { capabilities = {
      elicitation = { form = { [" "] = 1 } }, extensions = { ["io.modelcontextprotocol/tasks"] = { [" "] = 1 } },
    } })
    local function ended(name, n)
      local id = me:result("tools/call", { name = name, arguments = { n = n } }).taskId
      return wait.for_fact("the task to end", 20, function()
        local now = me:result("tasks/get", { taskId = id })
        return now.status ~= "working" and now
      end)
    end
    assert.equal(60000, #ended("task", 60000).result.content[1].text)
    assert.equal(60000, #ended("failing_task", 60000).error.data.text)
    for name, what in pairs { task = "the result is 70", failing_task = "the error is 70" } do
      local now = ended(name, 70000)
      assert.equal("failed", now.status)
      assert.equal(what, now.error.message:sub(1, #what))
      assert.is_nil(now.error.data)
    end
    assert.truthy(ended("asking_task", 70000).result.content[1].text:find "^internal error")
    wait.for_fact("the size of the question in the log", 20, function() return g:log():find "the question is 70%d+ bytes of JSON" end)
    assert.is_true(g:status().gauges.store_bytes < 150000)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
