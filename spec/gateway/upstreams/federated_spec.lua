-- The things of upstreams are served beside those of scripts, in every revision, under names of the gateway.
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local REVISIONS <const> = upstream.revisions

local function names_of(client)
  local names = {}
  local cursor
  repeat
    local answer = client:call("tools/list", cursor and { cursor = cursor } or nil)
    for _, tool in ipairs(answer.result.tools) do names[tool.name] = tool end
    cursor = answer.result.nextCursor
  until not cursor
  return names
end

describe("an upstream over Streamable HTTP", function()
  for _, revision in ipairs(REVISIONS) do
    it("of " .. revision .. " is found out, listed with its prefix, and called by clients of all revisions", function()
      local u <close> = upstream.start { transport = "http", revision = revision }
      local g <close> = upstream.gateway({ one = u }, { workers = 2 })
      for _, asked in ipairs(REVISIONS) do
        local c <close> = g:client(asked)
        local names = names_of(c)
        assert.is_table(names.one_echo, "a client of " .. asked)
        local echoed = c:call("tools/call", { name = "one_echo", arguments = { a = "b" } })
        assert.equal('{"a":"b"}', upstream.text(echoed))
        assert.is_nil(echoed.error)
        local got = c:call("prompts/get", { name = "one_greet", arguments = { who = "Ann" } })
        assert.is_table(got.result and got.result.messages, "prompts/get of " .. asked)
        local read = c:call("resources/read", { uri = "stub://text" })
        assert.equal("stub://text", read.result.contents[1].uri)
        local item = c:call("resources/read", { uri = "stub://item/7" })
        assert.equal("stub://item/7", item.result.contents[1].uri)
        local completed = c:call("completion/complete", { ref = { type = "ref/prompt", name = "one_greet" }, argument = { name = "who", value = "a" } })
        assert.is_table(completed.result and completed.result.completion, "completion/complete of " .. asked)
        local failed = c:call("tools/call", { name = "one_complain", arguments = {} })
        assert.is_true(failed.result.isError)
        local refused = c:call("tools/call", { name = "one_fail", arguments = {} })
        assert.is_table(refused.error)
      end
      assert.equal(#REVISIONS, u:ran "echo")
    end)
  end
end)

describe("names of an upstream", function()
  it("are renamed, filtered and described before clients see them, and go back as the upstream's own", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = { one = {
      prefix = "x-", only = { "echo", "sum", "co*" }, hide = { "counter" }, rename = { echo = "repeat" }, describe = { sum = "Adds." },
    } } })
    local c <close> = g:client "2025-11-25"
    local names = names_of(c)
    local seen = {}
    for name in pairs(names) do seen[#seen + 1] = name end
    table.sort(seen)
    assert.same({ "x-complain", "x-repeat", "x-sum" }, seen)
    assert.equal("Adds.", names["x-sum"].description)
    assert.equal('{"a":1}', upstream.text(c:call("tools/call", { name = "x-repeat", arguments = { a = 1 } })))
    assert.equal(1, u:ran "echo")
    for _, hidden in ipairs { "x-counter", "x-echo", "echo", "x-look" } do
      local answer = c:call("tools/call", { name = hidden, arguments = {} })
      assert.equal(-32602, answer.error.code)
    end
    assert.equal(1, u:ran())
  end)

  it("that two upstreams share belong to the first in the configuration, and the second's are withheld", function()
    local one <close> = upstream.start { revision = "2025-11-25" }
    local two <close> = upstream.start { revision = "2026-07-28" }
    local g <close> = upstream.gateway({ one = one, two = two }, { entries = upstream.plain { one = one, two = two }, workers = 2 })
    local c <close> = g:client "2025-11-25"
    assert.is_table(names_of(c).echo)
    for _ = 1, 4 do upstream.text(c:call("tools/call", { name = "echo", arguments = {} })) end
    assert.equal(4, math.max(one:ran "echo", two:ran "echo"))
    assert.equal(0, math.min(one:ran "echo", two:ran "echo"))
  end)

  it("over 64 bytes are shortened, with the hash of the whole name", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local long = ("n"):rep(90)
    u:offer("tools", { ('{"name":"%s","inputSchema":{"type":"object"}}'):format(long) })
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client "2025-11-25"
    local found
    for name in pairs(names_of(c)) do found = name:find "^one_n" and name or found end
    assert.equal(64, #found)
    assert.is_truthy(found:find "^one_n+_%x%x%x%x%x%x%x%x$")
    local answer = c:call("tools/call", { name = found, arguments = {} })
    assert.is_table(answer.error or answer.result)
    assert.equal(long, u:wait({ method = "tools/call" }).json.params.name)
  end)
end)

describe("a policy", function()
  it("stands around a federated tool: it may refuse, change arguments and results, and answer itself", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { scripts = {
      ["policy/guard.lua"] = [[
return policy { tools = { "one_*" }, function(call, next)
  if call.args.refuse then fail "not here" end
  if call.args.short then return "answered here" end
  if call.args.a then call.args = { a = call.args.a .. "!" } end
  local result = next(call)
  if result.content then result.content[1].text = result.content[1].text .. " seen" end
  return result
end }]],
    } })
    local c <close> = g:client "2026-07-28"
    assert.equal("not here", upstream.text(c:call("tools/call", { name = "one_echo", arguments = { refuse = true } })))
    assert.equal("answered here", upstream.text(c:call("tools/call", { name = "one_echo", arguments = { short = true } })))
    assert.equal(0, u:ran "echo")
    assert.equal('{"a":"b!"} seen', upstream.text(c:call("tools/call", { name = "one_echo", arguments = { a = "b" } })))
  end)
end)

