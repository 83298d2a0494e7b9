-- Keys are compared byte for byte. A second `method`, `name`, `id` or `arguments` is refused, also with escapes; a key
-- that is only similar is an unknown member. So the request that is checked and logged is the one that runs (B-57).
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

-- Each tool logs its name when it runs, so that no run is hidden.
local function ran(name)
  return ('return tool { "It.", input = { a = t.optional(t.string) }, function(args) log.info("ran", { tool = %q, a = args.a or "" }) return %q end }')
    :format(name, name)
end
local scripts = { ["tools/safe.lua"] = ran "safe", ["tools/danger.lua"] = ran "danger" }

local META = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
local MARK = '"_meta":{}'

local function call(params)
  return '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{' .. params .. "," .. MARK .. "}}"
end

-- Bodies with a repeated key, in either order: no tool runs.
local twice = {
  call [["name":"safe","name":"danger"]], call [["name":"danger","name":"safe"]], call [["name":"safe","name":"safe"]],
  call [["name":"safe","n\u0061me":"danger"]], call [["\u006e\u0061\u006d\u0065":"danger","name":"safe"]],
  call [["name":"safe","arguments":{},"arguments":{"a":"x"}]], call [["arguments":{"a":"x"},"name":"safe","arg\u0075ments":{}]],
  call [["name":"safe","name":null]], call [["name":null,"name":"safe"]],
  call [["name":"safe","_meta":{}]],
  [[{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"safe",]] .. MARK .. "}}",
  [[{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"safe",]] .. MARK .. "}}",
  [[{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping","params":{"name":"safe",]] .. MARK .. "}}",
  [[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe",]] .. MARK .. [[},"params":{"name":"danger",]] .. MARK .. "}}",
  [[{"jsonrpc":"2.0","id":1,"method":"tools/call","m\u0065thod":"ping","params":{"name":"safe",]] .. MARK .. "}}",
  [[{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe",]] .. MARK .. "}}",
  [[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","_meta":{"progressToken":1,"progressToken":2,"x":{}}}}]],
}

-- Bodies with keys similar to the protocol's: these are unknown members, so only `safe` runs.
local near = {
  call [["name":"safe","Name":"danger"]], call [["NAME":"danger","name":"safe"]], call [["name":"safe","name\u0000":"danger"]],
  call [["name\u0000":"danger","name":"safe"]], call [["name":"safe","name ":"danger"]], call [["name":"safe"," name":"danger"]],
  call [["name":"safe","nam\u00e9":"danger"]], call [["name":"safe","":"danger"]], call [["name":"safe","naｍe":"danger"]],
  call [["name":"safe","arguments":{},"Arguments":{"a":"x"}]], call [["name":"safe","argument\u017f":{"a":"x"}]],
  call [["name":"safe","arguments":{},"arguments\u0000":{"a":"x"}]],
  [[{"jsonrpc":"2.0","id":1,"Method":"ping","method":"tools/call","params":{"name":"safe",]] .. MARK .. "}}",
  [[{"jsonrpc":"2.0","id":1,"method":"tools/call","method\u0000":"ping","params":{"name":"safe",]] .. MARK .. "}}",
  [[{"jsonrpc":"2.0","id":1,"ID":2,"Id":3,"id\u0000":4,"method":"tools/call","params":{"name":"safe",]] .. MARK .. "}}",
  [[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe",]] .. MARK .. [[},"Params":{"name":"danger"},"paramſ":{"name":"danger"}}]],
  [[{"Jsonrpc":"1.0","jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe",]] .. MARK .. "}}",
}

-- Bodies with a similar key instead of the right one: the right one is missing.
local instead = {
  call [["Name":"danger"]], call [["name\u0000":"danger"]], call [["NAME":"danger"]], call [["name":"danger\u0000"]], call [["name":"Danger"]],
  call [["name":"danger "]], call [["name":"\u0000danger"]],
}

local no_method = {
  [[{"jsonrpc":"2.0","id":1,"Method":"tools/call","params":{"name":"danger",]] .. MARK .. "}}",
  [[{"jsonrpc":"2.0","id":1,"method\u0000":"tools/call","params":{"name":"danger",]] .. MARK .. "}}",
  [[{"Jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger",]] .. MARK .. "}}",
}

local unknown_method = {
  [[{"jsonrpc":"2.0","id":1,"method":"Tools/Call","params":{"name":"danger",]] .. MARK .. "}}",
  [[{"jsonrpc":"2.0","id":1,"method":"tools/call\u0000","params":{"name":"danger",]] .. MARK .. "}}",
  [[{"jsonrpc":"2.0","id":1,"method":" tools/call","params":{"name":"danger",]] .. MARK .. "}}",
  [[{"jsonrpc":"2.0","id":1,"method":"tools//call","params":{"name":"danger",]] .. MARK .. "}}",
}

-- The tools that ran; the log is complete once the gateway has stopped.
local function runs(g)
  g:stop()
  local names = {}
  for _, line in ipairs(g:log_lines()) do
    if line.event == "ran" then names[#names + 1] = line.fields.tool .. "(" .. line.fields.a .. ")" end
  end
  return names
end

-- Sends a body in each revision; returns status and answer.
local ways = {
  ["2025-11-25"] = function(g)
    local session = { ["Mcp-Session-Id"] = wire.initialize(g, "2025-11-25") }
    return function(body)
      local response = wire.post(g, body, session)
      return response.status, response:json()
    end, function()
      wire.request(g, "DELETE", "/mcp", session)
    end
  end,
  ["2026-07-28"] = function(g)
    return function(body, method)
      local response = wire.post(g, (body:gsub(MARK, (META:gsub("%%", "%%%%")))), {
        ["MCP-Protocol-Version"] = "2026-07-28", ["Mcp-Method"] = method or "tools/call", ["Mcp-Name"] = "safe",
      })
      return response.status, response:json()
    end, function() end
  end,
  ["2024-11-05"] = function(g)
    local me = g:client "2024-11-05"
    return function(body)
      me.stream.events = {}
      local response = wire.post(g, body, nil, me.endpoint)
      if response.status ~= 202 then return response.status, response:json() end
      return 200, me.stream:wait_event(1).json
    end, function()
      me:close()
    end
  end,
}

for revision, start in pairs(ways) do
  describe("in " .. revision, function()
    it("a request with a repeated key is refused and not run", function()
      local g <close> = gateway.start { scripts = scripts }
      local send, leave = start(g)
      for _, body in ipairs(twice) do
        local status, answer = send(body)
        assert.same({ 400, -32600 }, { status, answer.error and answer.error.code }, body)
      end
      leave()
      assert.has_nothing_left(g)
      assert.same({}, runs(g))
    end)

    it("a key that only resembles another is an unknown key", function()
      local g <close> = gateway.start { scripts = scripts }
      local send, leave = start(g)
      local all = {}
      for i, body in ipairs(near) do
        local status, answer = send(body)
        assert.equal(200, status, body)
        assert.equal("safe", answer.result and answer.result.content[1].text, body)
        assert.equal(1, answer.id)
        all[i] = "safe()"
      end
      leave()
      assert.has_nothing_left(g)
      assert.same(all, runs(g))
    end)

    it("a key that only resembles another does not replace it", function()
      local g <close> = gateway.start { scripts = scripts }
      local send, leave = start(g)
      for _, body in ipairs(instead) do
        local _, answer = send(body)
        assert.is_true(answer.error.code == -32602 or answer.error.code == -32020, body)
      end
      for _, body in ipairs(no_method) do
        local status, answer = send(body)
        assert.same({ 400, -32600 }, { status, answer.error.code }, body)
      end
      for _, body in ipairs(unknown_method) do
        local _, answer = send(body, cjson.decode(body).method:gsub("%z", ""))
        assert.is_true(answer.error.code == -32601 or answer.error.code == -32020, body)
      end
      leave()
      assert.has_nothing_left(g)
      assert.same({}, runs(g))
    end)

    it("any repeated key in params is refused", function()
      local g <close> = gateway.start { scripts = scripts }
      local send, leave = start(g)
      for _, member in ipairs { [["arguments":{"a":"x","a":"y"}]], [["arguments":{"a":"x","\u0061":"y"}]], [["x":{"name":"danger","name":"danger"}]] } do
        local _, answer = send(call([["name":"safe",]] .. member))
        assert.truthy(answer.error, cjson.encode(answer))
      end
      leave()
      assert.has_nothing_left(g)
      assert.same({}, runs(g))
    end)
  end)
end
