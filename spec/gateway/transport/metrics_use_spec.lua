-- What /metrics says of what calls and scripts use: policies, auth scripts, HTTP requests, databases, programs,
-- prompts, resources, sessions, turns.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local scrape = require "spec.helpers.scrape"

local SECRET <const> = "s3cr3t-in-an-argument"

local scripts = {
  ["tools/run.lua"] = 'return tool { "Runs.", input = { word = t.string }, function(args) return exec { args.word }.status end }',
  ["tools/late.lua"] = 'return tool { "Waits for a program.", timeout = 0.3, function() exec { "sleep", "60" } end }',
  ["tools/ask.lua"] = 'return tool { "Asks.", input = { url = t.string }, function(args) local a = http.get(args.url) return a and a.status or 0 end }',
  ["tools/keep.lua"] = [[
    return tool { "Keeps.", input = { text = t.string, name = t.string }, function(args)
      local db <const> = assert(sqlite.open("data/" .. args.name))
      db:exec "create table if not exists kept (text)"
      db:exec("insert into kept values (?)", { args.text })
      return tostring(db:exec "no SQL")
    end }]],
  ["tools/plain.lua"] = 'return tool { "Is plain.", function() return "x" end }',
  ["tools/no.lua"] = 'return tool { "Is refused.", function() return "x" end }',
  ["tools/known.lua"] = 'return tool { "Is answered.", function() return "x" end }',
  ["tools/broken.lua"] = 'return tool { "Is broken.", function() return "x" end }',
  ["prompts/hello.lua"] = 'return prompt { "Says hello.", function() return "hello" end }',
  ["resources/fixed.lua"] = 'return resource { "A text.", uri = "text://fixed", "the text" }',
  ["resources/any.lua"] = 'return resource { "Any.", uri = "any://{word}", function(args) return args.word end }',
  ["policy/first.lua"] = 'return policy { "Lets pass.", order = 1, function(call, next) return next(call) end }',
  ["policy/second.lua"] = [[
    return policy { "Decides.", order = 2, tools = { "no", "known", "broken", "plain" }, function(call, next)
      if call.name == "no" then return nil, "not now" end
      if call.name == "known" then return "known" end
      if call.name == "broken" then error "broken" end
      return next(call)
    end }]],
}

local function start(options)
  options.config = options.config or {}
  options.config.scripts = { grants = { ["tools/"] = { run = { "true", "false", "sleep" }, net = { "127.0.0.1:*" }, write = { "data" } } } }
  return gateway.start(options)
end

local function count(family, labels) return family .. "_count{" .. labels .. "}" end

