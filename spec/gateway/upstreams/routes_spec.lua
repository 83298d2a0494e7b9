-- The quick way: a plain call of a federated tool is forwarded by C without Lua. Each call is sent to two gateways
-- before the same upstreams, one with the quick way and one without it; clients and upstreams get the same.
-- `calls_forwarded` counts calls that took the quick way to their end, `calls_taken_over` those that Lua went on with.
-- pairs: tools/call without Lua; clients 2024-11-05..; upstreams 2025-03-26.. http
-- pairs: tools/call without Lua; clients 2024-11-05..; upstreams 2024-11-05.. stdio
local cjson = require "cjson.safe"
local quick_way = require "spec.helpers.quick_way"
local raw = require "spec.helpers.upstream.raw"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local faults = upstream.faults

local call, gateways, seen_by, took = quick_way.call, quick_way.gateways, quick_way.seen_by, quick_way.took

-- Calls, each with the tool's own name; `meta` is added to the client's own `_meta`.
local CALLS <const> = {
  { "echo", { text = "a", n = 1.5, list = { 1, { a = "é" } } } }, { "echo", {} }, { "sum", { a = 1, b = 2.5 } }, { "complain", { a = 1 } }, { "kinds", {} },
  { "fail", { a = 1 } }, { "echo", { a = 1 }, { ["example.org/x"] = { 1, 2 } } }, { "echo", { a = 2 }, { progressToken = "t" } },
  { "progress", { steps = 2 }, { progressToken = 7 } }, { "big", { bytes = 3000 } },
  { "echo", { a = 3 }, { traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", tracestate = "a=1" } },
}

describe("the quick way", function()
  for _, serves in ipairs(upstream.revisions) do
    for _, transport in ipairs(upstream.served(upstream.transports(serves))) do
      it(("gives the same as the general one: every client before %s over %s"):format(serves, transport), function()
        local u <close> = upstream.start { revision = serves, transport = transport }
        local both <close> = gateways { one = u }
        for _, asks in ipairs(upstream.revisions) do
          local clients = { on = both.on:client(asks), off = both.off:client(asks) }
          for _, row in ipairs(CALLS) do
            local answers, received = {}, {}
            for mode, c in pairs(clients) do
              for _ = 1, mode == "on" and 2 or 1 do
                local before = #u:all { method = "tools/call" }
                local answer = call(c, "one_" .. row[1], row[2], row[3])
                answer.id = nil
                answers[mode] = answer
                received[mode] = seen_by(u:wait({ method = "tools/call" }, before + 1))
              end
            end
            local what = ("%s before %s: %s %s"):format(asks, serves, row[1], cjson.encode(row[2]))
            assert.same(answers.off, answers.on, what)
            assert.same(received.off, received.on, what)
          end
          assert.equal(1, (took(both.on, function() call(clients.on, "one_echo", { a = 1 }) end)), asks .. " before " .. serves)
          for _, c in pairs(clients) do c:close() end
        end
        assert.equal(0, (quick_way.counters(both.off)))
      end)
    end
  end
end)

describe("a result that the quick way passes on", function()
  it("has the upstream's bytes: numbers, escapes, unknown members and their order", function()
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      local u <close> = upstream.start { revision = revision }
      local both <close> = gateways { one = u }
      local inner = '{"z":1234567890123456789012345,"b":1e400,"c":1.0,"d":"\\u0041\\/","a":[ 1 , {"k":-0}]}'
      for _, asks in ipairs { "2025-11-25", "2026-07-28" } do
        local texts = {}
        for mode, g in pairs { on = both.on, off = both.off } do
          local c <close> = g:client(asks)
          call(c, "one_echo")
          u:when("tools/call echo", function(x)
            x:result(x:complete('{"content":[{"type":"text","text":"a","x":1.0}],"structuredContent":' .. inner .. ',"more":[1.50]}'))
          end, 1)
          local forwarded = took(g, function() texts[mode] = c:post(c:message("tools/call", { name = "one_echo", arguments = {} })).body end)
          assert.equal(mode == "on" and 1 or 0, forwarded)
        end
        for _, member in ipairs { "structuredContent", "content", "more", "resultType", "_meta" } do
          assert.equal(raw.at(texts.off, "result", member), raw.at(texts.on, "result", member), asks .. " " .. member)
        end
        assert.equal(inner, raw.at(texts.on, "result", "structuredContent"))
      end
    end
  end)

  it("is only a plain one: everything else is left to Lua, and gives the same", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local both <close> = gateways({ one = u }, { entries = { one = { circuit = { failures = 1000 } } } })
    local function of(bytes) return function(x) x:result(bytes) end end
    local long = ('"%s"'):format(("k"):rep(300000))
    local rows = {
      { of '{"content":[],"content":[]}' }, { of '{"content":[{"type":"text","text":"a","text":"b"}]}' }, { of '{"content":[1]}' }, { of '{"content":[{}]}' },
      { of '{"content":[{"type":1}]}' }, { of '{"content":{}}' }, { of '{"content":null}' }, { of "{}" }, { of "[]" }, { of '"text"' }, { of "null" },
      { of '{"content":[],"resultType":"input_required"}' }, { of '{"content":[],"isError":1}' }, { of '{"content":[],"_meta":1}' },
      { of '{"content":[],"structuredContent":[1]}', "2025-11-25" }, { of '{"\\u0063ontent":[]}' },
      { of('{"content":[{"type":"text","text":' .. long .. "}]}") }, { of('{"content":' .. ("["):rep(20) .. ("]"):rep(20) .. "}") },
      { faults.html() }, { faults.empty(200) }, { faults.status(500) }, { faults.busy(429, 1) }, { faults.lost "404" },
      { function(x) x:error(-32000, "no", "1") end }, { faults.twice(), nil, true },
      { of '{"content":[],"structuredContent":{"a":{"b":1,"b":2}}}' },
    }
    for i, row in ipairs(rows) do
      for _, asks in ipairs { row[2] or "2026-07-28", "2025-11-25" } do
        local answers = {}
        for mode, g in pairs { on = both.on, off = both.off } do
          local c <close> = g:client(asks)
          call(c, "one_echo")
          u:when("tools/call echo", row[1], 1)
          local answer
          local forwarded, taken = took(g, function() answer = call(c, "one_echo", { i = i }) end)
          answer.id = nil
          answers[mode] = answer
          assert.equal(mode == "on" and row[3] and 1 or 0, forwarded, ("row %d %s %s"):format(i, asks, mode))
          assert.equal(mode == "on" and not row[3] and 1 or 0, taken, ("row %d %s %s"):format(i, asks, mode))
          u:behave()
        end
        assert.same(answers.off, answers.on, ("row %d %s"):format(i, asks))
      end
    end
  end)

  it("is refused above limits.upstreams.answer, or limits.call.output where that is more", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local both <close> = gateways({ one = u }, { config = { limits = { call = { output = "5000B" }, upstreams = { answer = "100KiB" } } } })
    local answers = {}
    for mode, g in pairs { on = both.on, off = both.off } do
      local c <close> = g:client "2026-07-28"
      call(c, "one_big", { bytes = 10 })
      assert.equal(6000, #call(c, "one_big", { bytes = 6000 }).result.content[1].text)
      answers[mode] = call(c, "one_big", { bytes = 200000 })
      answers[mode].id = nil
    end
    assert.is_table(answers.on.error)
    assert.equal(answers.off.error.code, answers.on.error.code)
  end)
end)

describe("the quick way is not for", function()
  local u, g
  lazy_setup(function()
    u = upstream.start { revision = "2025-11-25" }
    g = upstream.gateway({ one = u, two = u }, {
      scripts = {
        ["upstreams/one.lua"] = 'return upstream { headers = function(call) return { ["x-a"] = "b" } end }',
        ["upstreams/two.lua"] = 'return upstream { visible = function(principal) return true end }',
      },
    })
  end)
  lazy_teardown(function()
    local _ <close> = g -- luacheck: ignore 211
    u:close()
  end)

  for name, row in pairs {
    ["an upstream that gets headers of a script"] = { "one_echo", {} }, ["a tool with `visible`"] = { "two_echo", {} },
  } do
    it(name, function()
      local c <close> = g:client "2026-07-28"
      local forwarded, taken = took(g, function()
        for _ = 1, 3 do upstream.text(call(c, row[1], row[2])) end
      end)
      assert.same({ 0, 0 }, { forwarded, taken })
    end)
  end

  it("a tool whose arguments headers repeat", function()
    local modern <close> = upstream.start { revision = "2026-07-28" }
    local here <close> = upstream.gateway { one = modern }
    local c <close> = here:client "2025-11-25"
    assert.equal(0, (took(here, function()
      for _ = 1, 3 do upstream.text(call(c, "one_tenant", { tenant = "a" })) end
    end)))
  end)

  it("a gateway whose audit shows values of arguments", function()
    local audited <close> = upstream.gateway({ one = u }, { config = { log = { audit = "audit.log", audit_arguments = "full" } } })
    local c <close> = audited:client "2026-07-28"
    assert.equal(0, (took(audited, function()
      for _ = 1, 3 do upstream.text(call(c, "one_echo", {})) end
    end)))
  end)
end)

-- An upstream whose tools can run as MCP tasks: of 2025-11-25 where the call asks for it, of 2026-07-28 those whose
-- names begin with "task".
local function tasks_upstream(revision)
  local u = upstream.start { revision = revision, tasks = true }
  local support = revision == "2025-11-25" and ',"execution":{"taskSupport":"%s"}' or ""
  local function definition(name, word) return ('{"name":"%s","inputSchema":{"type":"object"}%s}'):format(name, support:format(word)) end
  u:offer("tools", { definition("echo", "optional"), definition("task_echo", "optional"), definition("task_must", "required"),
    '{"name":"sum","inputSchema":{"type":"object"}}' })
  u.handlers.task_echo = function(x, reply) reply(x:complete '{"content":[{"type":"text","text":"done"}]}') end
  u.handlers.task_must = u.handlers.task_echo
  return u
end

describe("a tool that its upstream can run as an MCP task", function()
  local can = { extensions = { ["io.modelcontextprotocol/tasks"] = { [" "] = 1 } } }

  for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
    it("takes the quick way for clients without tasks, before " .. revision .. "; Lua goes on with what becomes a task", function()
      local u <close> = tasks_upstream(revision)
      local both <close> = gateways { one = u }
      for _, asks in ipairs { "2025-06-18", "2025-11-25", "2026-07-28" } do
        local clients = { on = both.on:client(asks, { capabilities = {} }), off = both.off:client(asks, { capabilities = {} }) }
        for _, name in ipairs { "one_echo", "one_task_echo", "one_sum" } do
          local answers, received = {}, {}
          for mode, c in pairs(clients) do
            for _ = 1, mode == "on" and 2 or 1 do
              local before = #u:all { method = "tools/call" }
              answers[mode] = call(c, name, { a = 1, b = 2 })
              answers[mode].id = nil
              received[mode] = seen_by(u:wait({ method = "tools/call" }, before + 1))
            end
          end
          assert.same(answers.off, answers.on, asks .. " " .. name)
          assert.same(received.off, received.on, asks .. " " .. name)
          local becomes_task = revision == "2026-07-28" and name == "one_task_echo" and asks ~= "2026-07-28"
          local forwarded, taken = took(both.on, function() upstream.text(call(clients.on, name, { a = 1, b = 2 })) end)
          assert.same(becomes_task and { 0, 1 } or { 1, 0 }, { forwarded, taken }, asks .. " " .. name)
        end
        for _, c in pairs(clients) do c:close() end
      end
    end)

    it("never takes it for a client that can have a task, before " .. revision, function()
      local u <close> = tasks_upstream(revision)
      local g <close> = upstream.gateway({ one = u }, { workers = 1, env = { MOONPOOL_PLANS = "on" } })
      local plain <close> = g:client("2026-07-28", { capabilities = {} })
      local c <close> = g:client("2026-07-28", { capabilities = can })
      for _, name in ipairs { "one_sum", "one_echo", "one_task_echo" } do
        for _ = 1, 2 do call(plain, name, { a = 1, b = 2 }) end
      end
      local quick = revision == "2025-11-25" and 2 or 0          -- calls of the tool that cannot run as a task
      assert.same({ quick, 0 }, { took(g, function()
        for _ = 1, 3 do call(c, "one_sum", { a = 1, b = 2 }) end
        for _ = 1, 3 do
          local answer = call(c, "one_task_echo")
          assert.equal("task", answer.result.resultType)
        end
      end) })
      if revision == "2025-11-25" then
        local asking <close> = g:client("2025-11-25", { capabilities = {} })
        assert.same({ 0, 0 }, { took(g, function()
          for _ = 1, 3 do assert.is_table(asking:result("tools/call", { name = "one_task_must", arguments = {}, task = {} }).task) end
        end) })
      end
      g:wait_status(function(status) return status.gauges.jobs == 0 end)
    end)
  end
end)

describe("a call on the quick way", function()
  it("uses the channel of its own client", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { workers = 1, env = { MOONPOOL_PLANS = "on" } })
    local a <close> = g:client "2025-11-25"
    local b <close> = g:client "2025-06-18"
    local m <close> = g:client "2026-07-28"
    local forwarded = took(g, function()
      for n = 1, 4 do
        for _, c in ipairs { a, b, m } do assert.equal(tostring(n), upstream.text(call(c, "one_counter")):match "%d+") end
      end
    end)
    assert.equal(9, forwarded)
  end)

  it("is cancelled upstream by the upstream's id when its client cancels or hangs up, and ends with nothing open", function()
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      local u <close> = upstream.start { revision = revision }
      local g <close> = upstream.gateway({ one = u }, { workers = 1 })
      local old <close> = g:client "2025-11-25"
      local new <close> = g:client "2026-07-28"
      for _, c in ipairs { old, new } do
        local first = c:open("tools/call", { name = "one_hold", arguments = { key = "first" } })
        u:wait_held(1)
        u:release()
        first:answer(10)
      end
      local one = old:open("tools/call", { name = "one_hold", arguments = { key = "a" } })
      u:wait_held(1)
      old:notify("notifications/cancelled", { requestId = one.id })
      local two = new:open("tools/call", { name = "one_hold", arguments = { key = "b" } })
      u:wait_held(1, "b")
      two:hang_up()
      if revision == "2025-11-25" then
        u:wait({ method = "notifications/cancelled" }, 2)
      else
        wait.for_fact("both calls to be cancelled", 20, function()
          local count = 0
          for _, entry in ipairs(u:all { method = "tools/call" }) do count = count + ((entry.cancelled or entry.left) and 1 or 0) end
          return count == 2
        end)
      end
      g:wait_status(function(s)
        return s.gauges.upstream_exchanges == 0 and s.gauges.requests_in_flight == 0 and s.gauges.tasks == 0 and s.gauges.ops == 0
      end)
      u:behave()
    end
  end)

  it("fails by the upstream's timeout with the words of the general way, and is not subject to limits.call.time", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local both <close> = gateways({ one = u }, { entries = { one = { timeout = "2s" } }, config = { limits = { call = { time = "300ms" } } } })
    local answers = {}
    for mode, g in pairs { on = both.on, off = both.off } do
      local c <close> = g:client "2026-07-28"
      call(c, "one_echo")
      u:when("tools/call echo", faults.hangs(), 1)
      answers[mode] = call(c, "one_echo")
      answers[mode].id = nil
    end
    assert.same(answers.off, answers.on)
    upstream.failure(answers.on, "unknown", "timeout")
  end)

  it("is a call in the metrics and in the request log", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local both <close> = gateways({ one = u }, { config = { log = { level = "debug" } } })
    local lines = {}
    for mode, g in pairs { on = both.on, off = both.off } do
      local c <close> = g:client "2026-07-28"
      for _ = 1, 2 do call(c, "one_echo") end
      for _ = 1, 2 do call(c, "one_complain", { a = 1 }) end
      lines[mode] = {}
      -- a call is counted and logged after its answer
      wait.for_fact("four calls in the log", 20, function()
        local n = 0
        for _, line in ipairs(g:log_lines()) do n = n + (line.event == "request" and line.fields.name and 1 or 0) end
        return n >= 4
      end)
      wait.for_fact("four calls in the metrics", 20, function()
        local n = 0
        for count in g:admin("/metrics").body:gmatch 'tool_calls_total{[^}]*"one_[^}]*} (%d+)' do n = n + tonumber(count) end
        return n >= 4
      end)
      for line in g:admin("/metrics").body:gmatch "[^\n]+" do
        if line:find("one_", 1, true) and not line:find "seconds" then table.insert(lines[mode], line) end
      end
      table.sort(lines[mode])
      assert.is_true(#lines[mode] > 0)
      for _, line in ipairs(g:log_lines()) do
        local f = line.fields
        if line.event == "request" and f.name then table.insert(lines[mode], ("%s %s %s %s"):format(f.method, f.name, f.outcome, f.status)) end
      end
    end
    assert.same(lines.off, lines.on)
  end)

  it("follows a catalogue that changes, and a reload", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local g <close> = upstream.gateway({ one = u }, { workers = 1, entries = { one = { refresh = "1s" } }, env = { MOONPOOL_PLANS = "on" },
      scripts = { ["tools/own.lua"] = 'return tool { "Own.", function() return "own" end }' } })
    local c <close> = g:client "2026-07-28"
    for _ = 1, 2 do upstream.text(call(c, "one_echo")) end
    u:offer("tools", { "other", '{"name":"other","inputSchema":{"type":"object"}}' })
    wait.for_fact("the tool to be gone", 20, function() return call(c, "one_echo").error end)
    wait.for_fact("the new tool", 20, function() return call(c, "one_other").result end)
    assert.equal(1, (took(g, function() upstream.text(call(c, "one_other")) end)))
    local generation = g:status().scripts.generation
    local file <close> = assert(io.open(g.dir .. "/scripts/tools/more.lua", "w"))
    file:write 'return tool { "More.", function() return "more" end }'
    file:flush()
    g:signal "sighup"
    g:wait_status(function(s) return s.scripts.generation > generation end)
    upstream.text(call(c, "one_other"))
    assert.equal(1, (took(g, function() upstream.text(call(c, "one_other")) end)))
  end)
end)
