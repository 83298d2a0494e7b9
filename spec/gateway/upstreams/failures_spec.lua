-- pairs: failures with one outcome; clients 2025-11-25; upstreams 2025-11-25 http
-- When something fails at an upstream, a call has one outcome: the upstream's answer, or an error that says whether the
-- call ran. A call that may have run is repeated only where that is harmless.
local free_port = require "spec.helpers.free_port"
local upstream = require "spec.helpers.upstream"

local faults = upstream.faults
local JSON <const> = { ["content-type"] = "application/json" }

-- { what, fault, outcome, runs }: an upstream over HTTP at 2025-11-25 handles each call of `echo` like that.
local HTTP <const> = {
  { "an empty body", faults.empty(200), "unknown" }, { "202 and no body", faults.empty(202), "unknown" }, { "204", faults.empty(204), "unknown" },
  { "an empty object", faults.answers "{}", "unknown" }, { "an answer without a result", faults.answers '{"jsonrpc":"2.0","id":%s}', "unknown" },
  { "an answer of another id", faults.answers '{"jsonrpc":"2.0","id":123456,"result":{"content":[]}}', "unknown" },
  { "an answer whose id is a text", faults.answers '{"jsonrpc":"2.0","id":"%s","result":{"content":[]}}', "unknown" },
  { "a login page", faults.html(), "unknown" }, { "no JSON", faults.answers "not JSON", "unknown" },
  { "half of its JSON", faults.answers '{"jsonrpc":"2.0","id":%s,"result":{"content":[', "unknown" },
  { "an empty JSON array", faults.answers "[]", "unknown" }, { "nothing, and closes the connection", faults.dies(), "unknown" },
  { "a part, and closes the connection", faults.cut(20), "unknown" }, { "a part, and resets the connection", faults.cut(20, "rst"), "unknown" },
  { "an event stream without the answer", faults.ends_stream(), "unknown" }, { "gzip", faults.compressed "gzip", "unknown" },
  { "br", faults.compressed("br", "\27\3\0"), "unknown" }, { "JSON that says it is compressed", faults.compressed("gzip", "{}"), "unknown" },
  { "500", faults.answers_http(500, {}, "no"), "unknown" },
  { "502 with a page", faults.answers_http(502, { ["content-type"] = "text/html" }, "<p>"), "unknown" },
  { "418", faults.answers_http(418, {}, ""), "unknown" }, { "302 elsewhere", faults.answers_http(302, { location = "http://127.0.0.1:9/" }), "unknown" },
  { "401", faults.status(401), "not_run", 0 },
  { "403", faults.status(403), "not_run", 0 }, { "429", faults.busy(429, 7), "not_run", 0 }, { "503", faults.busy(503, 7), "not_run", 0 },
  { "a JSON-RPC error of another id", faults.answers_http(200, JSON, '{"jsonrpc":"2.0","id":99999,"error":{"code":-32001,"message":"x"}}'), "unknown" },
}

local STDIO <const> = {
  { "no line, and ends", faults.exits(1), "unknown" }, { "an answer without a result", faults.answers '{"jsonrpc":"2.0","id":%s}', "unknown" },
}

local function check_row(u, g, row)
  local c <close> = g:client "2025-11-25"
  upstream.text(c:call("tools/call", { name = "sum", arguments = { a = 1, b = 1 } }))
  u:when("tools/call echo", row[2])
  local before = u:ran "echo"
  local data, message = upstream.failure(c:call("tools/call", { name = "echo", arguments = { n = 1 } }), row[3])
  assert.equal("one", data.upstream)
  assert.matches("^upstream 'one' ", message)
  assert.matches(row[3] == "not_run" and "the call was not run" or "whether the call ran is not known", message, 1, true)
  assert.is_nil(message:find(u.port and tostring(u.port) or "lua5.4", 1, true))
  assert.equal(row[4] or 1, u:ran "echo" - before)
  u:behave()
end