describe("/metrics counts what calls use:", function()
  it("programs, HTTP requests and statements by their grant and how they ended, with nothing of an argument", function()
    local g <close> = start { scripts = scripts, files = { ["data/.keep"] = "" } }
    local c <close> = g:client "2026-07-28"
    c:result("tools/call", { name = "run", arguments = { word = "true" } })
    c:result("tools/call", { name = "run", arguments = { word = "false" } })
    c:call("tools/call", { name = "late", arguments = {} })
    local own = "http://127.0.0.1:" .. g.admin_port
    c:result("tools/call", { name = "ask", arguments = { url = own .. "/healthz?" .. SECRET } })
    c:result("tools/call", { name = "ask", arguments = { url = own .. "/none/" .. SECRET } })
    c:result("tools/call", { name = "ask", arguments = { url = "http://127.0.0.1:1/" } })
    c:result("tools/call", { name = "keep", arguments = { name = SECRET .. ".db", text = SECRET } })
    scrape.wait(g, {
      [count("moonpool_exec_duration_seconds", 'program="true",outcome="0"')] = 1,
      [count("moonpool_exec_duration_seconds", 'program="false",outcome="failed"')] = 1,
      [count("moonpool_exec_duration_seconds", 'program="sleep",outcome="cancelled"')] = 1,
      [count("moonpool_http_client_duration_seconds", 'grant="127.0.0.1:*",outcome="2xx"')] = 1,
      [count("moonpool_http_client_duration_seconds", 'grant="127.0.0.1:*",outcome="4xx"')] = 1,
      [count("moonpool_http_client_duration_seconds", 'grant="127.0.0.1:*",outcome="error"')] = 1,
      [count("moonpool_db_client_duration_seconds", 'db_system_name="sqlite",database="data",outcome="ok"')] = 2,
      [count("moonpool_db_client_duration_seconds", 'db_system_name="sqlite",database="data",outcome="error"')] = 1,
    })
    assert.is_nil(scrape.text(g):find(SECRET, 1, true))
  end)

  it("policies by what they decided", function()
    local g <close> = start { scripts = scripts }
    local c <close> = g:client "2026-07-28"
    for _, name in ipairs { "plain", "plain", "no", "known", "broken" } do c:call("tools/call", { name = name, arguments = {} }) end
    local function decided(name, how) return ('moonpool_policy_decisions_total{policy="%s",decision="%s"}'):format(name, how) end
    local samples = scrape.wait(g, {
      [decided("first", "passed")] = 5, [decided("second", "passed")] = 2, [decided("second", "refused")] = 1,
      [decided("second", "answered")] = 1, [decided("second", "fault")] = 1,
    })
    assert.is_nil(samples[decided("first", "fault")])
  end)

  it("prompts and resources by their names, never by a URI, on the quick way too", function()
    local plain = {}
    for path, text in pairs(scripts) do
      if not path:find "^policy/" then plain[path] = text end
    end
    local g <close> = start { scripts = plain, workers = 1 }
    local c <close> = g:client "2026-07-28"
    for _ = 1, 3 do
      c:result("prompts/get", { name = "hello" })
      c:result("resources/read", { uri = "text://fixed" })
      c:result("resources/read", { uri = "any://" .. SECRET })
    end
    scrape.wait(g, {
      ['moonpool_prompt_gets_total{gen_ai_prompt_name="hello",outcome="ok"}'] = 3,
      ['moonpool_resource_reads_total{resource="fixed",outcome="ok"}'] = 3,
      ['moonpool_resource_reads_total{resource="any",outcome="ok"}'] = 3,
    })
    assert.is_nil(scrape.text(g):find(SECRET, 1, true))
  end)

  it("auth scripts by what they found", function()
    local g <close> = start { scripts = {
      ["auth/one.lua"] = [[
        return auth { function(request)
          local word = request.headers.authorization
          if word == "Basic broken" then error "broken" end
          if word == "Basic ann" then return { id = "ann", scopes = {} } end
          return nil, "not ann"
        end }]],
      ["tools/plain.lua"] = scripts["tools/plain.lua"],
    } }
    local body = '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",' ..
      '"io.modelcontextprotocol/clientCapabilities":{}}}}'
    for word, status in pairs { ann = 200, bob = 401, broken = 500 } do
      local response = client.request(g, { method = "POST", path = "/mcp", body = body, headers = { authorization = "Basic " .. word,
        ["content-type"] = "application/json", accept = "application/json, text/event-stream", ["mcp-protocol-version"] = "2026-07-28",
        ["mcp-method"] = "tools/list" } })
      assert.equal(status, response.status)
    end
    scrape.wait(g, {
      [count("moonpool_auth_duration_seconds", 'script="auth/one.lua",outcome="known"')] = 1,
      [count("moonpool_auth_duration_seconds", 'script="auth/one.lua",outcome="unknown"')] = 1,
      [count("moonpool_auth_duration_seconds", 'script="auth/one.lua",outcome="error"')] = 1,
    })
  end)

  it("sessions by revision and why they ended, and the turns of each worker", function()
    local g <close> = start { scripts = scripts, workers = 2 }
    for _ = 1, 3 do
      local c <close> = g:client "2025-11-25"
      c:delete()
    end
    local samples = scrape.wait(g, {
      [count("mcp_server_session_duration_seconds", 'mcp_protocol_version="2025-11-25",network_transport="tcp",error_type="delete"')] = 3,
    })
    for worker = 0, 1 do assert.truthy(samples[count("moonpool_loop_turn_seconds", ('worker="%d"'):format(worker))] > 0) end
  end)

  it("nothing with metrics: off", function()
    local g <close> = start { scripts = scripts, config = { metrics = "off" } }
    local c <close> = g:client "2025-11-25"
    c:result("tools/call", { name = "run", arguments = { word = "true" } })
    c:result("tools/call", { name = "plain", arguments = {} })
    c:delete()
    local samples = scrape.wait(g, { moonpool_calls_total = 3 })
    for name in pairs(samples) do
      for _, family in ipairs { "exec_duration", "policy_decisions", "session_duration", "loop_turn" } do
        local value = samples[name]
        assert.truthy(not name:find(family, 1, true) or value == 0, name .. " is " .. value)
      end
    end
  end)
end)
