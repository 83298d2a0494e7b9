-- A call of an upstream's tool is a call: policies, limits, quotas, `visible`, the audit and `explain` treat it like a
-- call of a tool of our own.
local cjson = require "cjson"
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local scripts = {
  ["auth/main.lua"] = credentials.script,
  ["tools/own.lua"] = [[return tool { "O.", input = { n = t.integer { default = 1 } }, function(args) return "own " .. args.n end }]],
  ["policy/10-outer.lua"] = [[return policy { tools = { "gh_look" }, order = -1, function(call, next)
    local value, why = next(call)
    return value, why
  end }]],
  ["policy/a-inner.lua"] = [[return policy { tools = { "gh_*" }, function(call, next)
    if call.args.n == 2 then fail "not two" end
    if call.args.n == 3 then return "made up" end
    if call.args.n == 5 then return nil, "five is refused" end
    if call.args.n == 6 then error "a bug" end
    if call.args.n == 7 then call.args.n = 70 end
    if call.args.n == 8 then call.args.where = call.upstream end
    if call.args.n == 9 then call.args.who = call.principal.id end
    return next(call)
  end }]],
  ["policy/ours.lua"] = [[return policy { tools = { "own" }, function(call, next)
    if call.upstream ~= nil then fail "it has no upstream" end
    return next(call)
  end }]],
  ["policy/words.lua"] = [[return policy { prompts = { "gh_greet" }, function(call, next)
    call.args.who = call.args.who:upper()
    return next(call)
  end }]],
  ["policy/reads.lua"] = [[return policy { resources = { "stub://bytes" }, function() fail "not these" end }]],
  ["policy/limit.lua"] = [[return limit { tools = { "gh_again" }, rate = 3, per = 1 * hours }]],
  ["policy/quota.lua"] = [[return quota { tools = { "gh_sum" }, most = 2, per = "day" }]],
}

describe("a tool of an upstream", function()
  local u, g

  lazy_setup(function()
    u = upstream.start { revision = "2025-11-25" }
    g = upstream.gateway({ gh = u }, { scripts = scripts, config = { log = { audit = "audit.jsonl", audit_arguments = "full" } } })
  end)
  lazy_teardown(function()
    local _ <close> = g -- luacheck: ignore 211
    u:close()
  end)

  for _, asks in ipairs { "2025-06-18", "2026-07-28" } do
    it("is refused, answered, changed and seen by policies, for a client of " .. asks, function()
      local c <close> = g:client(asks, { token = "ann-1" })
      local function call(n) return c:result("tools/call", { name = "gh_echo", arguments = { n = n } }) end
      local before = u:ran "echo"
      assert.equal("own 1", c:result("tools/call", { name = "own", arguments = {} }).content[1].text)
      assert.same({ "not two", true }, { call(2).content[1].text, call(2).isError })
      assert.equal("made up", call(3).content[1].text)
      assert.is_true(call(5).isError)
      assert.is_true(c:call("tools/call", { name = "gh_echo", arguments = { n = 6 } }).error ~= nil or call(6).isError)
      assert.equal(before, u:ran "echo")
      assert.equal('{"n":70}', call(7).content[1].text)
      assert.equal("gh", cjson.decode(call(8).content[1].text).where)
      assert.equal("user:ann", cjson.decode(call(9).content[1].text).who)
      assert.equal("Hello, YOU", c:result("prompts/get", { name = "gh_greet", arguments = { who = "you" } }).messages[1].content.text)
      assert.is_truthy(c:call("resources/read", { uri = "stub://bytes" }).error)
      assert.equal("hello", c:result("resources/read", { uri = "stub://text" }).contents[1].text)
    end)
  end

  it("is counted by limits and quotas for all workers together", function()
    local ran = { again = 0, sum = 0 }
    for _ = 1, 6 do
      for tool in pairs(ran) do
        local c <close> = g:client("2026-07-28", { token = "ann-1" })
        local answer = c:call("tools/call", { name = "gh_" .. tool, arguments = { a = 1, b = 2 } })
        if answer.result and not answer.result.isError then ran[tool] = ran[tool] + 1 end
      end
    end
    assert.same({ again = 3, sum = 2 }, ran)
    assert.same({ again = 3, sum = 2 }, { again = u:ran "again", sum = u:ran "sum" })
  end)

  it("is in the audit with its upstream and outcome", function()
    local c <close> = g:client("2026-07-28", { token = "bob-1" })
    c:result("tools/call", { name = "gh_echo", arguments = { n = 11 } })
    local line = wait.for_fact("the line of the audit", 20, function()
      for text in io.lines(g.dir .. "/audit.jsonl") do
        local found = cjson.decode(text)
        if found.name == "gh_echo" and found.principal == "user:bob" then return found end
      end
    end)
    assert.same({ "gh", "echo", "ok" }, { line.upstream, line.upstream_name, line.outcome })
    assert.matches("^principal:%x+$", line.channel)
    assert.is_nil(line.retries)
    assert.is_nil(line.channel:find("bob", 1, true))
  end)

  it("that a policy refused has no channel in the audit, and one of a script no upstream", function()
    local c <close> = g:client("2026-07-28", { token = "bob-1" })
    c:result("tools/call", { name = "gh_echo", arguments = { n = 2 } })
    c:result("tools/call", { name = "own" })
    local denied = wait.for_fact("both lines of the audit", 20, function()
      local found, own
      for text in io.lines(g.dir .. "/audit.jsonl") do
        local line = cjson.decode(text)
        if line.principal == "user:bob" and line.outcome == "denied" then found = line end
        if line.name == "own" and line.principal == "user:bob" then own = line end
      end
      return own and found
    end)
    assert.same({ "gh", "echo", "inner" }, { denied.upstream, denied.upstream_name, denied.policy:match "%l+$" })
    assert.is_nil(denied.channel)
  end)

  it("that was sent twice says so in the audit", function()
    local c <close> = g:client("2025-11-25", { token = "bob-1" })
    c:result("tools/call", { name = "gh_echo", arguments = { n = 20 } })
    u:lose_sessions "404"
    c:result("tools/call", { name = "gh_echo", arguments = { n = 21 } })
    wait.for_fact("the line with a retry", 20, function()
      for text in io.lines(g.dir .. "/audit.jsonl") do
        local line = cjson.decode(text)
        if line.retries == 1 and line.name == "gh_echo" and line.channel:find "^session:%x+$" then return true end
      end
    end)
  end)
end)

describe("moonpool explain", function()
  it("knows the tool of an upstream", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local dir = gateway.prepare { scripts = scripts, config = { upstreams = { gh = { url = u.url, hide = { "drop" } } } } }
    local code, out, err = gateway.exec({ "explain", "ann", "gh_echo" }, { cwd = dir })
    gateway.run_program("/bin/rm", { "-rf", dir })
    assert.equal(0, code, out .. err)
    assert.matches("gh", out)
    assert.matches("inner", out)
  end)
end)
