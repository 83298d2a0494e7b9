-- The head of an event stream forbids every proxy to buffer it, compress it or count its bytes; so an nginx with its
-- default settings forwards it at once (B-54).
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local nginx = require "spec.helpers.nginx"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local config = { heartbeat = "60s" }
local AT_ONCE = 0.1 -- seconds, for a connection by the proxy and the first event

local scripts = { ["tools/steps.lua"] = [[return tool { "Steps, then waits.", input = { wait = t.number }, function(args, call)
  call:progress(1)
  sleep(args.wait)
  call:progress(2)
  return "done"
end }]] }

local told = { progressToken = "p" }
local squeezed = "gzip, deflate, br, zstd, *"

local function leave(me)
  if me.delete then me:delete() end
  me:close()
end

local function assert_head(head)
  assert.equal(200, head.status)
  assert.equal("text/event-stream", head.headers["content-type"])
  assert.truthy(head.headers["cache-control"]:find("no-cache", 1, true))
  assert.equal("no", head.headers["x-accel-buffering"])
  assert.is_nil(head.headers["content-length"])
  assert.is_nil(head.headers["content-encoding"])
end

describe("the head of an event stream", function()
  it("forbids proxies to buffer, store and compress it, for any Accept-Encoding", function()
    local g <close> = gateway.start { config = config, scripts = scripts }
    local sse = client.connect(g)
    sse:send { path = "/sse", headers = { Accept = "text/event-stream", ["Accept-Encoding"] = squeezed } }
    assert_head(sse:read_head())
    sse:wait_event "endpoint"
    for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
      local me = g:client(revision)
      if me.get_stream then
        assert_head(me:get_stream({ ["Accept-Encoding"] = squeezed }):head())
      end
      local call = me:message("tools/call", { name = "steps", arguments = { wait = 0 }, _meta = told })
      local headers = me:headers(call)
      headers["Accept-Encoding"] = squeezed
      local connection = client.connect(g)
      connection:send { method = "POST", path = "/mcp", headers = headers, body = call }
      assert_head(connection:read_head())
      connection:wait_end()
      -- a call without a wait: its answer is JSON with a length, and not compressed either
      call = me:message("tools/call", { name = "steps", arguments = { wait = 0 } })
      local response = connection:request { method = "POST", path = "/mcp", headers = headers, body = call }
      assert.equal("application/json", response.headers["content-type"])
      assert.equal(#response.body, tonumber(response.headers["content-length"]))
      assert.is_nil(response.headers["content-encoding"])
      connection:close()
      leave(me)
    end
    sse:close()
    assert.has_nothing_left(g)
  end)

  it("is valid for a client of HTTP/1.0, which many proxies use", function()
    local g <close> = gateway.start { config = config, scripts = scripts }
    local connection = client.connect(g)
    connection.asked = { "GET" }
    connection:send_raw "GET /sse HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    local head = connection:read_head()
    assert_head(head)
    assert.is_nil(head.headers["transfer-encoding"])
    connection:wait_event "endpoint"
    connection:close()
    assert.has_nothing_left(g)
  end)
end)

describe("behind an nginx with its defaults", function()
  if not nginx.find() then
    pending "there is no nginx here"
    return
  end

  for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
    it("events of " .. revision .. " arrive at once, and answers whole", function()
      local g <close> = gateway.start { config = config, scripts = scripts }
      do
        local front <close> = nginx.start(g)
        local there = setmetatable({ port = front.port }, { __index = g })
        local took = math.huge
        for i = 1, 50 do
          if i > 5 and took <= AT_ONCE then break end
          local me
          took = math.min(took, (wait.timed(function()
            me = there:client(revision)
            local stream = me:open("tools/call", { name = "steps", arguments = { wait = 30 }, _meta = told })
            assert.equal(1, stream:wait_event("notifications/progress").json.params.progress)
          end)))
          local done = me:open("tools/call", { name = "steps", arguments = { wait = 0 }, _meta = told })
          assert.equal("done", done:answer().result.content[1].text)
          if revision ~= "2024-11-05" then
            local call = me:message("tools/call", { name = "steps", arguments = { wait = 0 } })
            assert.equal("done", wire.post(there, call, me:headers(call)):json().result.content[1].text)
          end
          leave(me)
        end
        assert.is_true(took <= AT_ONCE, ("connecting, and the first event, took %g s"):format(took))
      end
      assert.has_nothing_left(g)
    end)
  end

  it("a client that disconnects is noticed by the gateway, too", function()
    local g <close> = gateway.start { config = config, scripts = scripts }
    local front <close> = nginx.start(g)
    local there = setmetatable({ port = front.port }, { __index = g })
    local sse, newest = there:client "2024-11-05", there:client "2026-07-28"
    newest:open("tools/call", { name = "steps", arguments = { wait = 30 }, _meta = told }):wait "notifications/progress"
    sse:close()
    newest:close()
    assert.has_nothing_left(g)
    assert.same({ 1, 1 }, { g:status().counters.sessions_closed.gone, g:status().counters.tool_aborted.gone })
  end)
end)
