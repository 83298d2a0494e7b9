-- What a recorded call got from its client, from upstreams and from tasks side by side, and that a replay gives it
-- again.
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local token = ("o"):rep(32)
local function config() return {
  admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } }, record = { tools = { "*" } }, scripts = { watch = false },
} end

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

-- Saves the `n` recorded calls of the gateway; gives them.
local function save(g, n)
  local lines
  wait.for_fact(n .. " records", 20, function()
    local body = client.request(g, { path = "/api/records", headers = { Authorization = "Bearer " .. token } }, { admin = true }).body
    lines = body:gsub("^[^\n]*\n", "")
    return select(2, lines:gsub("\n", "")) >= n
  end)
  write(g.dir .. "/calls.jsonl", lines)
  local list = {}
  for line in lines:gmatch "[^\n]+" do list[#list + 1] = cjson.decode(line) end
  return list
end

local function replay(g) return gateway.exec({ "replay", "calls.jsonl" }, { cwd = g.dir, seconds = 60 }) end

describe("a replay", function()
  it("has the answers of the user", function()
    local g <close> = gateway.start { config = config(), scripts = { ["tools/ask.lua"] = [[return tool { "Asks.", function(_, call)
      local answer, why = call:elicit("name", "Your name?", { name = t.string })
      return answer and "hello " .. answer.name or "no: " .. why
    end }]] } }
    local me <close> = g:client("2025-11-25", { capabilities = { elicitation = { form = {} } } })
    for _, given in ipairs { { action = "accept", content = { name = "Ann" } }, { action = "decline" } } do
      local stream = me:open("tools/call", { name = "ask", arguments = {} })
      local question = stream:wait_event("elicitation/create").json
      me:post { jsonrpc = "2.0", id = question.id, result = given }
      stream:answer()
    end
    local list = save(g, 2)
    assert.equal("question", list[1].events[1].kind)
    local code, out, err = replay(g)
    assert.equal(0, code, out .. err)
    assert.matches("all answered as recorded", out)
  end)

  it("has the questions that a stateless client gets", function()
    local g <close> = gateway.start { config = config(), scripts = { ["tools/ask.lua"] = [[return tool { "Asks.", function(_, call)
      local answer, why = call:elicit("name", "Your name?", { name = t.string })
      return answer and "hello " .. answer.name or "no: " .. why
    end }]] } }
    local me <close> = g:client("2026-07-28", { capabilities = { elicitation = { form = {} } } })
    assert.equal("input_required", me:result("tools/call", { name = "ask", arguments = {} }).resultType)
    assert.equal("asked", save(g, 1)[1].outcome)
    local code, out, err = replay(g)
    assert.equal(0, code, out .. err)
    write(g.dir .. "/scripts/tools/ask.lua", [[return tool { "Asks.", function(_, call)
      local answer, why = call:elicit("name", "Who are you?", { name = t.string })
      return answer and "hello " .. answer.name or "no: " .. why
    end }]])
    code, out = replay(g)
    assert.equal(1, code)
    assert.matches("Who are you", out)
  end)

  it("has the answers of upstreams, and asks none", function()
    local u <close> = upstream.start { transport = "http", revision = "2025-06-18" }
    local g <close> = upstream.gateway({ one = u }, { config = config(), scripts = { ["tools/ask.lua"] = [[return tool { "Asks.", input = { n = t.integer },
      function(args)
        local one = upstream "one"
        local got = try(one:call("echo", { n = args.n }))
        local none, why = one:call("nothing", {})
        return { text = got.text, up = one:is_up(), none = tostring(none), why = why }
      end }]] } })
    local me <close> = g:client "2025-11-25"
    me:result("tools/call", { name = "ask", arguments = { n = 1 } })
    local list = save(g, 1)
    assert.equal("upstream call", list[1].events[1].kind)
    local ran = u:ran "echo"
    local code, out, err = replay(g)
    assert.equal(0, code, out .. err)
    assert.equal(ran, u:ran "echo")
  end)

  it("that became an MCP task, or repeats another one, is skipped, and the line says why", function()
    local g <close> = gateway.start { config = config(), scripts = {
      ["tools/slow.lua"] = 'return tool { "Works.", task = "optional", function() return "done" end }',
      ["tools/ask.lua"] = [[return tool { "Asks.", function(_, call)
        local got = call:elicit("name", "Who?", { name = t.string })
        return got and "hello " .. got.name or "nobody"
      end }]],
    } }
    local me <close> = g:client "2025-11-25"
    me:result("tools/call", { name = "slow", task = { ttl = 60000 } })
    local list = save(g, 1)
    assert.same({ "slow", "skipped" }, { list[1].tool, list[1].outcome })
    assert.same({}, list[1].events)
    local code, out, err = replay(g)
    assert.equal(0, code, out .. err)
    assert.matches("skipped slow .*MCP task", out)
    local next_client <close> = g:client("2026-07-28", { capabilities = { elicitation = { form = {} } } })
    local asked = next_client:result("tools/call", { name = "ask", arguments = {} })
    next_client:result("tools/call", { name = "ask", arguments = {}, requestState = asked.requestState,
      inputResponses = { [next(asked.inputRequests)] = { action = "accept", content = { name = "Ann" } } } })
    list = save(g, 3)
    assert.same({ "asked", "skipped" }, { list[2].outcome, list[3].outcome })
    code, out, err = replay(g)
    assert.equal(0, code, out .. err)
    assert.matches("skipped ask .*repeats a call", out)
    assert.is_nil(cjson.encode(list):find("Ann", 1, true))
  end)

  it("of a tool of an upstream is skipped, and the line says why", function()
    local u <close> = upstream.start { transport = "http", revision = "2026-07-28" }
    local g <close> = upstream.gateway({ one = u }, { config = config() })
    local me <close> = g:client "2026-07-28"
    me:result("tools/list", {})
    me:result("tools/call", { name = "one_echo", arguments = { text = "hi" } })
    assert.equal("one_echo", save(g, 1)[1].tool)
    local ran = u:ran "echo"
    local code, out, err = replay(g)
    assert.equal(0, code, out .. err)
    assert.matches("skipped one_echo .*a tool of an upstream", out)
    assert.equal(ran, u:ran "echo")
  end)

  it("does not compare the order of tasks that run side by side", function()
    local script = [[return tool { "Both.", function()
      parallel { function() sleep(%s) return store.set("a", 1) end, function() sleep(%s) return store.set("b", 2) end }
      return store.get "a" + store.get "b"
    end }]]
    local g <close> = gateway.start { config = config(), scripts = { ["tools/both.lua"] = script:format("0.05", "0") } }
    g:client("2026-07-28"):result("tools/call", { name = "both", arguments = {} })
    assert.equal(4, #save(g, 1)[1].events)
    local code, out, err = replay(g)
    assert.equal(0, code, out .. err)
    write(g.dir .. "/scripts/tools/both.lua", script:format("0", "0.05"))
    code, out, err = replay(g)
    assert.equal(0, code, out .. err)
  end)

  it("of calls that ran at once has for each its own", function()
    local g <close> = gateway.start { config = config(), workers = 1, scripts = { ["tools/busy.lua"] = [[return tool { "Busy.", input = { n = t.integer },
      function(args)
        store.set("n" .. args.n, args.n)
        for i = 1, 200000 do local _ = i end
        sleep(0.001 * (args.n % 3))
        for i = 1, 200000 do local _ = i end
        return { n = store.get("n" .. args.n), dice = math.random(1 << 50), id = uuid.v4() }
      end }]] } }
    local me, streams = g:client "2026-07-28", {}
    for i = 1, 20 do streams[i] = me:open("tools/call", { name = "busy", arguments = { n = i } }) end
    for _, stream in ipairs(streams) do stream:answer() end
    for _, record in ipairs(save(g, 20)) do
      assert.equal(2, #record.events)
      assert.equal(("n%d"):format(record.arguments.n), record.events[2].args.key)
    end
    local code, out, err = replay(g)
    assert.equal(0, code, out .. err)
    assert.matches("20 calls, all answered as recorded", out)
  end)

  it("of a call that uses a database in memory, and loads with one, has its rows", function()
    local g <close> = gateway.start { config = config(), scripts = { ["tools/rows.lua"] = [[
      local db = sqlite.open(":memory:", { setup = "create table t (x)" })
      return tool { "Rows.", input = { x = t.string }, function(args)
        return db:transaction(function(tx)
          tx:exec("insert into t values (?)", { args.x })
          return { n = tx:one("select count(*) as n from t").n, blob = #tx:one("select x'00ff' as b").b }
        end)
      end }]] } }
    local me <close> = g:client "2026-07-28"
    me:result("tools/call", { name = "rows", arguments = { x = "a" } })
    me:result("tools/call", { name = "rows", arguments = { x = "b" } })
    save(g, 2)
    local code, out, err = replay(g)
    assert.equal(0, code, out .. err)
  end)
end)
