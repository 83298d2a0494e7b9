-- The quick way of calls to upstreams in real set-ups: with an audit, scopes, headers that are passed on, clients that can
-- be asked, and policies. Each call is sent to two gateways, with the quick way and without it: clients, upstreams and
-- the audit get the same.
-- pairs: tools/call without Lua, in real set-ups; clients 2024-11-05..; upstreams 2025-03-26.. http
local audit_lines = require "spec.helpers.audit_lines"
local cjson = require "cjson.safe"
local credentials = require "spec.helpers.credentials"
local quick_way = require "spec.helpers.quick_way"
local raw = require "spec.helpers.upstream.raw"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local call, gateways, seen_by, took = quick_way.call, quick_way.gateways, quick_way.seen_by, quick_way.took

local EVERYTHING <const> = { elicitation = { form = {}, url = {} }, sampling = { tools = {}, context = {} }, roots = { listChanged = true } }
local AUDIT <const> = { audit = "audit.jsonl" }
local SCOPED <const> = {
  ["auth/main.lua"] = credentials.script, ["upstreams/one.lua"] = 'return upstream { scopes = { echo = { "notes:read" }, sum = { "notes:write" } } }',
}
local DEFINED <const> = { ["upstreams/one.lua"] = [[return upstream {
  definition = function(def) def.description = "ours" return def end, ask = function(question) return question end }]] }

local function policy(body) return { ["policy/some.lua"] = "return policy { tools = { \"one_*\" }, function(call, next) " .. body .. " end }" } end

local function both_of(...)
  local made = {}
  for _, list in ipairs { ... } do
    for path, text in pairs(list) do made[path] = text end
  end
  return made
end

local many = { "x-request-id" }
for i = 1, 16 do many[i + 1] = "x-" .. i end

-- `quick`: requests to the upstream by the quick way, of one call of each client before each upstream; 5 if not said. `token`: of the client; `headers`: of its
-- requests.
local SETUPS <const> = {
  { name = "an audit", config = { log = AUDIT } },
  { name = "an audit without the names of arguments", config = { log = { audit = "audit.jsonl", audit_arguments = "none" } } },
  { name = "scopes", scripts = SCOPED, token = "ann-1" },
  { name = "scopes and an audit", scripts = SCOPED, token = "ann-1", config = { log = AUDIT } },
  { name = "a script of the upstream", scripts = DEFINED },
  { name = "headers that are passed on", entries = { one = { pass = { "X-Request-Id", "x-absent" } } }, headers = { ["x-request-id"] = " a  b " } },
  { name = "more headers than C copies", entries = { one = { pass = many } }, headers = { ["x-request-id"] = "a" }, quick = 0 },
  { name = "a policy that passes on", scripts = policy "return next(call)" },
  { name = "a policy that reads the arguments", scripts = policy "if call.args.n == 2 then fail 'not two' end return next(call)" },
  { name = "a policy that changes an argument", scripts = policy "call.args.n = 1.50 return next(call)" },
  { name = "a policy that replaces the arguments", scripts = policy "call.args = { a = 1, b = 2, list = { 1, 2 }, steps = 1, bytes = 9 } return next(call)" },
  { name = "a policy that looks at the result", scripts = policy [[local r = next(call)
      if r and not r.isError then r.content[1] = { type = "text", text = r.content[1].text .. "!" } end return r]] },
  { name = "a policy that calls twice", scripts = policy "next(call) return next(call)", quick = 10 },
  { name = "a policy that refuses", scripts = policy "return nil, 'no'", quick = 0 },
  { name = "a policy that fails", scripts = policy "next(call) error 'a bug'" },
  { name = "a policy that answers", scripts = policy "return 'made up'", quick = 0 },
  { name = "two policies and an audit", config = { log = AUDIT }, scripts = both_of(policy "return next(call)",
    { ["policy/other.lua"] = [[return policy { tools = { "one_echo" }, function(call, next)
        if call.args.n == 7 then fail "seven" end return next(call) end }]] }) },
  { name = "all of these", config = { log = AUDIT }, scripts = both_of(SCOPED, policy "return next(call)"), token = "ann-1",
    entries = { one = { pass = { "x-request-id" } } }, headers = { ["x-request-id"] = "r-1" } },
}

