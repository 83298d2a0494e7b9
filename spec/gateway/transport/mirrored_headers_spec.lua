-- B-58, B-59: headers that repeat the body are compared with it as values, decoded and trimmed; if they disagree or are
-- missing, nothing runs.
-- Without a body's member, and outside 2026-07-28, they decide nothing. (headers_spec has their unit tests, era_spec
-- the order of the checks.)
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

local SENTINEL = "=?base64?ZWNobw==?=" -- "echo"

local scripts = {
  ["tools/echo.lua"] = [[return tool { "It.", input = {
      region = t.string { optional = true, header = "Region" }, size = t.integer { optional = true, header = "Size" },
      dry = t.boolean { optional = true, header = "Dry" },
    }, function(args) log.info("ran") return "echo" end }]],
  ["tools/other.lua"] = 'return tool { "Another.", function() log.info("ran") return "other" end }',
  ["resources/r.lua"] = 'return resource { "One.", uri = "x:é", function() log.info("ran") return "r" end }',
}

local V, M, N, R, S, D = "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-Region", "Mcp-Param-Size", "Mcp-Param-Dry"
local ABSENT = false

-- Each row: arguments, the headers that differ from the right ones, and whether the call runs.
local cases = {
  { {}, {}, true },
  -- missing, different, twice, another case of the value
  { {}, { [V] = ABSENT } }, { {}, { [V] = "2025-11-25" } }, { {}, { [V] = "" } }, { {}, { [V] = "2026-07-28, 2026-07-28" } },
  { {}, { [M] = ABSENT } }, { {}, { [M] = "" } }, { {}, { [M] = "tools/list" } }, { {}, { [M] = "Tools/Call" } },
  { {}, { [M] = "tools/call, tools/call" } },
  { {}, { [M] = "=?base64?dG9vbHMvY2FsbA==?=" } }, -- a method is never encoded
  { {}, { [N] = ABSENT } }, { {}, { [N] = "" } }, { {}, { [N] = "other" } }, { {}, { [N] = "ECHO" } }, { {}, { [N] = "echo, echo" } },
  { {}, { { V, "2026-07-28" } } }, { {}, { { M, "tools/call" } } }, { {}, { { N, "echo" } } }, { {}, { { N, "other" } } },
  { { region = "eu" }, {} }, { { region = "eu" }, { [R] = "us" } }, { { region = "eu" }, { [R] = "EU" } }, { { region = "eu" }, { [R] = "" } },
  { { region = "eu" }, { [R] = "eu", { R, "eu" } } }, { {}, { [R] = "eu" } }, { { region = "eu" }, { [R] = "eu, eu" } },
  { { region = "eu" }, { [R] = "eu" }, true },
  -- white space around, encoded
  { {}, { [N] = "  echo \t" }, true }, { {}, { [M] = "\ttools/call " }, true }, { {}, { [V] = " 2026-07-28 " }, true },
  { { region = "eu" }, { [R] = " \t eu \t " }, true }, { { region = " eu" }, { [R] = " eu" } },
  { { region = " eu" }, { [R] = "=?base64?IGV1?=" }, true },
  { {}, { [N] = SENTINEL }, true }, { {}, { [N] = " " .. SENTINEL .. "\t" }, true }, { {}, { [N] = "=?BASE64?ZWNobw==?=" } },
  { {}, { [N] = "=?Base64?ZWNobw==?=" } }, { {}, { [N] = "=?base64?ZWNobw?=" } }, { {}, { [N] = "=?base64?ZWNobw=?=" } },
  { {}, { [N] = "=?base64?ZWNo bw==?=" } },
  { {}, { [N] = "=?base64?b3RoZXI=?=" } }, { {}, { [N] = "=?base64??=" } }, { {}, { [N] = "=?base64?ZWNobwA=?=" } },
  { {}, { [N] = "=?base64?=" } }, { {}, { [N] = "=?base64?ZWNobw==" } }, { {}, { [N] = "=?base64?" .. ("ZWNobw"):rep(500) .. "?=" } },
  { { region = "ü" }, { [R] = "=?base64?w7w=?=" }, true }, { { region = "ü" }, { [R] = "ü" } }, { { region = "ü" }, { [R] = "=?base64?/A==?=" } },
  -- numbers as numbers, booleans as words
  { { size = 42 }, { [S] = "42" }, true }, { { size = 42 }, { [S] = "42.0" }, true }, { { size = 42 }, { [S] = " 42" }, true },
  { { size = 42 }, { [S] = "42.5" } },
  { { size = 42 }, { [S] = "0x2a" } }, { { size = 42 }, { [S] = "=?base64?NDI=?=" }, true }, { { size = -1 }, { [S] = "-1" }, true },
  { { dry = true }, { [D] = "true" }, true }, { { dry = true }, { [D] = "True" } }, { { dry = true }, { [D] = "1" } },
  { { dry = false }, { [D] = "false" }, true },
}

