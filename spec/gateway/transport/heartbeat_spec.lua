-- B-49: comments keep an idle stream open, so that nothing on the network path takes it for dead. The row's figures (a
-- proxy that cuts after 60 s, ten minutes, a comment every 15 s) are scaled down, the comments most: a machine may
-- stand still for longer than some of them.
local gateway = require "spec.helpers.gateway"
local proxy = require "spec.helpers.proxy"
local wait = require "spec.helpers.wait"

local HEARTBEAT, IDLE, LONG = 0.2, 4, 6 -- seconds

local scripts = { ["tools/quiet.lua"] = 'return tool { "Says a word, then nothing.", function(_, call) call:progress(1) sleep(60) end }' }

-- A gateway behind a proxy.
local function through(way, g)
  return setmetatable({ port = way.port }, { __index = g })
end

-- A stream of each kind: its connection, and a function that leaves it.
local kinds = {
  ["an HTTP+SSE stream"] = function(there)
    local me = there:client "2024-11-05"
    return me.stream, function() me:close() end
  end,
  ["a GET stream of 2025-11-25"] = function(there, g)
    local me = there:client "2025-11-25"
    local stream = me:get_stream()
    stream:head()
    return stream.connection, function()
      me.gateway = g
      me:delete()
      me:close()
    end
  end,
  ["a stream that listens in 2026-07-28"] = function(there)
    local me = there:client "2026-07-28"
    local stream = me:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
    stream:wait "notifications/subscriptions/acknowledged"
    return stream.connection, function() me:close() end
  end,
  ["a call's stream in 2026-07-28"] = function(there)
    local me = there:client "2026-07-28"
    local stream = me:open("tools/call", { name = "quiet", _meta = { progressToken = "p" } })
    stream:wait "notifications/progress"
    return stream.connection, function() me:close() end
  end,
}

local function comments(connection)
  local times = {}
  connection:messages()
  for _, event in ipairs(connection.events) do
    if event.comment then
      times[#times + 1] = event.at
    end
    assert.is_nil(event.comment and (event.id or event.data or event.retry))
  end
  return times
end

-- One stream of each kind, through a proxy of its own.
local function open_all(g)
  local all = {}
  for kind, open in pairs(kinds) do
    local way = proxy.start(g.port, { idle = IDLE })
    local connection, leave = open(through(way, g), g)
    all[kind] = { way = way, connection = connection, leave = leave, before = #comments(connection) }
  end
  return all
end

describe("an idle stream of each kind through a proxy that closes idle connections", function()
  it("stays open through comments, sent at least at the configured interval with jitter", function()
    local g <close> = gateway.start { scripts = scripts, config = { heartbeat = "200ms" } }
    local all = open_all(g)
    wait.quietly(LONG, function()
      for kind, one in pairs(all) do
        if one.connection:is_closed_by_peer() then return kind .. " was cut" end
        one.connection:messages() -- parses what has arrived: an event gets the time at which it is parsed
      end
    end)
    for kind, one in pairs(all) do
      local times, gaps = comments(one.connection), {}
      for i = one.before + 2, #times do gaps[#gaps + 1] = times[i] - times[i - 1] end
      table.sort(gaps)
      local usual = gaps[(#gaps + 1) // 2]
      assert.is_true(usual >= HEARTBEAT * 0.8 and usual <= HEARTBEAT * 1.5, ("half of the gaps of %s are over %g s"):format(kind, usual))
      one.leave()
    end
    assert.has_nothing_left(g)
    for _, one in pairs(all) do one.brought = one.way.brought end
    wait.quietly(3 * HEARTBEAT, function() -- no client is left that could get a heartbeat
      for kind, one in pairs(all) do
        if one.way.brought ~= one.brought then return "bytes came after the end of " .. kind end
      end
    end)
    for _, one in pairs(all) do one.way:stop() end
  end)

  it("is closed where comments are rarer than the proxy's idle timeout", function()
    local g <close> = gateway.start { scripts = scripts, config = { heartbeat = "60s" } }
    for _, one in pairs(open_all(g)) do
      one.connection:wait_closed(20)
      assert.is_true(one.way.cuts > 0)
      one.leave()
      one.way:stop()
    end
    assert.has_nothing_left(g)
  end)
end)
