-- Calls that hold more together than limits.lua_memory: the call that needs more is refused, and says so; calls that
-- hold little go on.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wire = require "spec.helpers.wire"

local WHY <const> = "limits.lua_memory of this worker is used up: ask for less at once, or try again later"
local CALLS <const> = 16

local scripts = {
  ["tools/echo.lua"] = 'return tool { "Echoes.", input = { text = t.string }, function(args) return args.text end }',
  -- Holds about 6 MB until the store has a value for "go".
  ["tools/hold.lua"] = [[return tool { "Holds much.", function(_, call)
    local list = {}
    for i = 1, 60 do
      list[i] = ("x"):rep(100000) .. i
      sleep(0)
    end
    log.info "holds"
    while not store.get "go" do sleep(0.01) end
    return #list .. " texts"
  end }]],
  -- Holds about 6 MB, too, in small values; its result is encoded in several turns.
  ["tools/many.lua"] = [[return tool { "Makes many values.", function()
    local list = {}
    for i = 1, 50000 do list[i] = { id = i } end
    return list
  end }]],
  ["tools/catch.lua"] = [[return tool { "Catches what it can.", function()
    local list = {}
    while true do
      pcall(function() while true do list[#list + 1] = ("x"):rep(10000) .. #list end end)
      pcall(sleep, 0)
    end
  end }]],
  ["tools/go.lua"] = 'return tool { "Lets them go.", function() store.set("go", true) return "gone" end }',
}

local function start()
  -- an answer that takes longer than `heartbeat` would be an event stream
  return gateway.start { scripts = scripts, workers = 1, config = { heartbeat = "10m", limits = {
    lua_memory = "48MiB", call = { memory = "64MiB", output = "16MiB", cpu = "60s", time = "2m" },
  } } }
end

local function ask(g, name)
  local connection = client.connect(g)
  connection:send {
    method = "POST", path = "/mcp", headers = {
      Accept = wire.both, ["Content-Type"] = "application/json", ["MCP-Protocol-Version"] = "2026-07-28",
      ["Mcp-Method"] = "tools/call", ["Mcp-Name"] = name,
    },
    body = cjson.encode(wire.message(1, "tools/call", { _meta = wire.meta(), name = name, arguments = cjson.empty_object })),
  }
  return connection
end

-- The result of the call on `connection`; nil if it was refused with the error that a full Lua state gives.
local function result_of(connection)
  local response = connection:read_response(60)
  local answer = response:json()
  connection:close()
  if answer.result then
    assert.is_nil(answer.result.isError, response.body:sub(1, 300))
    return answer.result
  end
  assert.same({ 503, WHY, -32603 }, { response.status, answer.error.message, answer.error.code })
  assert.matches("^%d+$", response.headers["retry-after"])
end

-- Asserts that each call on `connections` is answered; returns how many were refused.
local function count_refused(connections)
  local refused = 0
  for _, connection in ipairs(connections) do
    if not result_of(connection) then refused = refused + 1 end
  end
  return refused
end

describe("calls that together need more than limits.lua_memory", function()
  it("are refused with 503, each that needs more, and calls that hold little are answered meanwhile", function()
    local g <close> = start()
    local echo <close> = g:client "2026-07-28"
    local calls = {}
    for i = 1, CALLS do calls[i] = ask(g, "hold") end
    g:wait_status(function(status)
      assert.equal("x", echo:result("tools/call", { name = "echo", arguments = { text = "x" } }).content[1].text)
      return status.gauges.requests_in_flight + status.counters.refused.lua_memory == CALLS and status.counters.refused.lua_memory > 0
        -- a call that has said that it holds may still need more, and be refused
        and select(2, g:log():gsub("info  holds", "")) + status.counters.refused.lua_memory >= CALLS
    end, 60)
    for _ = 1, 50 do assert.equal("x", echo:result("tools/call", { name = "echo", arguments = { text = "x" } }).content[1].text) end
    local refused = g:status().counters.refused.lua_memory
    echo:result("tools/call", { name = "go" })
    assert.equal(refused, count_refused(calls))
    assert.is_true(CALLS - refused >= 4, refused .. " were refused")
    local line = g:wait_log("call over its limit", { why = WHY })
    assert.truthy(line.fields.file:find "tools/hold%.lua$", line.text)
    g:wait_log("refused", { cause = "lua memory", why = WHY })
    g:wait_log("call cancelled", { why = "lua_memory" })
    for _ = 1, 10 do assert.truthy(result_of(ask(g, "hold"))) end -- what the calls held is free again
    echo:close()
    assert.has_nothing_left(g)
  end)

  it("are refused as well where the memory is needed for a result, and none has an internal error", function()
    local g <close> = start()
    for _ = 1, 3 do
      local calls = {}
      for i = 1, CALLS do calls[i] = ask(g, "many") end
      count_refused(calls)
    end
    assert.equal(0, g:status().counters.tool_faults)
    assert.is_nil(g:log():find("not enough memory", 1, true))
    assert.has_nothing_left(g)
  end)

  it("are refused though they catch errors", function()
    local g <close> = start()
    assert.is_nil(result_of(ask(g, "catch")))
    assert.equal(1, g:status().counters.refused.lua_memory)
    assert.truthy(result_of(ask(g, "many")))
    assert.has_nothing_left(g)
  end)
end)
