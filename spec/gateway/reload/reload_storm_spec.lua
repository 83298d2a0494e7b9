-- Many reloads, one in ten with a broken script, during calls and open streams of three revisions: no request fails, no
-- stream is dropped, no call sees two generations, no client is notified more than once of a reload, and every old Lua
-- state is freed. A short form of a thousand reloads in ten minutes.
local gateway = require "spec.helpers.gateway"
local memory = require "spec.helpers.memory"
local wait = require "spec.helpers.wait"

local RELOADS <const> = 60
local STREAMS <const> = 30

-- A call reads the generation at its start and, through a library, at its end.
local function tool(n)
  return ([[local number = require "number"
return tool { "Generation %d.", function() local first = %d sleep(0.002) return first .. " " .. number() end }]]):format(n, n)
end
local function library(n) return ("return function() return %d end"):format(n) end

local broken = {
  "return tool {", "this is no Lua", "error 'at load'", "return 5", "return tool { 'No handler.' }", "return tool { 'T.', input = { a = 5 }, function() end }",
  "local x <close> = 5", "\xff\xfe", "return undefined_name",
}

describe("sixty reloads under load", function()
  it("fail no call, drop no stream, mix no generations and leave no generation in memory", function()
    local g <close> = gateway.start {
      env = memory.environment(),
      scripts = { ["tools/one.lua"] = tool(1), ["lib/number.lua"] = library(1) }, config = { scripts = { watch = "false" } },
    }
    local function write(path, text)
      local file <close> = assert(io.open(g.dir .. "/scripts/" .. path, "wb"))
      file:write(text)
    end
    local listeners, sessions = {}, {}
    for i = 1, STREAMS do
      if i % 3 == 0 then
        local me = g:client "2026-07-28"
        listeners[#listeners + 1] = { client = me, stream = me:open("subscriptions/listen", { notifications = { toolsListChanged = true } }) }
        listeners[#listeners].stream:wait "notifications/subscriptions/acknowledged"
      else
        local me = g:client(i % 3 == 1 and "2024-11-05" or "2025-11-25")
        local stream = me.stream or me:get_stream().connection
        stream:read_head()
        sessions[#sessions + 1] = { client = me, stream = stream }
      end
    end
    local callers, running, effective, calls, first_size = {}, {}, 0, 0, nil
    for i = 1, 8 do callers[i] = g:client(i % 2 == 0 and "2026-07-28" or "2025-11-25") end

    for n = 2, RELOADS do
      for i, me in ipairs(callers) do running[i] = me:open("tools/call", { name = "one" }) end
      local is_broken = n % 10 == 0
      if is_broken then
        write("tools/bad.lua", broken[n // 10 % #broken + 1])
      else
        os.remove(g.dir .. "/scripts/tools/bad.lua")
        write("tools/one.lua", tool(n))
        write("lib/number.lua", library(n))
        effective = effective + 1
      end
      local response = g:admin("/reload", "POST")
      assert.equal(is_broken and 422 or 200, response.status, response.body)
      for i, stream in ipairs(running) do
        local text = assert(stream:answer().result).content[1].text
        local began, ended = text:match "^(%d+) (%d+)$"
        assert.equal(began, ended, "a call saw two generations")
        running[i] = nil
        stream.connection:close()
        calls = calls + 1
      end
      if n == 20 then first_size = memory.resting(g) end
    end

    assert.equal((RELOADS - 1) * 8, calls)
    for _, me in ipairs(callers) do -- the last reload had a broken script
      assert.equal(("%d %d"):format(RELOADS - 1, RELOADS - 1), me:call("tools/call", { name = "one" }).result.content[1].text)
    end
    local function told(messages)
      local count = 0
      for _, message in ipairs(messages) do count = count + (message.method == "notifications/tools/list_changed" and 1 or 0) end
      return count
    end
    for _, me in ipairs(sessions) do wait.for_fact("all notices", 20, function() return told(me.stream:messages()) >= effective end) end
    for _, me in ipairs(sessions) do assert.equal(effective, told(me.stream:messages())) end
    for _, me in ipairs(listeners) do assert.equal(effective, told(me.stream:messages())) end
    g:wait_status(function(status) return status.gauges.vms == 2 and status.gauges.tasks == 0 end)
    assert.equal(0, g:status().counters.tool_faults)
    memory.assert_returned(g, first_size)
    for _, me in ipairs(sessions) do
      if me.client.session then me.client:delete() end
      me.client:close()
    end
    for _, me in ipairs(listeners) do me.client:close() end
    for _, me in ipairs(callers) do
      if me.session then me:delete() end
      me:close()
    end
    assert.has_nothing_left(g)
  end)
end)
