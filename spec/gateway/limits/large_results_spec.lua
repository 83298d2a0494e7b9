-- A large result is encoded in turns with the other calls of its worker; the time counts for its own call.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local resume = require "spec.helpers.resume"
local wire = require "spec.helpers.wire"

-- The results of the tools; each takes many turns to encode.
local TRIES <const> = 5

local makers = {
  members = 'local t = {} for i = 1, 100000 do t["name" .. i * 7919 % 200003] = i end return t',
  elements = "local t = {} for i = 1, 200000 do t[i] = i end return { list = t }",
  backwards = "local t = {} for i = 100000, 1, -1 do t[i] = i end return { list = t }",
  objects = 'local t = {} for i = 1, 30000 do t[i] = { id = i, name = "n", tags = { "a" } } end return { list = t }',
  ordered = [[
    local t, order = {}, {} for i = 1, 50000 do t["n" .. i] = i order[i] = "n" .. (50001 - i) end
    return setmetatable(t, { __order = order })]],
  text = [[return ("ä\n\"x"):rep(800000)]],
}

local scripts = { ["tools/echo.lua"] = 'return tool { "Echoes.", input = { text = t.string }, function(args) return args.text end }' }
for name, code in pairs(makers) do
  scripts["tools/" .. name .. ".lua"] = 'return tool { "Makes much.", function(_, call) ' .. code .. " end }"
end
scripts["tools/sends.lua"] = [[
return tool { "Sends much.", function(_, call)
  local list = {} for i = 1, 100000 do list[i] = { id = i } end
  return tostring(call:send { jsonrpc = "2.0", method = "notifications/x", params = { list = list } })
end }]]
scripts["tools/tells.lua"] = [[
return tool { "Tells, and gives much.", input = { mib = t.integer, after = t.number { default = 0 } }, function(args, call)
  call:progress(1)
  sleep(args.after)
  return ("x"):rep(args.mib << 20)
end }]]
scripts["tools/shouts.lua"] = [[
return tool { "Notes that are larger than limits.stream_queue.", input = { mib = t.integer }, function(args, call)
  call:progress(1, 2, ("x"):rep(args.mib << 20))
  return "done"
end }]]
scripts["tools/fails.lua"] = [[
return tool { "Fails with much data.", function(_, call)
  local list = {} for i = 1, 100000 do list[i] = { id = i } end
  fail_request(7, "no", { list = list })
end }]]
-- The same small list many times: cheap to make, expensive to encode.
scripts["tools/repeats.lua"] = [[
return tool { "Encodes for long.", input = { n = t.integer }, function(args)
  local inner, list = {}, {} for i = 1, 1000 do inner[i] = { i } end
  for i = 1, args.n do list[i] = inner end
  return list
end }]]
scripts["tools/encodes.lua"] = [[
return tool { "Encodes for long, and catches errors.", function()
  local inner, list = {}, {} for i = 1, 1000 do inner[i] = { i } end
  for i = 1, 300 do list[i] = inner end
  local text = json.encode { list }
  list[301] = print
  local ok, why = pcall(json.encode, { list })
  return #text .. " " .. tostring(why)
end }]]

local function ask(g, name, arguments)
  local connection = client.connect(g)
  connection:send {
    method = "POST", path = "/mcp",
    headers = {
      Accept = wire.both, ["Content-Type"] = "application/json", ["MCP-Protocol-Version"] = "2026-07-28",
      ["Mcp-Method"] = "tools/call", ["Mcp-Name"] = name,
    },
    body = cjson.encode(wire.message(1, "tools/call", { _meta = wire.meta(), name = name, arguments = arguments or cjson.empty_object })),
  }
  return connection
end

local limits = { call = { output = "32MiB", cpu = "30s", memory = "1GiB" }, lua_memory = "2GiB", stream_queue = "8MiB" }

