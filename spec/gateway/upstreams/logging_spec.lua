-- Log messages of upstreams: the level that a client has set reaches the upstream before its call, and each client gets
-- what its own level lets through.
-- pairs: log messages; clients 2025-11-25..; upstreams 2025-11-25.. http
-- pairs: log messages; clients 2025-11-25..; upstreams 2025-06-18 stdio
-- cannot: a log message, where several calls share a session; clients 2025-11-25; upstreams 2025-06-18: it reaches no client, since its call is not known
local upstream = require "spec.helpers.upstream"

local LEVEL <const> = "io.modelcontextprotocol/logLevel"

local function logs(stream)
  local list = {}
  for _, message in ipairs(stream:messages()) do
    if message.method == "notifications/message" then list[#list + 1] = message.params.level .. " " .. message.params.data end
  end
  return list
end

local function say(x, level, data)
  x:emit(('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"%s","data":"%s"}}'):format(level, data))
end

-- Levels that the upstream was told, by logging/setLevel or in `_meta`.
local function told(u)
  local list = {}
  for i, entry in ipairs(u:all { method = "logging/setLevel" }) do list[i] = entry.json.params.level end
  return list
end

local function call(u, c, key, level)
  local stream = c:open("tools/call", { name = "hold", arguments = { key = key }, _meta = level and { [LEVEL] = level } })
  return stream, u:wait_held(1, key)[1]
end

-- Ends a call, and returns the messages that came on its stream.
local function finish(u, stream, key)
  u:release(key)
  assert.equal("released", upstream.text(stream:answer()))
  return logs(stream)
end

for _, row in ipairs { { "2025-11-25", "http" }, { "2026-07-28", "http" }, { "2025-06-18", "stdio" } } do
  describe(("log messages of an upstream of %s over %s"):format(row[1], row[2]), function()
    it("come as the client of the call wants them", function()
      local u <close> = upstream.start { revision = row[1], transport = row[2] }
      local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
      local old <close> = g:client "2025-11-25"
      local new <close> = g:client "2026-07-28"

      -- no level was set: the client gets what the upstream sends, from "info" on, and the upstream is told no level
      local stream, x = call(u, old, "a")
      for _, level in ipairs { "debug", "info", "error" } do say(x, level, "a") end
      assert.same({ "info a", "error a" }, finish(u, stream, "a"))
      assert.same({}, told(u))

      -- a request of 2026-07-28 without a level: the client gets no messages
      stream, x = call(u, new, "a2")
      say(x, "error", "unwanted")
      assert.same({}, finish(u, stream, "a2"))
      assert.same({}, told(u))

      old:result("logging/setLevel", { level = "warning" })
      stream, x = call(u, old, "b")
      if u.is_modern then assert.equal("warning", x.meta[LEVEL]) end
      for _, level in ipairs { "info", "warning", "error" } do say(x, level, "b") end
      assert.same({ "warning b", "error b" }, finish(u, stream, "b"))

      stream, x = call(u, new, "c", "info")
      if u.is_modern then assert.equal("info", x.meta[LEVEL]) end
      for _, level in ipairs { "debug", "info", "error" } do say(x, level, "c") end
      assert.same({ "info c", "error c" }, finish(u, stream, "c"))

      stream, x = call(u, old, "d")
      for _, level in ipairs { "info", "error" } do say(x, level, "d") end
      assert.same({ "error d" }, finish(u, stream, "d"))
      assert.same(u.is_modern and {} or { "warning", "info" }, told(u))
    end)
  end)
end

describe("the level of a channel", function()
  it("is told again after the channel was lost", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
    local c <close> = g:client "2025-11-25"
    c:result("logging/setLevel", { level = "error" })
    for _ = 1, 2 do upstream.text(c:call("tools/call", { name = "look", arguments = {} })) end
    assert.same({ "error" }, told(u))
    u:lose_sessions "404"
    upstream.text(c:call("tools/call", { name = "look", arguments = {} }))
    assert.same({ "error", "error" }, { table.unpack(told(u), 1, 2) })
    c:result("logging/setLevel", { level = "debug" })
    upstream.text(c:call("tools/call", { name = "look", arguments = {} }))
    local list = told(u)
    assert.equal("debug", list[#list])
  end)

  it("is not told to an upstream without log messages, and a call outlives one that refuses it", function()
    for capabilities, count in pairs { ['{"tools":{}}'] = 0, ['{"tools":{},"logging":{}}'] = 1 } do
      local u <close> = upstream.start { revision = "2025-11-25", capabilities = capabilities }
      u:when("logging/setLevel", upstream.faults.error(-32603, "no"))
      local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
      local c <close> = g:client "2025-11-25"
      c:result("logging/setLevel", { level = "error" })
      upstream.text(c:call("tools/call", { name = "look", arguments = {} }))
      assert.equal(count, #told(u))
    end
  end)
end)

describe("a log message whose call is not known", function()
  it("reaches no client", function()
    local u <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { per = "gateway" } }) })
    local one <close> = g:client "2025-11-25"
    local two <close> = g:client "2025-11-25"
    for _, c in ipairs { one, two } do c:result("logging/setLevel", { level = "debug" }) end
    local a, x = call(u, one, "a")
    local b = call(u, two, "b")
    say(x, "error", "whose")
    say(x, "error", "whose")
    u:release "b"
    b:answer()
    assert.equal('{"n":1}', upstream.text(two:call("tools/call", { name = "look", arguments = { n = 1 } })))
    assert.same({}, finish(u, a, "a"))
    assert.same({}, logs(b))
  end)
end)
