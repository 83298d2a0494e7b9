-- B-49: comments keep an idle stream open, so that nothing on the network path takes it for dead. The row's figures (a
-- proxy that cuts after 60 s, ten minutes, a comment every 15 s) are scaled down, the comments most: a machine may
-- stand still for longer than some of them.
local cjson = require "cjson.safe"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local proxy = require "spec.helpers.proxy"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local HEARTBEAT, IDLE, LONG = 0.2, 4, 6 -- seconds

local scripts = {
  ["tools/quiet.lua"] = 'return tool { "Says a word, then nothing.", function(_, call) call:progress(1) sleep(60) end }',
  ["tools/silent.lua"] = 'return tool { "Says nothing.", input = { s = t.number }, function(args) sleep(args.s) return "done" end }',
}

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
  ["a silent call of 2026-07-28"] = function(there)
    local me = there:client "2026-07-28"
    return me:open("tools/call", { name = "silent", arguments = { s = 60 } }).connection, function() me:close() end
  end,
  ["a silent call of a session"] = function(there, g)
    local me = there:client "2025-06-18"
    return me:open("tools/call", { name = "silent", arguments = { s = 60 } }).connection, function()
      me.gateway = g
      me:delete()
      me:close()
    end
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

describe("the answer of a call that takes longer than the time between two comments", function()
  local g

  setup(function() g = gateway.start { scripts = scripts, workers = 1, config = { heartbeat = "300ms" } } end)
  teardown(function() g:stop() end)

  local function asked(connection, accept, s)
    connection:send { method = "POST", path = "/mcp", headers = {
      Accept = accept, ["Content-Type"] = "application/json", ["MCP-Protocol-Version"] = "2026-07-28", ["Mcp-Method"] = "tools/call",
      ["Mcp-Name"] = "silent" },
      body = cjson.encode(wire.message(1, "tools/call", { name = "silent", arguments = { s = s }, _meta = wire.meta() })) }
    return connection:read_head(10)
  end

  it("begins before the call ends, as an event stream, where the client takes one", function()
    local connection <close> = client.connect(g)
    assert.equal("text/event-stream", asked(connection, wire.both, 20).headers["content-type"])
  end)

  it("is the answer of the call", function()
    for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
      local me <close> = g:client(revision)
      assert.equal("done", me:result("tools/call", { name = "silent", arguments = { s = 0.8 } }).content[1].text)
      if me.delete then me:delete() end
    end
  end)

  it("is JSON where Accept has only wildcards, or the call is quick", function()
    for accept, s in pairs { ["*/*"] = 0.8, ["application/*, text/*"] = 0.8, [wire.both] = 0 } do
      local connection <close> = client.connect(g)
      assert.equal("application/json", asked(connection, accept, s).headers["content-type"], accept)
    end
  end)

  it("comes for each of many calls on a connection of HTTP/2, where half of the event streams are left to others", function()
    local two <close> = gateway.start { scripts = scripts, workers = 1, config = http2.config { heartbeat = "300ms" } }
    local peer <close> = http2.connect(two)
    local message = wire.message(1, "tools/call", { name = "silent", arguments = { s = 1 }, _meta = wire.meta() })
    local ids, streams, others = {}, 0, 0
    for i = 1, 60 do ids[i] = peer:post(message, wire.mirrored(message)) end
    for _, id in ipairs(ids) do
      local answer = peer:answer(id, 20)
      assert.same({ 200, true }, { answer.status, answer.data:find("done", 1, true) ~= nil })
      local is_stream = answer.data:sub(1, 1) == ":"
      streams, others = streams + (is_stream and 1 or 0), others + (is_stream and 0 or 1)
    end
    assert.same({ 25, 35 }, { streams, others })
  end)
end)