local check = {
  members = function(result, body)
    for i = 1, 100000, 777 do assert.equal(i, result.structuredContent["name" .. i * 7919 % 200003]) end
    local last = ""
    for member in body:match '"structuredContent":(%b{})':gmatch '"(name%d+)"' do
      assert(last < member, member)
      last = member
    end
  end,
  ordered = function(_, body)
    local n = 50000
    for member in body:match '"structuredContent":(%b{})':gmatch '"n(%d+)"' do
      assert(tonumber(member) == n, member)
      n = n - 1
    end
    assert.equal(0, n)
  end,
  text = function(result) assert.is_true(result.content[1].text == ("ä\n\"x"):rep(800000)) end,
}
for name, count in pairs { elements = 200000, backwards = 100000, objects = 30000 } do
  check[name] = function(result)
    local list = result.structuredContent.list
    assert.equal(count, #list)
    for i = 1, #list, 777 do assert.equal(i, name == "objects" and list[i].id or list[i]) end
    assert.is_true(result.content[1].text == require "cjson".encode(result.structuredContent) or name == "objects")
  end
end

-- Turns since `before` that took more than 1 ms, and those that took more than 100 ms.
local function turns_since(g, before)
  local now, count = g:status().counters.turns, 0
  for within, n in pairs(now) do
    if within ~= "1ms" then count = count + n - before[within] end
  end
  return count, now.longer - before.longer
end

local HEARTBEAT <const> = "10m" -- an answer that takes longer would be an event stream

describe("a result that ends an event stream", function()
  for _, revision in ipairs { "2025-06-18", "2025-11-25", "2026-07-28" } do
    it("reaches a client of " .. revision .. " also if it is larger than limits.stream_queue, when that reads it", function()
      local g <close> = gateway.start { scripts = scripts, workers = 1 } -- limits.stream_queue is 1 MiB by default
      local me = g:client(revision)
      for _, mib in ipairs { 1, 6 } do
        local stream = me:open("tools/call", { name = "tells", arguments = { mib = mib }, _meta = { progressToken = "p" } })
        stream:wait("notifications/progress", 20)
        stream.connection:pause()
        g:wait_status(function(status) return status.gauges.requests_in_flight == 0 end)
        stream.connection:resume()
        assert.equal(mib << 20, #stream:answer(60).result.content[1].text)
        stream:close()
      end
      assert.equal(0, g:status().counters.dropped.slow)
      if me.delete then me:delete() end
      me:close()
      assert.has_nothing_left(g)
    end)
  end
end)

-- The client is on the worker of the call, or on another one, as the kernel picks.
for workers = 1, 2 do
  describe("with " .. workers .. " workers, a result that ends an event stream which its client has resumed", function()
    it("reaches it also if it is larger than limits.stream_queue", function()
      local g <close> = gateway.start { scripts = scripts, workers = workers }
      local me = g:client "2025-11-25"
      for _ = 1, 2 * workers do
        local first = me:open("tools/call", { name = "tells", arguments = { mib = 6, after = 1 }, _meta = { progressToken = "p" } })
        local id = first:wait_event(resume.step(1), 20).id
        first:close()
        local rest = resume.after(me, id)
        assert.equal(6 << 20, #resume.word(resume.all(rest, 60)[1] or {}))
        rest:close()
      end
      assert.equal(0, g:status().counters.dropped.slow)
      me:delete()
      me:close()
      assert.has_nothing_left(g)
    end)
  end)
end

for workers = 1, 2 do
  describe("with " .. workers .. " workers, a result over HTTP+SSE", function()
    it("reaches its client also if it is larger than limits.stream_queue, and beside others; a 16th of limits.answers may wait", function()
      -- limits.stream_queue is 1 MiB by default, limits.answers 256 MiB
      local g <close> = gateway.start { scripts = scripts, workers = workers }
      local me = g:client "2024-11-05"
      for _, mib in ipairs { 1, 6, 6 } do
        local answer = me:call("tools/call", { name = "tells", arguments = { mib = mib }, _meta = { progressToken = "p" } }, 60)
        assert.equal(mib << 20, #answer.result.content[1].text)
      end
      -- the client reads nothing until the notes of each have come after the answers of others
      local calls = {}
      me.stream:pause()
      for i, after in ipairs { 0, 0, 0.2 } do
        calls[i] = me:message("tools/call", { name = "tells", arguments = { mib = 6, after = after }, _meta = { progressToken = i } })
        assert.equal(202, me:post(calls[i]).status)
      end
      assert.equal(202, me:post(me:message("tools/call", { name = "shouts", arguments = { mib = 2 }, _meta = { progressToken = 4 } })).status)
      g:wait_status(function(status) return status.gauges.requests_in_flight == 0 end)
      me.stream:resume()
      for _, call in ipairs(calls) do assert.equal(6 << 20, #me.stream:wait_event(call.id, 60).json.result.content[1].text) end
      assert.equal(0, g:status().counters.dropped.slow)
      me.stream:pause()
      for _ = 1, 20 do
        local answered = me:post(me:message("tools/call", { name = "tells", arguments = { mib = 6 } })).status
        if answered == 404 then break end -- the stream has ended since its count was looked at, and its session with it
        assert.equal(202, answered)
        g:wait_status(function(status) return status.gauges.requests_in_flight == 0 end)
        if g:status().counters.streams_ended.slow > 0 then break end
      end
      g:wait_status(function(status) return status.counters.streams_ended.slow == 1 end)
      me:close()
      assert.has_nothing_left(g)
    end)
  end)
end

describe("a notification", function()
  for _, revision in ipairs { "2024-11-05", "2025-11-25", "2026-07-28" } do
    it("reaches a client of " .. revision .. " also if it is larger than limits.stream_queue, and the answer after it", function()
      local g <close> = gateway.start { scripts = scripts, workers = 1 }
      local me <close> = g:client(revision)
      local stream = me:open("tools/call", { name = "shouts", arguments = { mib = 5 }, _meta = { progressToken = "p" } })
      local note = stream:wait_event("notifications/progress", 60).json
      assert.equal(revision == "2024-11-05" and 0 or 5 << 20, #(note.params.message or ""))
      assert.equal("done", stream:answer(60).result.content[1].text)
    end)
  end
end)

describe("the results of a batch on an event stream", function()
  it("reach their client also if each is larger than limits.stream_queue", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1 } -- limits.stream_queue is 1 MiB by default
    local me = g:client "2025-03-26"
    local connection, calls, found = me.kept, {}, {}
    connection.events = {}
    for id = 1, 3 do
      local params <const> = { name = "tells", arguments = { mib = 2 * id }, _meta = { progressToken = "p" } }
      calls[id] = { jsonrpc = "2.0", id = id, method = "tools/call", params = params }
    end
    me:post(calls, 60)
    for _, event in ipairs(connection.events) do
      if event.json and event.json.id then found[event.json.id] = #event.json.result.content[1].text >> 20 end
    end
    assert.same({ 2, 4, 6 }, found)
    assert.equal(0, g:status().counters.dropped.slow)
    me:delete()
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a result of many values", function()
  it("is complete, and no turn of its encoding takes long", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1, config = { heartbeat = HEARTBEAT, limits = limits } }
    for name in pairs(makers) do
      local turns, took_longer
      -- a fault of the gateway makes a turn long in each try; other work of the machine does so in some
      for _ = 1, TRIES do
        local before = g:status().counters.turns
        local connection <close> = ask(g, name)
        local response = connection:read_response(60)
        local result = response:json().result
        assert.is_nil(result.isError, response.body:sub(1, 300))
        check[name](result, response.body)
        turns, took_longer = turns_since(g, before)
        assert.is_true(turns > 2, name .. " took " .. turns .. " turns")
        if took_longer <= 1 then break end
      end
      assert.is_true(took_longer <= 1, name)
    end
    assert.has_nothing_left(g)
  end)

  it("lets other calls run while it is encoded", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1, config = { heartbeat = HEARTBEAT, limits = limits } }
    local echo <close> = g:client "2026-07-28"
    local connection <close> = ask(g, "repeats", { n = 2000 })
    g:wait_status(function(status) return status.gauges.requests_in_flight > 0 end)
    local echoes = 0
    repeat
      echo:result("tools/call", { name = "echo", arguments = { text = "x" } })
      echoes = echoes + 1
    until g:status().gauges.requests_in_flight == 0
    local answer <const> = connection:read_response(60)
    assert.equal(2000, #assert(answer:json().result, answer.body).structuredContent)
    connection:close()
    -- only one or two calls would, if the result were encoded at once
    assert.is_true(echoes > 4, echoes .. " calls got through")
    echo:close()
    assert.has_nothing_left(g)
  end)

  it("costs its call processor time and memory", function()
    local g <close> = gateway.start {
      scripts = scripts, workers = 1,
      config = { heartbeat = HEARTBEAT, limits = { call = { output = "32MiB", cpu = "30ms", memory = "1GiB" }, lua_memory = "2GiB" } },
    }
    local me = g:client "2026-07-28"
    local answer = me:call("tools/call", { name = "repeats", arguments = { n = 4000 } })
    assert.truthy(cjson.encode(answer):find "limits.call.cpu")
    assert.equal(1, g:status().counters.tool_aborted.cpu)
    assert.is_nil(me:result("tools/call", { name = "repeats", arguments = { n = 3 } }).isError)
    me:close()
    assert.has_nothing_left(g)
    local small <close> = gateway.start {
      scripts = scripts, workers = 1, config = { heartbeat = HEARTBEAT, limits = { call = { output = "32MiB", cpu = "30s", memory = "4MiB" } } },
    }
    me = small:client "2026-07-28"
    answer = me:call("tools/call", { name = "repeats", arguments = { n = 3000 } })
    assert.is_nil(answer.result and answer.result.structuredContent)
    assert.truthy(cjson.encode(answer):find "memory")
    assert.is_nil(me:result("tools/call", { name = "repeats", arguments = { n = 3 } }).isError)
    me:close()
    assert.has_nothing_left(small)
  end)

  it("is refused where it is over limits.call.output, after turns too", function()
    local g <close> = gateway.start {
      scripts = scripts, workers = 1,
      config = { heartbeat = HEARTBEAT, limits = { call = { output = "1MiB", cpu = "30s", memory = "1GiB" }, lua_memory = "2GiB" } },
    }
    local me <close> = g:client "2026-07-28"
    for _, name in ipairs { "members", "text" } do
      local answer = me:call("tools/call", { name = name })
      assert.truthy(answer.error.message:find "^the result is %d%d%d%d%d%d%d bytes of JSON, more than limits.call.output", answer.error.message)
    end
    assert.truthy(me:call("tools/call", { name = "fails" }).error.message:find "^the error is %d+ bytes")
    local connection <close> = ask(g, "repeats", { n = 9000 })
    assert.is_true(connection:read_response(30):json().result.isError)
    connection:close()
    g:wait_log("tool failed", { name = "repeats" })
    assert.truthy(g:log():find "the returned value is not JSON: cannot encode more than 32 MiB at %[%d+%]")
    assert.equal(3, g:status().counters.tool_aborted.output)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("may be a message or the data of an error too", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1, config = { heartbeat = HEARTBEAT, limits = limits } }
    local me <close> = g:client "2026-07-28"
    local stream = me:open("tools/call", { name = "sends", arguments = cjson.empty_object })
    assert.equal("true", stream:answer().result.content[1].text)
    assert.equal(100000, #stream:messages()[1].params.list)
    assert.equal(100000, #me:call("tools/call", { name = "fails" }).error.data.list)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is encoded in turns by json.encode, which says where it was called when it fails", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1, config = { heartbeat = HEARTBEAT, limits = limits } }
    local me <close> = g:client "2026-07-28"
    local text = me:result("tools/call", { name = "encodes" }).content[1].text
    assert.truthy(text:find "^1%d+ ")
    assert.truthy(text:find "tools/encodes.lua:6: cannot encode a function at %[1%]%[301%]$" or text:find "cannot encode a function at %[1%]%[301%]$", text)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("leaves nothing behind when its client goes away meanwhile", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1, config = { heartbeat = HEARTBEAT, limits = limits } }
    for _ = 1, 2 do
      for name in pairs(makers) do
        local connection = ask(g, name)
        g:wait_status(function(status) return status.gauges.requests_in_flight > 0 end)
        connection:close()
      end
    end
    assert.has_nothing_left(g)
  end)
end)
