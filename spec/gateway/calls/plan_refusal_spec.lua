-- Arguments that do not fit: C finds the words where one argument is missing or has another type, Lua all others. Each call
-- is sent to two gateways, with plans and without, and answers and audit lines have the same bytes.
local audit_lines = require "spec.helpers.audit_lines"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/all.lua"] = [[return tool { "All.", input = {
    n = t.optional(t.number { min = 1, max = 9 }), i = t.optional(t.integer), s = t.optional(t.string), e = t.optional(t.one_of { "a", "b" }),
    b = t.optional(t.boolean), o = t.optional(t.object { x = t.number, y = t.optional(t.string) }),
  }, function() return "fits" end }]],
  ["tools/pair.lua"] = "--- Two.\n---@param a number\n---@param second_2 string\nreturn function(a, second_2) return second_2 .. a end",
  ["tools/odd.lua"] = [[return tool { "Odd.", input = { ["a.b"] = t.number, _x = t.optional(t.number), ["7"] = t.optional(t.number) },
    function() return "fits" end }]],
  ["tools/open.lua"] = [[return tool { "Open.", input = t.schema { type = "object", properties = { a = { type = "number" } }, required = { "a" } },
    function() return "fits" end }]],
  ["tools/hard.lua"] = [[return tool { "Hard.", input = { list = t.list(t.number), a = t.number }, function() return "fits" end }]],
  ["policy/some.lua"] = [[return policy { tools = { "pair" }, function(call, next) return next(call) end }]],
}

local VALUES <const> = {
  "1", "-1", "0", "-0", "10", "1.0", "1.5", "1e2", "123456789012345", "1234567890123456", "12345678901234567890", '"x"', '""', '"a"', '"a/b"',
  '"a\\nb"',
  '"\\u0041"', '"é"', '"say \\"x\\""',
  '"\127"', '"' .. ("y"):rep(58) .. '"', '"' .. ("y"):rep(59) .. '"', '"' .. ("y"):rep(300) .. '"', "true", "false", "null",
  "[]", "[1]", "[null]", "{}", '{"x":1}', '{"x":"1"}', '{"x":null}', '{"x":1,"y":null}', '{"x":1,"z":2}',
}

local calls = {}
for _, name in ipairs { "n", "i", "s", "e", "b", "o" } do
  for _, value in ipairs(VALUES) do
    calls[#calls + 1] = { "all", ('{"%s":%s}'):format(name, value) }
    calls[#calls + 1] = { "all", ('{"b":true,"%s":%s}'):format(name == "b" and "i" or name, value) }
  end
end
for _, arguments in ipairs {
  "{}", '{"a":1}', '{"second_2":"x"}', '{"a":"1"}', '{"a":"1","second_2":"x"}', '{"a":1,"second_2":2}', '{"a":"1","second_2":2}',
  '{"a":1,"second_2":"x","c":1}',
  '{"a":1,"second":"x"}', '{"second_2":2}', '{"a":null,"second_2":"x"}', '{"a":{"z":null},"second_2":"x"}',
} do calls[#calls + 1] = { "pair", arguments } end
for _, arguments in ipairs { "{}", '{"a.b":"x"}', '{"a.b":1,"_x":"y"}', '{"a.b":1,"7":"y"}', '{"a.b":1}', '{"a.b":true}' } do
  calls[#calls + 1] = { "odd", arguments }
end
for _, arguments in ipairs { "{}", '{"a":"x"}', '{"a":"x","more":1}', '{"a":1,"more":1}', '{"more":1}' } do calls[#calls + 1] = { "open", arguments } end
for _, arguments in ipairs { "{}", '{"list":[1],"a":"x"}', '{"list":["x"],"a":1}', '{"list":[1],"a":1}' } do calls[#calls + 1] = { "hard", arguments } end

local function start(mode)
  return gateway.start { workers = 1, scripts = scripts, env = { MOONPOOL_PLANS = mode }, config = { log = { audit = "audit.jsonl" } } }
end

describe("arguments that do not fit", function()
  for _, revision in ipairs { "2025-03-26", "2025-11-25", "2026-07-28" } do
    it("are refused with the bytes of the general way, in answers, audit lines and metrics of " .. revision, function()
      local with <close> = start "on"
      local without <close> = start "off"
      local list = { with, without }
      local clients = { with:client(revision), without:client(revision) }
      local meta = revision == "2026-07-28" and ',"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
        .. '"io.modelcontextprotocol/clientCapabilities":{}}' or ""
      for _, row in ipairs(calls) do
        local got = {}
        for i, g in ipairs(list) do
          local headers = clients[i]:headers { method = "tools/call", params = { name = row[1] } }
          headers["Content-Type"] = "application/json"
          local answer = g:connect():request({ method = "POST", path = "/mcp", headers = headers,
            body = ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":%s%s}}'):format(row[1], row[2], meta) }, 20)
          got[i] = ("%d %s"):format(answer.status, answer.body)
        end
        assert.equal(got[2], got[1], row[1] .. " " .. row[2])
      end
      local told = {}
      for i, g in ipairs(list) do
        wait.for_fact("the audit lines", 20, function() return #audit_lines.of(g, "tools/call") == #calls end)
        told[i] = { lines = audit_lines.of(g, "tools/call"), metrics = {} }
        local n
        wait.for_fact(function() return ("%d calls in the metrics, of %d"):format(n, #calls) end, 20, function()
          n = 0
          for count in g:admin("/metrics").body:gmatch '\n[%w_]*tool_calls_total{[^}]*} (%d+)' do n = n + tonumber(count) end
          return n >= #calls
        end)
        for line in g:admin("/metrics").body:gmatch "[^\n]+" do
          if line:find "^[%w_]*tool_calls_total" then table.insert(told[i].metrics, line) end
        end
        table.sort(told[i].metrics)
      end
      assert.same(told[2], told[1])
      assert.is_true(#told[1].metrics > 4)
    end)
  end
end)
