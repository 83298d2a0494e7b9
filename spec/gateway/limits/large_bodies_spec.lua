-- One body of 4 MiB delays the other clients of its worker for no longer than a turn of any other work, for any
-- content: it is refused after 100,000 values, and a body with fewer values is decoded in turns.
local beat = require "spec.helpers.beat"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wire = require "spec.helpers.wire"

local SIZE = 4 * 1024 * 1024 - 1024
local scripts = {
  ["tools/echo.lua"] = 'return tool { "Echoes.", input = { text = t.string }, function(args) return args.text end }',
  ["tools/take.lua"] = 'return tool { "Takes anything.", function() return "taken" end }',
}

local function repeated(unit, size) return unit:rep(size // #unit) end

local function numbered(form, size)
  local parts, length, n = {}, 0, 0
  while length < size do
    n = n + 1
    parts[n] = form:format(n)
    length = length + #parts[n] + 1
  end
  return table.concat(parts, ",")
end

-- JSON values of `size` bytes, each as expensive as possible in its own way.
local shapes = {
  zeros = function(size) return "[" .. repeated("0,", size) .. "0]" end,
  members = function(size) return "{" .. numbered('"k%d":0', size) .. "}" end,
  objects = function(size) return "[" .. repeated('{"a":0},', size) .. "0]" end,
  empty = function(size) return "[" .. repeated("[],", size) .. "0]" end,
  nested = function(size)
    local tower = ("["):rep(100) .. ("]"):rep(100)
    return "[" .. repeated(tower .. ",", size) .. "0]"
  end,
  escapes = function(size) return '"' .. repeated("\\u00e9", size) .. '"' end,
  texts = function(size) return "[" .. repeated('"\\n",', size) .. "0]" end,
  digits = function(size) return "0." .. repeated("123456789", size) end,
  space = function(size) return "[" .. repeated(" ", size) .. "0]" end,
}

-- The bodies that have few values.
local few = { escapes = true, digits = true, space = true }

local function call_with(arguments, id)
  return ('{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    .. '"io.modelcontextprotocol/clientCapabilities":{}},"name":"take","arguments":{"x":%s}}}'):format(id or 1, arguments)
end

local mirrored = { ["MCP-Protocol-Version"] = "2026-07-28", ["Mcp-Method"] = "tools/call", ["Mcp-Name"] = "take" }

describe("the number of values", function()
  it("refuses a body with more values, before anything runs, with the id and what to do", function()
    local g <close> = gateway.start { scripts = scripts, constants = { values = 100 } }
    -- 11 values belong to the message around the arguments
    assert.equal(200, wire.post(g, call_with("[" .. ("0,"):rep(88) .. "0]"), mirrored).status)
    local response = wire.post(g, call_with("[" .. ("0,"):rep(89) .. "0]", 7), mirrored)
    assert.equal(413, response.status)
    local answer = response:json()
    assert.equal(-32600, answer.error.code)
    assert.equal(7, answer.id)
    assert.equal("more than 100 values in one body: send less at once, or many values as one text", answer.error.message)
    assert.equal(1, g:status().counters.refused.values)
    assert.equal(1, g:status().counters.calls)
    assert.has_nothing_left(g)
  end)

  it("counts the values of a whole batch together", function()
    local g <close> = gateway.start { scripts = scripts, constants = { values = 100 } }
    local session = wire.initialize(g, "2025-03-26")
    local one = '{"jsonrpc":"2.0","id":%d,"method":"ping"}'
    local function send(count)
      local list = {}
      for i = 1, count do list[i] = one:format(i) end
      return wire.post(g, "[" .. table.concat(list, ",") .. "]", { ["Mcp-Session-Id"] = session })
    end
    assert.equal(200, send(24).status)
    assert.equal(413, send(25).status)
    assert.equal(1, g:status().counters.refused.values)
  end)

  it("is counted for a batch over HTTP+SSE, and for answers of clients, too", function()
    local g <close> = gateway.start { scripts = scripts, constants = { values = 100 } }
    local many = "[" .. ("0,"):rep(100) .. "0]"
    local old <close> = g:client "2024-11-05"
    old:post { { jsonrpc = "2.0", id = 1, method = "ping", params = { a = table.pack(("0"):rep(101):byte(1, -1)) } } }
    assert.equal(1, g:status().counters.refused.values)
    local session = wire.initialize(g, "2025-03-26")
    assert.equal(413, wire.post(g, '{"jsonrpc":"2.0","id":1,"result":{"a":' .. many .. "}}", { ["Mcp-Session-Id"] = session }).status)
    assert.equal(2, g:status().counters.refused.values)
  end)

  it("holds for lines of stdio", function()
    local stdio = require "spec.helpers.stdio"
    local g <close> = stdio.start { scripts = scripts, constants = { values = 100 } }
    g:send_raw(call_with("[" .. ("0,"):rep(100) .. "0]", 7) .. "\n")
    assert.equal(-32600, g:expect(7).error.code)
  end)
end)