describe("a call whose upstream answers", function()
  for _, row in ipairs(HTTP) do
    it(row[1] .. " fails, and ran as often as it says", function()
      local u <close> = upstream.start { revision = "2025-11-25" }
      local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { timeout = "2s", circuit = { failures = 100 } } }) })
      check_row(u, g, row)
    end)
  end

  for _, row in ipairs(upstream.has "stdio" and STDIO or {}) do
    it(row[1] .. " over stdio fails, and ran once", function()
      local u <close> = upstream.start { revision = "2025-11-25", transport = "stdio" }
      local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { timeout = "2s", circuit = { failures = 100 } } }) })
      check_row(u, g, row)
    end)
  end

  it("too much gets an error, and memory does not grow", function()
    for _, transport in ipairs(upstream.served { "http", "stdio" }) do
      local u <close> = upstream.start { revision = "2025-11-25", transport = transport }
      local g <close> = upstream.gateway({ one = u }, {
        entries = upstream.plain({ one = u }, { one = { circuit = { failures = 100 } } }), config = { limits = { upstreams = { answer = "1MiB" } } },
      })
      local c <close> = g:client "2025-11-25"
      assert.equal(900000, #upstream.text(c:call("tools/call", { name = "big", arguments = { bytes = 900000 } })))
      upstream.failure(c:call("tools/call", { name = "big", arguments = { bytes = 1100000 } }), "unknown", "too_large")
      assert.equal(1000, #upstream.text(c:call("tools/call", { name = "big", arguments = { bytes = 1000 } })))
    end
  end)

  it("too many values gets an error at once, wherever their id is, and others go on", function()
    local many = '{"content":[],"structuredContent":{"all":[' .. ("0,"):rep(3000) .. "0]}}"
    for _, kind in ipairs(upstream.kinds()) do
      local revision, transport = kind[1], kind[2]
      local u <close> = upstream.start { revision = revision, transport = transport }
      local g <close> = upstream.gateway({ one = u }, {
        entries = upstream.plain({ one = u }, { one = { timeout = "5m", circuit = { failures = 100 } } }), constants = { upstream_values = 2000 },
      })
      local c <close> = g:client "2026-07-28"
      for _, form in ipairs { '{"jsonrpc":"2.0","id":ID,"result":MANY}', '{"result":MANY,"jsonrpc":"2.0","id":ID}' } do
        u:when("tools/call echo", function(x)
          x:run(function() x:done((form:gsub("%u%u+", { ID = x.id, MANY = many }))) end)
        end, 1)
        upstream.failure(c:call("tools/call", { name = "echo", arguments = { n = 1 } }), "unknown", "too_large")
        assert.equal(1000, #upstream.text(c:call("tools/call", { name = "big", arguments = { bytes = 1000 } })))
      end
      assert.equal(2, g:status().counters.refused.values)
    end
  end)

  it("a bomb gets an error, and memory does not grow", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
    local c <close> = g:client "2025-11-25"
    c:result("tools/call", { name = "look", arguments = { n = 1 } })
    local before = g:rss()
    u:when("tools/call echo", faults.compressed("gzip", faults.bomb(1000)))
    upstream.failure(c:call("tools/call", { name = "echo", arguments = { n = 1 } }), "unknown")
    assert.is_true(g:rss() - before < 64 << 20)
  end)

  it("429 or 503 says when to come again", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
    local c <close> = g:client "2025-11-25"
    c:result("tools/call", { name = "look", arguments = { n = 1 } })
    for _, status in ipairs { 429, 503 } do
      u:when("tools/call echo", faults.busy(status, 7), 1)
      assert.equal(7, upstream.failure(c:call("tools/call", { name = "echo", arguments = { n = 1 } }), "not_run").retry_after)
    end
    u:when("resources/read", faults.busy(503, 1), 1)
    assert.equal("hello", c:result("resources/read", { uri = "stub://text" }).contents[1].text)
  end)
end)

describe("a call of which it is not known whether it ran", function()
  local function runs(retry, tool, fault)
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { retry = retry } }) })
    local c <close> = g:client "2025-11-25"
    c:result("tools/call", { name = "sum", arguments = { a = 1, b = 1 } })
    u:when("tools/call " .. tool, fault, 1)
    local answer = c:call("tools/call", { name = tool, arguments = { n = 1 } })
    if u:ran(tool) == 1 then
      upstream.failure(answer, "unknown")
    else
      assert.equal('{"n":1}', upstream.text(answer))
    end
    return u:ran(tool)
  end

  it("is repeated once if the tool only reads, or as `retry` says", function()
    for retry, wanted in pairs { read_only = { 1, 2, 1 }, hinted = { 1, 2, 2 }, never = { 1, 1, 1 } } do
      assert.same(wanted, { runs(retry, "echo", faults.dies()), runs(retry, "look", faults.dies()), runs(retry, "again", faults.dies()) }, retry)
    end
  end)

  it("stays unknown where the repetition certainly did not run", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { circuit = { failures = 100 } } }) })
    local c <close> = g:client "2025-11-25"
    c:result("tools/call", { name = "sum", arguments = { a = 1, b = 1 } })
    for _, second in ipairs { faults.busy(503, 60), faults.status(403) } do
      local before = u:ran "look"
      u:when("tools/call look", faults.dies(), 1)
      u:when("tools/call look", second, 1)
      local _, message = upstream.failure(c:call("tools/call", { name = "look", arguments = { n = 1 } }), "unknown")
      assert.matches("whether the call ran is not known", message, 1, true)
      assert.equal(1, u:ran "look" - before)
    end
  end)

  it("is repeated once and not twice", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { circuit = { failures = 100 } } }) })
    local c <close> = g:client "2025-11-25"
    c:result("tools/call", { name = "sum", arguments = { a = 1, b = 1 } })
    u:when("tools/call look", faults.dies())
    upstream.failure(c:call("tools/call", { name = "look", arguments = { n = 1 } }), "unknown")
    assert.equal(2, u:ran "look")
  end)
end)

describe("an upstream that is not there", function()
  it("runs nothing, says so, and serves again when it comes", function()
    local port = free_port()
    local g
    do
      local u <close> = upstream.start { revision = "2025-11-25", port = port }
      g = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { circuit = { failures = 3, open = "1s..2s" } } }) })
      local c <close> = g:client "2025-11-25"
      c:result("tools/call", { name = "echo", arguments = { n = 1 } })
    end
    local c <close> = g:client "2025-11-25"
    for _ = 1, 5 do
      local _, message = upstream.failure(c:call("tools/call", { name = "echo", arguments = { n = 1 } }), "not_run")
      assert.matches("is not there", message)
    end
    assert.equal(12, #c:result("tools/list", {}).tools) -- the last known list
    local u <close> = upstream.start { revision = "2025-11-25", port = port }
    require "spec.helpers.wait".for_fact("an answer", 20, function()
      return c:call("tools/call", { name = "echo", arguments = { n = 2 } }).result
    end)
    assert.equal(1, u:ran "echo")
    local _ <close> = g -- luacheck: ignore 211
  end)

  it("is not one that answers JSON-RPC errors and isError", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { circuit = { failures = 2, open = "60s..60s" } } }) })
    local c <close> = g:client "2025-11-25"
    for _ = 1, 20 do
      assert.equal(-32123, c:call("tools/call", { name = "fail", arguments = { n = 1 } }).error.code)
      assert.is_true(c:call("tools/call", { name = "complain", arguments = { n = 1 } }).result.isError)
    end
    assert.equal(40, u:ran())
  end)
end)