local CALLS <const> = {
  { "echo", { text = "a", n = 1, list = { 1, { a = "é" } } } }, { "echo", {} }, { "echo", { n = 2 } }, { "echo", { n = 7 } }, { "sum", { a = 1, b = 2.5 } },
  { "complain", { a = 1 } }, { "kinds", {} }, { "fail", { a = 1 } }, { "echo", { a = 1 }, { ["example.org/x"] = { 1, 2 } } },
  { "echo", { a = 2 }, { progressToken = "t" } }, { "progress", { steps = 2 }, { progressToken = 7 } }, { "big", { bytes = 3000 } },
  { "echo", { a = 3 }, { traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", tracestate = "a=1" } },
}

local function last_line(g, count)
  wait.for_fact(count .. " audit lines", 10, function() return #audit_lines.of(g, "tools/call") >= count end)
  return audit_lines.of(g, "tools/call")[count]
end

local function without_faults(answer)
  return cjson.decode((cjson.encode(answer):gsub("internal error %x%x%x%x", "internal error 1")))
end

describe("the quick way gives the same as the general one with", function()
  for _, setup in ipairs(SETUPS) do
    it(setup.name, function()
      local count = 0
      for _, serves in ipairs { "2025-11-25", "2026-07-28" } do
        local u <close> = upstream.start { revision = serves }
        local both <close> = gateways({ one = u }, { config = setup.config, scripts = setup.scripts, entries = setup.entries })
        local audited = 0
        for _, asks in ipairs { "2025-03-26", "2025-11-25", "2026-07-28" } do
          local options = { capabilities = EVERYTHING, token = setup.token }
          local clients = { on = both.on:client(asks, options), off = both.off:client(asks, options) }
          for _, c in pairs(clients) do
            local headers = c.headers
            c.headers = function(...)
              local all = headers(...)
              for name, value in pairs(setup.headers or {}) do all[name] = value end
              return all
            end
          end
          for _, row in ipairs(CALLS) do
            local answers, received = {}, {}
            for mode, c in pairs(clients) do
              for _ = 1, 2 do
                local before = #u:all { method = "tools/call" }
                answers[mode] = without_faults(call(c, "one_" .. row[1], row[2], row[3]))
                answers[mode].id = nil
                local list = u:all { method = "tools/call" }
                received[mode] = list[before + 1] and seen_by(list[before + 1], { "x-request-id" })
                received[mode .. " number"] = #list - before
              end
            end
            local what = ("%s before %s: %s %s"):format(asks, serves, row[1], cjson.encode(row[2]))
            assert.same(answers.off, answers.on, what)
            assert.same(received.off, received.on, what)
            assert.equal(received["off number"], received["on number"], what)
            if setup.config then
              audited = audited + 2
              assert.equal(last_line(both.off, audited), last_line(both.on, audited), what)
            end
          end
          count = count + took(both.on, function() call(clients.on, "one_echo", { a = 1 }) end)
          call(clients.off, "one_echo", { a = 1 })
          audited = audited + 1
          for _, c in pairs(clients) do c:close() end
        end
      end
      -- calls of a stateless client that can be asked may have to take turns before an older upstream: one of six is not quick
      assert.equal(setup.quick or 5, count)
    end)
  end
end)

local FORM <const> = '{"message":"Name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}'

describe("a client that can be asked, after calls by the quick way,", function()
  for _, kind in ipairs { { "2024-11-05", "sse" }, { "2025-11-25", "http" }, { "2025-11-25", "stdio" } } do
    for _, scripts in ipairs { {}, policy "return next(call)" } do
      it(("is asked by %s over %s%s"):format(kind[1], kind[2], next(scripts) and ", through a policy" or ""), function()
        local u <close> = upstream.start { revision = kind[1], transport = kind[2] }
        u:offer("tools", { "ask", "echo" })
        local g <close> = upstream.gateway({ one = u }, { workers = 1, env = { MOONPOOL_PLANS = "on" }, scripts = scripts })
        local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
        local question = { questions = { { "elicitation/create", cjson.decode(FORM) } } }
        local function ask()
          local stream = c:open("tools/call", { name = "one_ask", arguments = question })
          local form = stream:wait_event("elicitation/create").json
          c:post { jsonrpc = "2.0", id = form.id, result = { action = "accept", content = { name = "Ann" } } }
          assert.same({ action = "accept", content = { name = "Ann" } }, cjson.decode(upstream.text(stream:answer(20)))[1])
        end
        ask()
        local forwarded, taken = took(g, function()
          call(c, "one_echo", {})
          call(c, "one_echo", {})
          ask()
        end)
        assert.same({ 1, 1 }, { forwarded, taken })
        u:behave()
      end)
    end
  end

  -- The tool `need` of a stateless upstream asks at the second request of a call.
  local function needing()
    local u = upstream.start { revision = "2026-07-28" }
    u:offer("tools", { "need", "echo" })
    u.handlers.need = function(x, reply)
      if raw.at(x.text, "params", "inputResponses") then return reply(x:complete '{"content":[{"type":"text","text":"thanks"}]}') end
      if raw.at(x.text, "params", "arguments", "asks") then
        return reply(('{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":%s}}}'):format(FORM))
      end
      reply(x:complete '{"content":[{"type":"text","text":"nothing"}]}')
    end
    return u
  end

  it("gets the questions of a stateless upstream, and what a policy had done before is not done again", function()
    local u <close> = needing()
    local g <close> = upstream.gateway({ one = u }, { workers = 1, env = { MOONPOOL_PLANS = "on" }, scripts = policy [[
      if call.args.asks then
        local asks = call.args.asks
        call.args.asks = nil
        next(call)
        call.args.asks = asks
      end
      return next(call)]] })
    local c <close> = g:client("2026-07-28", { capabilities = EVERYTHING })
    for _ = 1, 2 do call(c, "one_need", {}) end
    local before = #u:all { method = "tools/call" }
    local first
    assert.same({ 1, 1 }, { took(g, function() first = call(c, "one_need", { asks = true }).result end) })
    assert.equal("input_required", first.resultType)
    local again = c:call("tools/call", { name = "one_need", arguments = { asks = true }, requestState = first.requestState,
      inputResponses = { [next(first.inputRequests)] = { action = "accept", content = { name = "Ann" } } } })
    assert.equal("thanks", upstream.text(again))
    -- the request of the policy, the one that asks, and that with the answer
    assert.equal(3, #u:all { method = "tools/call" } - before)
  end)
end)

describe("scopes of a route", function()
  it("refuse a principal without them after others have made the route, and the audit says so", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local both <close> = gateways({ one = u }, { config = { log = AUDIT }, scripts = {
      ["auth/main.lua"] = [[return auth { scopes_supported = { "a", "b" }, function(request)
        local name = try(request.bearer, "no token")
        return { id = name, scopes = name == "ann" and { "a" } or { "b" } } end }]],
      ["upstreams/one.lua"] = 'return upstream { scopes = { "a" } }',
    } })
    local lines, answers = {}, {}
    for mode, g in pairs { on = both.on, off = both.off } do
      local ann <close> = g:client("2026-07-28", { token = "ann" })
      local bob <close> = g:client("2026-07-28", { token = "bob" })
      ann:result "tools/list" -- the audit line of a call that comes before the lists names no upstream
      local forwarded = took(g, function()
        for _ = 1, 3 do upstream.text(call(ann, "one_echo", {})) end
        for _ = 1, 3 do answers[mode] = call(bob, "one_echo", {}) end
      end)
      assert.equal(mode == "on" and 2 or 0, forwarded)
      answers[mode].id = nil
      last_line(g, 6)
      lines[mode] = audit_lines.of(g, "tools/call")
    end
    assert.is_table(answers.on.error)
    assert.same(answers.off, answers.on)
    assert.same(lines.off, lines.on)
  end)
end)