describe("a message that would take more memory than a call may", function()
  it("is refused before it is decoded, and says so", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1, constants = { values = 10000000 }, config = { limits = { call = { memory = "16MiB" } } } }
    for _, name in ipairs { "empty", "nested", "objects", "zeros" } do
      local answer = wire.post(g, call_with(shapes[name](SIZE)), mirrored):json()
      assert.equal(-32602, answer.error.code, name)
      assert.truthy(answer.error.message:find("^the message would take %d+ bytes of memory, more than limits%.call%.memory %(16777216%)"), name)
    end
    assert.equal(4, g:status().counters.tool_aborted.memory)
    assert.has_nothing_left(g)
  end)
end)

local TURN_MS <const> = 20 -- processor time that one turn with a body takes at most

-- Sends `body` as a call, and calls `echo` until the call is answered: returns the longest turn in ms of processor time,
-- the HTTP status of the answer, and the number of echoes before it.
local function beside(g, echo, body)
  return beat.during(g, function()
    local connection <close> = client.connect(g)
    connection:send { method = "POST", path = "/mcp", body = body, headers = {
      Accept = wire.both, ["Content-Type"] = "application/json", ["MCP-Protocol-Version"] = "2026-07-28",
      ["Mcp-Method"] = "tools/call", ["Mcp-Name"] = "take",
    } }
    local echoes, is_answered, response = 0
    repeat
      assert.equal("x", echo:result("tools/call", { name = "echo", arguments = { text = "x" } }).content[1].text)
      echoes = echoes + 1
      is_answered, response = pcall(connection.read_response, connection, 0)
    until is_answered or echoes > 50000
    assert(is_answered, response)
    return response.status, echoes
  end)
end

describe("bodies of 4 MiB, one after another,", function()
  it("are refused early where they have more values than is usual, and leave turns to others", function()
    local g <close> = beat.start { scripts = scripts }
    local echo <close> = g:client "2026-07-28"
    local refused = 0
    for name, make in pairs(shapes) do
      beat.within(TURN_MS, name, function()
        local ms, status = beside(g, echo, call_with(make(SIZE)))
        assert.equal(few[name] and 200 or 413, status, name)
        refused = refused + (few[name] and 0 or 1)
        return ms
      end)
    end
    assert.equal(refused, g:status().counters.refused.values)
  end)

  it("are decoded in turns, however many values the configuration allows", function()
    local limits = { call = { memory = "1GiB", cpu = "30s" }, lua_memory = "2GiB" }
    local g <close> = beat.start { scripts = scripts, constants = { values = 10000000 }, config = { limits = limits } }
    local echo <close> = g:client "2026-07-28"
    for name, make in pairs(shapes) do
      local _, status, echoes = beat.within(TURN_MS, name, function() return beside(g, echo, call_with(make(SIZE))) end)
      assert.equal(200, status, name)
      assert.is_true(few[name] or echoes > 5, name .. " let " .. echoes .. " calls through")
    end
  end)

  it("count on limits.call.cpu", function()
    local limits = { call = { memory = "1GiB", cpu = "20ms" }, lua_memory = "2GiB" }
    local g <close> = gateway.start { scripts = scripts, workers = 1, constants = { values = 10000000 }, config = { limits = limits } }
    local answer = wire.post(g, call_with(shapes.nested(SIZE)), mirrored):json()
    assert.equal("the call ran Lua for longer than limits.call.cpu", answer.error.message)
    assert.equal(1, g:status().counters.tool_aborted.cpu)
  end)
end)
