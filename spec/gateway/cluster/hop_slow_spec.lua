-- Readers that do not read, and large messages, over a hop: streams end as slow where they are served, the node between
-- them and their clients keeps little, and all others go on.
local cluster = require "spec.helpers.cluster"
local client = require "spec.helpers.client"
local processes = require "spec.helpers.processes"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local it = cluster.it(it, pending)
local move, text = processes.move, processes.text
local STATEFUL <const> = "2025-11-25"
local BOUND <const> = 30 * wait.slower -- seconds
local MiB <const> = 1 << 20

local scripts = {
  ["tools/flood.lua"] = [[local much = ("x"):rep(8000)
return tool { "Reports much, for ever.", timeout = 600, function(_, call)
  for i = 1, math.huge do
    call:progress(i, nil, much)
    sleep(0.005)
  end
end }]],
  ["tools/stay.lua"] = [[return tool { "Reports now and then.", timeout = 600, function(_, call)
  for i = 1, math.huge do
    call:progress(i)
    sleep(0.05)
  end
end }]],
  ["tools/large.lua"] = [[return tool { "Gives twice as much as it gets.", input = { text = t.string }, function(args)
  return args.text .. args.text
end }]],
}

local function open(c, name, options)
  local stream = c:open("tools/call", { name = name, _meta = { progressToken = "p" } }, options)
  stream:wait "notifications/progress"
  return stream
end

local function slow(g) return g:status().counters.streams_ended.slow end

describe("a reader that does not read, of another node's session", function()
  it("loses its stream, as slow, and nothing else ends", function()
    local c <close>, one, two = cluster.start { tls = true, scripts = scripts, constants = { stall_ms = 500 },
      config = { heartbeat = "60s", limits = { stream_queue = "64KiB", drain = "100ms" } } }
    local me, other = move(one:client(STATEFUL), two), move(one:client(STATEFUL), two)
    local stalled = open(me, "flood", { buffer = 4096 })
    local mine, theirs = open(me, "stay"), open(other, "stay")
    stalled.connection:pause()
    wait.for_fact("the stream to end", BOUND, function() return slow(one) + slow(two) == 1 end)
    assert.equal("n1", text(me, "place"))
    assert.equal("n1", text(other, "place"))
    for _, stream in ipairs { mine, theirs } do
      local seen = #stream:messages()
      wait.for_fact("further reports", BOUND, function() return #stream:messages() > seen + 5 end)
    end
    assert.equal(1, slow(one) + slow(two))
    for _, stream in ipairs { stalled, mine, theirs } do stream:hang_up() end
    c:is_quiet()
    me:close()
    other:close()
  end)

  it("costs the node between them little, however many they are", function()
    local READERS <const>, MOST_EACH <const> = 20, 512 << 10
    local c <close>, one, two = cluster.start { tls = true, scripts = scripts, constants = { stall_ms = 500 },
      config = { heartbeat = "60s", limits = { drain = "100ms" } } }
    local me = move(one:client(STATEFUL), two)
    local first = open(me, "flood")
    first:hang_up()
    local before, streams, most = two:rss "RssAnon", {}, 0
    for i = 1, READERS do
      streams[i] = open(me, "flood", { buffer = 4096 })
      streams[i].connection:pause()
    end
    wait.for_fact("all streams to end", BOUND, function()
      most = math.max(most, two:rss "RssAnon" - before)
      return slow(one) + slow(two) == READERS
    end)
    assert.is_true(wait.slower > 1 or most < READERS * MOST_EACH, ("%d KiB each"):format(most // READERS >> 10))
    assert.equal("n1", text(me, "place"))
    for _, stream in ipairs(streams) do stream:hang_up() end
    c:is_quiet()
    me:close()
  end)
end)

describe("large requests and results between nodes", function()
  it("take the memory that is configured, and are refused beyond it", function()
    local AT_ONCE <const>, ROOM <const> = 24, 32 * MiB
    local limits = { body = "5MiB", bodies = "32MiB", answers = "32MiB", call = { output = "10MiB" }, lua_memory = "1GiB" }
    local c <close>, one, two = cluster.start { scripts = scripts, config = { limits = limits } }
    local me = move(one:client(STATEFUL), two)
    local body = wire.message(1, "tools/call", { name = "large", arguments = { text = ("x"):rep(4 * MiB - 1024) } })
    local calls = require("cjson").encode(body)
    local headers = { Accept = "application/json, text/event-stream", ["Content-Type"] = "application/json", ["Mcp-Session-Id"] = me.session,
      ["MCP-Protocol-Version"] = STATEFUL }
    local left, tries = AT_ONCE, 0
    while left > 0 do
      tries = tries + 1
      local connections = {}
      for i = 1, left do
        connections[i] = client.connect(two)
        connections[i]:send { method = "POST", path = "/mcp", headers = headers, body = calls }
      end
      for _, connection in ipairs(connections) do
        local answer = connection:read_response(BOUND)
        if answer.status == 200 then
          assert.is_true(#answer.body > 8 * MiB - 4096 and answer.body:find('"isError":true', 1, true) == nil)
          left = left - 1
        else
          assert.equal(503, answer.status, answer.body:sub(1, 300))
        end
        connection:close()
      end
      assert.is_true(tries < 40)
    end
    assert.is_true(wait.slower > 1 or two:rss "VmHWM" < 4 * ROOM, two:rss "VmHWM" // MiB)
    assert.equal("n1", text(me, "place"))
    c:is_quiet()
    me:close()
  end)
end)