describe("upstream { … } in scripts/upstreams", function()
  it("hides and changes definitions, requires scopes, and adds headers", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { scripts = {
      ["upstreams/one.lua"] = [[
return upstream {
  definition = function(def, kind)
    if def.name == "one_counter" then return nil end
    if kind == "tools" then def.description = (def.description or "") .. " (checked)" end
    return def
  end,
  scopes = { sum = { "math" } },
  headers = function(call) return { ["x-who"] = call.principal.id } end,
}]],
    } })
    local c <close> = g:client "2025-11-25"
    local names = names_of(c)
    assert.is_nil(names.one_counter)
    assert.is_nil(names.one_sum)
    assert.is_truthy(names.one_echo.description:find(" (checked)", 1, true))
    assert.equal(-32602, c:call("tools/call", { name = "one_sum", arguments = { a = 1, b = 2 } }).error.code)
    upstream.text(c:call("tools/call", { name = "one_echo", arguments = {} }))
    assert.equal("anonymous", u:wait({ method = "tools/call" }).headers["x-who"])
  end)
end)

describe("upstream \"NAME\"", function()
  it("calls, reads and gets by the upstream's own names, and gives nil and why for every failure", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { scripts = {
      ["tools/use.lua"] = [[
return tool { "Uses it.", function()
  local one = upstream "one"
  local echoed = try(one:call("echo", { a = 1 }))
  local _, why = one:call("complain", {})
  local _, failed = one:call("fail", {})
  local _, unknown = one:call("nothing", {})
  return { echoed = echoed.text, complained = why ~= nil, failed = failed ~= nil, unknown = unknown ~= nil, text = one:read("stub://text").contents[1].uri,
    prompt = #one:prompt("greet", { who = "Ann" }).messages, tools = #one:tools() > 3, up = one:is_up() }
end }]],
    } })
    local c <close> = g:client "2026-07-28"
    names_of(c) -- waits until the lists of the upstream were read
    local got = c:call("tools/call", { name = "use", arguments = {} }).result.structuredContent
    assert.same({ echoed = '{"a":1}', complained = true, failed = true, unknown = true, text = "stub://text", prompt = 1, tools = true, up = true }, got)
  end)
end)

