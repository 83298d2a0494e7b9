-- Times of an upstream's call: without a sign of life, in all, and while a channel is opened. Late answers are dropped.
-- pairs: time limits; clients 2025-11-25; upstreams 2025-11-25.. http
-- pairs: time limits; clients 2025-11-25; upstreams 2025-06-18 stdio
local cjson = require "cjson.safe"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local function start(options, entry, hung)
  local u = upstream.start(options)
  if hung then u:when(hung, upstream.faults.hangs()) end
  return u, upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = entry }), config = { limits = { call = { time = "1s" } } } })
end

-- Does something every 200 ms until `stop()` is called.
local function every(f)
  local timer = uv.new_timer()
  timer:start(200, 200, f)
  return function()
    if not timer:is_closing() then timer:close() end
  end
end

for _, row in ipairs(upstream.kinds()) do
  describe(("a call at an upstream of %s over %s"):format(row[1], row[2]), function()
    it("ends after `timeout` without a sign of life, is cancelled there, and its late answer is dropped", function()
      local u, g = start({ revision = row[1], transport = row[2] }, { timeout = "1500ms" })
      local c <close> = g:client "2025-11-25"
      c:result("tools/call", { name = "look", arguments = { n = 1 } })
      local began = uv.hrtime()
      local stream = c:open("tools/call", { name = "hold", arguments = { key = "a" } })
      local x = u:wait_held(1)[1]
      x.ignores_cancel = true
      local _, message = upstream.failure(stream:answer(), "unknown", "timeout")
      assert.is_true((uv.hrtime() - began) / 1e9 >= wait.least(1.5)) -- longer than limits.call.time, which does not count here
      assert.matches("did not answer within 1.5 s", message, 1, true)
      wait.for_fact("the call to be cancelled", 20, function() return x.cancelled or x.left end)
      u:release()
      assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "echo", arguments = { n = 1 } })))
      c:close()
      g:stop()
      u:close()
    end)

    it("goes on with progress, but not beyond `timeout_total`", function()
      local u, g = start({ revision = row[1], transport = row[2] }, { timeout = "1s", timeout_total = "3s" })
      local c <close> = g:client "2025-11-25"
      c:result("tools/call", { name = "look", arguments = { n = 1 } })
      local began = uv.hrtime()
      local stream = c:open("tools/call", { name = "hold", arguments = { key = "a" }, _meta = { progressToken = "p" } })
      local x, n = u:wait_held(1)[1], 0
      local stop = every(function()
        n = n + 1
        x:report(n)
      end)
      upstream.failure(stream:answer(), "unknown", "total")
      stop()
      assert.is_true((uv.hrtime() - began) / 1e9 >= wait.least(3))
      c:close()
      g:stop()
      u:close()
    end)
  end)
end

describe("progress for which no client has asked", function()
  local SCRIPT <const> = [[
    return tool { "Waits at the upstream.", function() return try(upstream "one":call("hold", { key = "script" })).text end }
  ]]

  -- Lets the requests that the upstream holds report progress for longer than twice the `timeout`, then answers them.
  local function report_and_release(u, count)
    local held, n = u:wait_held(count), 0
    for _, x in ipairs(held) do assert.is_truthy(x.token) end
    local began = uv.hrtime()
    local stop = every(function()
      n = n + 1
      for _, x in ipairs(held) do x:report(n, nil, "step") end
    end)
    wait.for_fact("the time of the requests", 20, function() return uv.hrtime() - began > 2.2e9 end)
    stop()
    for _, x in ipairs(held) do
      if x.held_result then x:result(x:complete(x.held_result)) end
    end
    u:release()
  end

  local REQUESTS <const> = {
    { "tools/call", { name = "hold", arguments = { key = "a" } } }, { "tools/call", { name = "waits", arguments = {} } },
    { "prompts/get", { name = "one" } }, { "resources/read", { uri = "stub://text" } },
  }

  for _, row in ipairs(upstream.kinds()) do
    it(("keeps a request alive at an upstream of %s over %s, and is not passed on"):format(row[1], row[2]), function()
      local u <close> = upstream.start { revision = row[1], transport = row[2] }
      u:offer("prompts", { '{"name":"one"}' })
      for name, result in pairs { ["prompts/get"] = '{"messages":[]}', ["resources/read"] = '{"contents":[]}' } do
        u:when(name, function(x)
          x.held_result = result
          table.insert(u.held, x)
        end)
      end
      local g <close> = upstream.gateway({ one = u }, {
        entries = upstream.plain({ one = u }, { one = { timeout = "1s", per = "gateway" } }), workers = 1, scripts = { ["tools/waits.lua"] = SCRIPT },
      })
      local old <close> = g:client "2025-11-25"
      local new <close> = g:client "2026-07-28"
      local streams = {}
      for _, c in ipairs { old, new } do c:result("tools/list", {}) end
      g:wait_status(function(status) return status.gauges.tasks == 0 end)
      for _, c in ipairs { old, new } do
        local first = c:open(REQUESTS[1][1], REQUESTS[1][2])   -- takes the general way; the next one takes the quick way
        u:wait_held(1)
        u:release()
        first:answer()
      end
      for _, c in ipairs { old, new } do
        for _, request in ipairs(REQUESTS) do streams[#streams + 1] = c:open(request[1], request[2]) end
      end
      report_and_release(u, #streams)
      for _, stream in ipairs(streams) do
        local answer = stream:answer()
        assert.is_table(answer.result, cjson.encode(answer))
        for _, message in ipairs(stream:messages()) do assert.not_equal("notifications/progress", message.method) end
      end
      if os.getenv "MOONPOOL_PLANS" ~= "off" then assert.is_true(g:status().counters.calls_forwarded >= 2) end
    end)
  end
end)

describe("comments and pings of an upstream", function()
  it("are no sign of life", function()
    local u, g = start({ revision = "2025-11-25" }, { timeout = "1500ms" })
    local c <close> = g:client "2025-11-25"
    c:result("tools/call", { name = "look", arguments = { n = 1 } })
    local stream = c:open("tools/call", { name = "hold", arguments = { key = "a" } })
    local x = u:wait_held(1)[1]
    local stop = every(function()
      if not x.over then x:send_events ": still here\n\n" end
    end)
    upstream.failure(stream:answer(), "unknown", "timeout")
    stop()
    c:close()
    g:stop()
    u:close()
  end)
end)

describe("an upstream that is slow to open", function()
  it("is given `open`, and the call did not run", function()
    for _, transport in ipairs(upstream.served { "http", "stdio" }) do
      local u, g = start({ revision = "2025-11-25", transport = transport }, { open = "1s", list_wait = "100ms" }, "initialize")
      local c <close> = g:client "2026-07-28"
      assert.equal(0, #c:result("tools/list", {}).tools)
      assert.is_truthy(c:call("tools/call", { name = "echo", arguments = { n = 1 } }).error)
      assert.equal(0, u:ran())
      c:close()
      g:stop()
      u:close()
    end
  end)
end)
