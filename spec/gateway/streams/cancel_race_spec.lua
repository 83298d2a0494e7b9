-- A call that is cancelled around the moment at which it ends has one answer or none; if the cancellation is accepted
-- before the answer was made, none (B-73). 1,000 calls in each revision.
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"

local ROUNDS, PARALLEL = 50, 20

local scripts = { ["tools/sleep.lua"] = 'return tool { "Sleeps.", input = { s = t.number }, function(args) sleep(args.s) return "done" end }' }

for _, revision in ipairs { "2024-11-05", "2025-06-18", "2025-11-25" } do
  describe("1,000 calls of " .. revision .. " cancelled at any moment", function()
    it("have at most one answer, and leave no call in flight", function()
      math.randomseed(73)
      local g <close> = gateway.start { scripts = scripts, workers = 4, config = { heartbeat = "60s", log = { level = "warn" } } }
      local me = g:client(revision)
      local callers, canceller = {}, client.connect(g)
      for i = 1, PARALLEL do callers[i] = client.connect(g) end
      local answered, calls, first = 0, 0, me.ids + 1
      for _ = 1, ROUNDS do
        local waits = {}
        for i = 1, PARALLEL do
          local time = math.random(0, 4) / 1000
          local message = me:message("tools/call", { name = "sleep", arguments = { s = time } })
          callers[i].events = {}
          callers[i]:send { method = "POST", path = me.endpoint or "/mcp", headers = me:headers(message), body = message }
          waits[i] = message.id
        end
        for i = 1, PARALLEL do -- each is cancelled at its own moment, before, at and after its end
          local note = { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = waits[i] } }
          local head = me:headers(note)
          assert.equal(202, canceller:request({ method = "POST", path = me.endpoint or "/mcp", headers = head, body = note }).status)
        end
        for i = 1, PARALLEL do
          local response = callers[i]:read_response()
          local messages = response.sse and callers[i]:messages() or response.status == 200 and { response:json() } or {}
          assert.equal(me.stream and 202 or 200, response.status)
          assert.is_true(#messages <= 1)
          for _, message in ipairs(messages) do
            assert.same({ waits[i], "done" }, { message.id, message.result.content[1].text })
            answered = answered + 1
          end
          calls = calls + 1
        end
      end
      local cancelled = g:wait_status(function(status) return status.gauges.requests_in_flight == 0 end).counters.tool_aborted.cancelled
      if me.stream then
        local last, seen = me.ids, {}
        assert.same({}, me:result "ping") -- all messages for the stream have arrived by now
        for _, message in ipairs(me.stream:messages()) do
          if message.id >= first and message.id <= last then
            assert.equal("done", message.result.content[1].text)
            assert.is_nil(seen[message.id])
            seen[message.id] = true
            answered = answered + 1
          end
        end
      end
      assert.equal(calls, answered + cancelled)
      assert.is_true(cancelled > 0 and answered > 0, ("%d answered, %d called off"):format(answered, cancelled))
      canceller:close()
      for _, caller in ipairs(callers) do caller:close() end
      if me.delete then me:delete() end
      me:close()
      assert.has_nothing_left(g)
    end)
  end)
end