describe("tools() of an upstream in scripts", function()
  local job = [[
return job { "Counts.", every = 0.1, timeout = 30 * seconds, function()
  if store.get "counted" then return end
  store.set("counted", true)
  local one, tools, why = upstream "one", nil, nil
  parallel {
    function() tools, why = one:tools() end,
    function() sleep(0.2) one:call("look", {}) end,
  }
  one:call("echo", { count = tools and #tools or -1, why = why })
end }]]

  it("waits for the first list of the upstream", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local held
    u:when("tools/list", function(x) held = x end, 1)
    local g <close> = upstream.gateway({ one = u }, { scripts = { ["jobs/count.lua"] = job }, workers = 2, entries = { one = { list_wait = "30s" } } })
    u:wait { tool = "look" }
    wait.for_fact("the request of the list", 20, function() return u:all({ method = "tools/list" })[1] and held end)
    held:result '{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":"b","inputSchema":{"type":"object"}}]}'
    assert.equal(2, u:wait({ tool = "echo" }).json.params.arguments.count)
    assert.equal(0, g:status().gauges.calls or 0)
  end)

  it("gives nil and why if there is no list within list_wait", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local held
    u:when("tools/list", function(x) held = x end, 1)
    local g <close> = upstream.gateway({ one = u }, { scripts = { ["jobs/count.lua"] = job }, workers = 1, entries = { one = { list_wait = "100ms" } } })
    local arguments = u:wait({ tool = "echo" }).json.params.arguments
    assert.equal(-1, arguments.count)
    assert.equal("upstream 'one' has not listed its tools: it is not there, or has not answered yet", arguments.why)
    assert.is_table(g:status())
    held:result '{"tools":[]}'
  end)
end)

describe("an upstream that is not there", function()
  it("delays no list of the others beyond list_wait, and its calls are errors that say that nothing ran", function()
    local u = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u, gone = { url = "http://127.0.0.1:1/mcp" } }, { entries = { gone = { list_wait = "200ms" } } })
    local c <close> = g:client "2025-11-25"
    local names = names_of(c)
    assert.is_table(names.one_echo)
    u:close()
    local data, message = upstream.failure(c:call("tools/call", { name = "one_look", arguments = {} }), "not_run")
    assert.equal("one", data.upstream)
    assert.is_truthy(message:find("^upstream 'one' "), message)
    assert.is_nil(message:find "127%.0%.0%.1")
  end)

  it("is served once it comes, and clients are notified", function()
    local port = require "spec.helpers.free_port"()
    local g <close> = upstream.gateway({ late = { url = ("http://127.0.0.1:%d/mcp"):format(port) } }, { entries = { late = {
      list_wait = "100ms", refresh = "1s", circuit = { open = "1s..1s" },
    } } })
    local c <close> = g:client "2025-11-25"
    assert.same({}, names_of(c))
    local _ <close> = upstream.start { revision = "2025-11-25", port = port }
    wait.for_fact("the tools of the upstream", 20, function() return names_of(c).late_echo end)
  end)
end)

describe("bytes that pass", function()
  local ARGUMENTS <const> = '{"z":1234567890123456789012345,"a":1e400,"f":1.0,"u":"\\u0041","deep":{"y":[1.50,2e2],"x":{}}}'

  -- Calls a tool by a body that no JSON library has written; returns the body of the answer.
  local function ask(g, name, arguments)
    local body = ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":'
      .. '"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'):format(name, arguments)
    local c <close> = g:connect()
    return c:request({ method = "POST", path = "/mcp", body = body, headers = {
      Accept = "application/json, text/event-stream", ["Content-Type"] = "application/json", ["MCP-Protocol-Version"] = "2026-07-28",
      ["Mcp-Method"] = "tools/call", ["Mcp-Name"] = name,
    } }, 20)
  end

  it("stay as they are, both ways: digits, order and escapes; also where a policy changes a member beside them", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { scripts = {
      ["policy/add.lua"] = 'return policy { tools = { "one_*" }, function(call, next) if call.args.add then call.args.add = 2 end return next(call) end }',
    } })
    assert.equal(ARGUMENTS, upstream.text(ask(g, "one_echo", ARGUMENTS):json()))
    assert.equal('{"b":1.0,"add":2,"a":1e400}', upstream.text(ask(g, "one_echo", '{"b":1.0,"add":1,"a":1e400}'):json()))
  end)
end)
