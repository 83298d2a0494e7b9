-- The audit lines of planned calls, which C writes: each call is sent to two gateways, with plans and without, and the
-- two audit files must have the same bytes but for ids, sessions and times. `calls_planned` says which calls took a
-- plan.
local audit_lines = require "spec.helpers.audit_lines"
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local scripts = {
  ["auth/a.lua"] = [[return auth { function(request)
    local who = request.bearer or "nobody"
    if who == "nobody" then fail "no token" end
    return { id = "user:" .. who, issuer = who ~= "bob" and "https://id.example/" .. who or nil, scopes = who == "ann" and { "pay" } or {} }
  end }]],
  ["tools/pay.lua"] = [[return tool { "Pays.", open = true,
    input = { amount = t.integer, note = t.string { optional = true }, at = t.optional(t.object { x = t.number }) }, function(args)
      local amount = args.amount
      if amount == 1 then fail "too little é \"quoted\"" elseif amount == 2 then error "broken" elseif amount == 3 then return nil, ("no"):rep(200)
      elseif amount == 4 then fail_request(7, "no", { a = 1 }) elseif amount == 5 then return ("x"):rep(200000)
      elseif amount == 6 then return { a = ("y"):rep(200000) } elseif amount == 7 then return function() end
      elseif amount == 8 then return { paid = amount } elseif amount == 9 then return "\xff" elseif amount == 10 then return
      elseif amount == 11 then return { list = { ("z"):rep(70000) } } elseif amount == 12 then return { print } end
      return "paid"
    end }]],
  ["tools/add.lua"] = "--- Add.\n---@param a number\n---@param b? number\nreturn function(a, b) return a + (b or 0) end",
  ["tools/nothing.lua"] = 'return tool { "Nothing.", function() return true end }',
  ["tools/listed.lua"] = [[return tool { "Listed.", input = { list = t.list(t.integer) }, function(args) return #args.list end }]],
  ["tools/fits.lua"] = [[return tool { "Fits.", input = { n = t.number }, output = { n = t.number },
    function(args) return { n = args.n == 0 and "x" or args.n } end }]],
  ["tools/capped.lua"] = [[return tool { "Capped.", input = { n = t.integer }, function(args) return "n " .. args.n end }]],
  ["policy/cap.lua"] = [[return policy { tools = { "capped" }, function(call, next)
    if call.args.n > 100 then fail "above the cap" end
    if call.args.n == 50 then return "half" end
    if call.args.n == 49 then fail_request(9, "not 49") end
    return next(call)
  end }]],
  ["tools/waits.lua"] = [[return tool { "Waits.", input = { n = t.integer }, function(args, call)
    local closer <close> = setmetatable({}, { __close = function() sleep(0.01) end })
    call:progress(1)
    sleep(60)
  end }]],
  ["tools/quick.lua"] = [[return tool { "Quick.", timeout = 0.05, function() sleep(20) end }]],
  ["tools/endless.lua"] = [[return tool { "Endless.", function() while true do end end }]],
  ["tools/scoped.lua"] = [[return tool { "Scoped.", scopes = { "pay" }, function() return "scoped" end }]],
  ["resources/fixed.lua"] = 'return resource { "A text.", uri = "text://fixed", "fixed" }',
  ["resources/long.lua"] = 'return resource { "A text.", uri = "text://' .. ("x"):rep(300) .. '", "long" }',
  ["tools/asks.lua"] = [[return tool { "Asks.", function(_, call)
    local given, why = call:elicit("who", "Who?", { name = t.string })
    return given and given.name or why end }]],
}

local many = {}
for i = 1, 14 do many[i] = ('"n%d":%d'):format(i * 7 % 15, i) end

-- Calls and whether a plan takes them: tool, arguments as JSON, planned, members of _meta.
local rows = {
  { "add", '{"b":2,"a":1}', true }, { "add", '{"a":1}', true }, { "add", '{"a":"x"}', false }, { "add", nil, false }, { "nothing", nil, true },
  { "nothing", "{}", true }, { "nothing", '{"x":1}', false }, { "listed", '{"list":[1,2]}', true }, { "fits", '{"n":1}', true }, { "fits", '{"n":0}', true },
  { "capped", '{"n":1}', true }, { "capped", '{"n":101}', true }, { "capped", '{"n":50}', true }, { "capped", '{"n":49}', true }, { "quick", "{}", true },
  { "endless", "{}", true }, { "missing", "{}", false }, { "scoped", "{}", true },
  { "pay", '{"amount":20,' .. table.concat(many, ",") .. "}", false }, { "pay", '{"amount":20,"at":{"x":1},"note":"a\\nb"}', true },
  { "pay", '{"amount":20,"' .. ("n"):rep(300) .. '":1}', false },
  { "add", '{"a":1}', true, ',"traceparent":"00-\\n-\\"\127é"' }, { "add", '{"a":1}', true, ',"traceparent":7' },
  { "add", '{"a":1}', true, ',"traceparent":"' .. ("é"):rep(200) .. '"' },
  { "add", '{"a":1}', true, ',"io.modelcontextprotocol/clientInfo":{"version":"1\\t","name":"A \\"b\\" é\\/","icons":[{"name":"x"}]}' },
  { "add", '{"a":1}', true, ',"io.modelcontextprotocol\\/clientInfo":{"name":"' .. ("x"):rep(255) .. 'é","version":"' .. ("y"):rep(300) .. '"}' },
  { "add", '{"a":1}', true, ',"io.modelcontextprotocol/clientInfo":{"name":1,"version":"2"}' },
  { "add", '{"a":1}', true, ',"io.modelcontextprotocol/clientInfo":{"name":"only"},"mine":{"traceparent":"no"}' },
  { "asks", "{}", true },
}
for amount = 1, 12 do rows[#rows + 1] = { "pay", ('{"amount":%d}'):format(amount), true } end

local function planned(g) return g:status().counters.calls_planned end

local function send(g, row, token)
  local name, arguments, meta = row[1], row[2], row[4]
  local c <close> = g:connect()
  local response = c:request({ method = "POST", path = "/mcp", headers = {
    Accept = "application/json, text/event-stream", ["Content-Type"] = "application/json", ["MCP-Protocol-Version"] = "2026-07-28",
    ["Mcp-Method"] = "tools/call", ["Mcp-Name"] = name, Authorization = "Bearer " .. (token or "ann"),
  }, body = ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s"%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    .. '"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}%s}}}'):format(name, arguments and ',"arguments":' .. arguments or "", meta or "") }, 20)
  return response
end

local function wait_lines(g, count, method)
  wait.for_fact(count .. " audit lines", 10, function() return #audit_lines.of(g, method) >= count end)
  return audit_lines.of(g, method)
end

local function start(arguments, mode, more)
  local options = { workers = 1, scripts = scripts, env = { MOONPOOL_PLANS = mode },
    config = { log = { audit = "audit.jsonl", audit_arguments = arguments }, limits = { call = { output = "100KiB", cpu = "100ms" } },
      scripts = { watch = "false" } } }
  for key, value in pairs(more or {}) do options[key] = value end
  return gateway.start(options)
end

for _, arguments in ipairs { "names", "none" } do
  describe("planned calls with log.audit_arguments: " .. arguments, function()
    local with, without

    setup(function() with, without = start(arguments, "both"), start(arguments, "off") end)
    teardown(function()
      with:stop()
      without:stop()
    end)

    it("have the audit lines of the general path", function()
      local before = #wait_lines(with, 0)
      send(with, rows[1]) -- the first call of a principal takes the general path where scopes count
      send(without, rows[1])
      for i, row in ipairs(rows) do
        local count = planned(with)
        local a, b = send(with, row), send(without, row)
        assert.equal(b.status, a.status)
        local one, other = wait_lines(with, before + i + 1), wait_lines(without, before + i + 1)
        assert.equal(other[#other], one[#one], row[1] .. " " .. (row[2] or ""))
        assert.equal(count + (row[3] and 1 or 0), planned(with), row[1] .. " " .. (row[2] or ""))
      end
      assert.same(wait_lines(without, 0), wait_lines(with, 0))
      assert.equal(0, planned(without))
    end)

    it("have them for each principal", function()
      for _, token in ipairs { "bob", "ann", "eve", "bob" } do
        local count = #audit_lines.of(with)
        for _, row in ipairs { { "add", '{"a":1}' }, { "scoped", "{}" } } do
          assert.equal(send(without, row, token).status, send(with, row, token).status)
        end
        assert.same(wait_lines(without, count + 2), wait_lines(with, count + 2))
      end
    end)

    it("have them in sessions, and when a client leaves", function()
      local counts = { #audit_lines.of(with), #audit_lines.of(without) }
      local before = planned(with)
      for i, g in ipairs { with, without } do
        local c <close> = g:client("2025-11-25", { token = "ann" })
        c:call("tools/call", { name = "add", arguments = { a = 1 } })
        c:call("tools/call", { name = "pay", arguments = { amount = 1 } })
        wait_lines(g, counts[i] + 2)
        c:delete()
        local me <close> = g:client("2026-07-28", { token = "ann" })
        local params = { name = "waits", arguments = { n = 1 }, _meta = { progressToken = 1, traceparent = "t" } }
        me:open("tools/call", params):wait "notifications/progress":hang_up()
        wait_lines(g, counts[i] + 3)
      end
      assert.equal(before + 3, planned(with))
      local lines = audit_lines.of(with)
      assert.same(audit_lines.of(without), lines)
      assert.equal("cancelled", cjson.decode(lines[#lines]).outcome)
      assert.has_nothing_left(with)
    end)
  end)
end

describe("answers from kept bytes with an audit", function()
  local meta = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}'
  -- Method, members of params, members of _meta, and whether the second of two such requests is answered from kept
  -- bytes.
  local requests = {
    { "resources/list", "", "", true }, { "resources/templates/list", "", ',"traceparent":"t"', true }, { "prompts/list", "", "", false },
    { "tools/list", "", "", false },
    { "resources/list", "", ',"io.modelcontextprotocol/clientInfo":{"name":"me","version":"' .. ("é"):rep(200) .. '"}', true },
    { "resources/list", "", ',"io.modelcontextprotocol\\/clientInfo":{"name":"me"}', false },
    { "resources/read", '"uri":"text://fixed",', "", true }, { "resources/read", '"uri":"text:\\/\\/fixed",', "", false },
    { "resources/read", '"uri":"text://' .. ("x"):rep(300) .. '",', "", true }, { "resources/read", '"uri":"text://none",', "", false },
    { "resources/read", '"uri":"TEXT://fixed",', "", false },
  }

  local function ask(g, row)
    local c <close> = g:connect()
    local uri = row[2]:match '"uri":"(.-)"'
    return c:request({ method = "POST", path = "/mcp", headers = {
      Accept = "application/json, text/event-stream", ["Content-Type"] = "application/json", ["MCP-Protocol-Version"] = "2026-07-28",
      ["Mcp-Method"] = row[1], ["Mcp-Name"] = uri and uri:gsub("\\", "") or nil, Authorization = "Bearer ann",
    }, body = ('{"jsonrpc":"2.0","id":1,"method":"%s","params":{%s%s%s}}}'):format(row[1], row[2], meta, row[3]) })
  end

  it("has the lines of the general path", function()
    for _, arguments in ipairs { "names", "none", "full" } do
      local with <close> = start(arguments, "on")
      local without <close> = start(arguments, "off")
      local count = 0
      for _, row in ipairs(requests) do
        for i = 1, 2 do
          local before = with:status().counters.calls_frozen
          local a, b = ask(with, row), ask(without, row)
          assert.equal(b.status .. b.body, a.status .. a.body)
          count = count + 1
          assert.same(wait_lines(without, count, ""), wait_lines(with, count, ""))
          if i == 2 then
            assert.equal(before + (row[4] and arguments ~= "full" and 1 or 0), with:status().counters.calls_frozen, row[1] .. row[2] .. row[3])
          end
        end
      end
    end
  end)
end)

describe("planned calls with an audit that shows values of arguments", function()
  it("are none", function()
    for _, arguments in ipairs { "redacted", "full" } do
      local g <close> = start(arguments, "both")
      send(g, rows[1])
      assert.equal(200, send(g, rows[1]).status)
      assert.equal(0, planned(g))
    end
  end)
end)

describe("a planned call that a reload ends", function()
  it("has one audit line, of the scripts that it began with", function()
    local g <close> = start("names", "both", { config = { log = { audit = "audit.jsonl" }, scripts = { watch = "false", drain = "50ms" } } })
    local me <close> = g:client("2026-07-28", { token = "ann" })
    me:call("tools/call", { name = "add", arguments = { a = 1 } })
    local stream = me:open("tools/call", { name = "waits", arguments = { n = 1 }, _meta = { progressToken = 1 } }):wait "notifications/progress"
    local file <close> = assert(io.open(g.dir .. "/scripts/tools/nothing.lua", "wb"))
    file:write 'return tool { "Nothing.", function() return false end }'
    file:close()
    assert.equal(200, g:admin("/reload", "POST").status)
    assert.truthy(stream:answer().error)
    local lines = wait_lines(g, 2)
    assert.equal(2, #lines)
    assert.equal("cancelled", cjson.decode(lines[2]).outcome)
    assert.equal(2, planned(g))
  end)
end)