local function message(arguments)
  return wire.message(1, "tools/call", { name = "echo", arguments = next(arguments) and arguments or nil, _meta = wire.meta() })
end

local function named(headers)
  local list = {}
  for name, value in pairs(headers) do
    list[#list + 1] = type(name) == "number" and value[1] .. ": " .. value[2] .. " once more" or name .. ": " .. tostring(value):sub(1, 60)
  end
  table.sort(list)
  return table.concat(list, ", ")
end

local function count_runs(g)
  g:stop() -- now the log is complete
  local count = 0
  for _, line in ipairs(g:log_lines()) do
    if line.event == "ran" then count = count + 1 end
  end
  return count
end

describe("headers that repeat the body", function()
  it("let the tool run when they agree with it, and only then", function()
    local g <close> = gateway.start { scripts = scripts }
    local expected = 0
    for _, case in ipairs(cases) do
      local arguments, headers, runs = table.unpack(case, 1, 3)
      local body = message(arguments)
      local response = wire.post(g, body, wire.mirrored(body, headers))
      local answer = response:json()
      if runs then
        expected = expected + 1
        assert.equal("echo", answer.result and answer.result.content[1].text, named(headers) .. ": " .. response.body)
      else
        assert.same({ 400, -32020, 1 }, { response.status, answer.error and answer.error.code, answer.id }, named(headers) .. ": " .. response.body)
      end
    end
    assert.has_nothing_left(g)
    assert.equal(expected, count_runs(g))
  end)

  it("name a resource by its URI, encoded where it must be", function()
    local g <close> = gateway.start { scripts = scripts }
    local body = wire.message(1, "resources/read", { uri = "x:é", _meta = wire.meta() })
    for value, status in pairs { ["=?base64?eDrDqQ==?="] = 200, ["x:e"] = 400, ["=?base64?eDpl?="] = 400 } do
      assert.equal(status, wire.post(g, body, wire.mirrored(body, { [N] = value })).status, value)
    end
    assert.has_nothing_left(g)
  end)

  it("are literal where they only look encoded, also for a name that looks encoded", function()
    local g <close> = gateway.start { scripts = scripts }
    local literal = wire.message(1, "tools/call", { name = SENTINEL, _meta = wire.meta() })
    local response = wire.post(g, literal, wire.mirrored(literal, { [N] = SENTINEL })) -- decodes to another name
    assert.same({ 400, -32020 }, { response.status, response:json().error.code })
    response = wire.post(g, literal, wire.mirrored(literal, { [N] = "=?base64?PT9iYXNlNjQ/WldOb2J3PT0/PQ==?=" })) -- equal, but there is no such tool
    assert.same({ 400, -32602 }, { response.status, response:json().error.code })
    for _, name in ipairs { "=?base64?ZWNobw==", "ZWNobw==?=", "=?BASE64?ZWNobw==?=" } do
      local body = wire.message(1, "tools/call", { name = name, _meta = wire.meta() })
      assert.equal(-32602, wire.post(g, body, wire.mirrored(body)):json().error.code, name)
    end
    assert.has_nothing_left(g)
    assert.equal(0, count_runs(g))
  end)

  it("have no effect in a session, where the body alone decides", function()
    local g <close> = gateway.start { scripts = scripts }
    for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25" } do
      local me = g:client(revision)
      for _, headers in ipairs { {}, { [M] = "tools/list", [N] = "other", [R] = "x" }, { { N, "other" }, { N, "echo" } }, { [N] = "=?base64?!?=" } } do
        local all = me:headers()
        for name, value in pairs(headers) do all[name] = value end
        local response = wire.post(g, wire.message(1, "tools/call", { name = "echo", arguments = { region = "eu" } }), all)
        assert.equal("echo", response:json().result.content[1].text)
      end
      me:delete()
      me:close()
    end
    assert.has_nothing_left(g)
  end)

  it("do not make a request one of 2026-07-28 if its body is not", function()
    local g <close> = gateway.start { scripts = scripts }
    for _, headers in ipairs { { [M] = "tools/call", [N] = "echo" }, { [V] = "2026-07-28", [M] = "tools/call", [N] = "echo" }, {} } do
      local response = wire.post(g, wire.message(1, "tools/call", { name = "echo" }), headers)
      assert.equal(400, response.status)
    end
    assert.has_nothing_left(g)
    assert.equal(0, count_runs(g))
  end)
end)
