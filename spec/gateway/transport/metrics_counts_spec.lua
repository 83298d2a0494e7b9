-- What /metrics counts, whatever workers and reloads do meanwhile: numbers against a load that is known exactly; names
-- that clients invent; a text at the caps.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local scrape = require "spec.helpers.scrape"
local uv = require "luv"

local scripts = {
  ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.number, b = t.number }, function(args) return args.a + args.b end }',
  ["tools/fail.lua"] = 'return tool { "Fails.", function() return nil, "it failed" end }',
  ["tools/wait.lua"] = 'return tool { "Waits.", function() sleep(0.001) return "waited" end }',
  ["prompts/greet.lua"] = 'return prompt { "Greets.", function() return "Hello" end }',
  ["resources/text.lua"] = 'return resource { "A text.", uri = "text://fixed", function() return "fixed" end }',
}

local function save(g, path, text)
  local file <close> = assert(io.open(g.dir .. "/scripts/" .. path, "w"))
  file:write(text)
end

local function operation(method, version, err)
  return ('mcp_server_operation_duration_seconds_count{mcp_method_name="%s",mcp_protocol_version="%s",network_transport="tcp",error_type="%s"}')
    :format(method, version, err or "")
end

describe("/metrics", function()
  it("counts what a known load has done, over 4 workers and 20 reloads, and no counter falls", function()
    local g <close> = gateway.start { scripts = scripts, workers = 4 }
    local done, last = {}, {}
    local function did(name, n) done[name] = (done[name] or 0) + (n or 1) end
    for round = 1, 21 do
      for _, revision in ipairs { "2024-11-05", "2025-11-25", "2026-07-28" } do
        local c <close> = g:client(revision)
        if revision ~= "2026-07-28" then did(operation("initialize", revision)) end
        for name, outcome in pairs { add = "ok", fail = "failed", wait = "ok" } do
          c:result("tools/call", { name = name, arguments = name == "add" and { a = 1, b = round } or nil })
          did(operation("tools/call", revision, outcome == "failed" and "tool_error" or ""))
          did(('moonpool_tool_calls_total{gen_ai_tool_name="%s",outcome="%s"}'):format(name, outcome))
          did(('moonpool_tool_duration_seconds_count{gen_ai_tool_name="%s"}'):format(name))
        end
        assert.equal(-32602, c:call("tools/call", { name = "none" }).error.code)
        did(operation("tools/call", revision, "-32602"))
        c:result("prompts/get", { name = "greet" })
        did(operation("prompts/get", revision))
        did 'moonpool_prompt_gets_total{gen_ai_prompt_name="greet",outcome="ok"}'
        c:result("resources/read", { uri = "text://fixed" })
        did(operation("resources/read", revision))
        did 'moonpool_resource_reads_total{resource="text",outcome="ok"}'
        assert.equal(-32601, c:call("no/method", {}).error.code)
        did(operation("_other", revision, "-32601"))
      end
      if round <= 20 then
        save(g, "tools/new.lua", ('return tool { "New %d.", function() return "new" end }'):format(round))
        assert.equal(200, g:admin("/reload", "POST").status)
        local now = scrape.samples(g)
        for name, value in pairs(last) do
          if name:find "_total[{ ]?" or name:find "_count{" or name:find "_bucket{" then
            assert.truthy((now[name] or 0) >= value, ("%s fell from %s to %s"):format(name, value, now[name]))
          end
        end
        last = now
      end
    end
    done['moonpool_reloads_total{outcome="done"}'] = 20
    scrape.wait(g, done)
  end)

  it("has no series for names that clients invent: of tools, methods, prompts, resources, revisions and hosts", function()
    local g <close> = gateway.start { scripts = scripts, workers = 2 }
    local c <close> = g:client "2026-07-28"
    local function invent(i)
      local name = "invented" .. i
      c:call("tools/call", { name = name })
      c:call("invented/" .. name, {})
      c:call("prompts/get", { name = name })
      c:call("resources/read", { uri = "invented://" .. name })
    end
    local connection <close> = g:connect()
    local function odd(i)
      local answer = connection:request {
        method = "POST", path = "/mcp", body = ('{"jsonrpc":"2.0","id":1,"method":"ping"}'),
        headers = { ["Content-Type"] = "application/json", Accept = "application/json, text/event-stream", ["MCP-Protocol-Version"] = "invented" .. i },
      }
      assert.truthy(answer.status >= 400)
      answer = connection:request { path = "/mcp/invented" .. i, headers = { Host = "localhost" } }
      assert.truthy(answer.status >= 400)
    end
    invent(0)
    odd(0)
    local count = 0
    scrape.wait(g, { [operation("_other", "2026-07-28", "-32601")] = 1 })
    for _ in pairs(scrape.samples(g)) do count = count + 1 end
    for i = 1, 2500 do
      invent(i)
      if i % 25 == 0 then odd(i) end
    end
    local samples, later = scrape.wait(g, { [operation("_other", "2026-07-28", "-32601")] = 2501 }), 0
    for name in pairs(samples) do
      later = later + 1
      assert.is_nil(name:find("invented", 1, true), name)
    end
    assert.equal(count, later)
  end)

  it("is under 8 MiB at its caps, and one text for all who ask within a second", function()
    local many = { ["tools/all.lua"] = [[
      local made = {}
      for i = 1, 10 do
        made[i] = metrics.histogram { "histogram_with_a_name_of_some_length_" .. i, "A histogram", labels = { "one", "other" }, most = 100,
          buckets = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19 } }
      end
      return tool { "Fills all series.", function()
        for i = 1, 10 do
          for label = 1, 101 do made[i]:observe(1, { one = "a value of some length " .. label, other = "another" }) end
        end
        return "filled"
      end }]] }
    for i = 1, 510 do many[("tools/a_tool_with_a_long_name_%d.lua"):format(i)] = 'return tool { "Named.", function() return "done" end }' end
    local g <close> = gateway.start { scripts = many, workers = 1 }
    local c <close> = g:client "2026-07-28"
    c:result("tools/call", { name = "all" })
    for i = 1, 510 do c:result("tools/call", { name = "a_tool_with_a_long_name_" .. i }) end
    local samples = scrape.wait(g, { [operation("tools/call", "2026-07-28")] = 511 })
    assert.truthy(samples['moonpool_tool_duration_seconds_count{gen_ai_tool_name="_other"}'] >= 10)
    assert.equal(1, samples['app_histogram_with_a_name_of_some_length_1_count{one="_other",other="_other"}'])
    local size = #scrape.text(g)
    assert.truthy(size > 2 << 20 and size < 8 << 20, size)
    local readers, texts, began = {}, {}, uv.hrtime()
    for i = 1, 10 do
      readers[i] = client.connect(g, { admin = true })
      readers[i]:send { path = "/metrics" }
    end
    for _, reader in ipairs(readers) do
      texts[reader:read_response().body] = true
      reader:close()
    end
    local different = 0
    for _ in pairs(texts) do different = different + 1 end
    -- the gateway makes a new text at most once a second
    assert.truthy(different <= 2 + (uv.hrtime() - began) // 1e9, different)
  end)
end)
