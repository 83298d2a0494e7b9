-- Each way in which HTTP, HTTP/2 or TLS refuse a request or a connection before any handler sees it, libh2o's own
-- answers among them: each is counted once, and has one log line.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"

local LIMIT <const> = 1024
local START <const> = "POST /mcp?key=secret HTTP/1.1\r\nHost: 127.0.0.1\r\n"
local CHUNKED <const> = START .. "Transfer-Encoding: chunked\r\n\r\n"

-- { name, bytes, status, reason that is counted, cause of the log line, path of the log line }; no status: the
-- connection is ended without an answer
local plain = {
  { "a Content-Length above limits.body", START .. "Content-Length: 99999\r\n\r\n", 413, "size", "size", "/mcp" },
  { "a Content-Length of one byte too much", START .. "Content-Length: 1025\r\n\r\n" .. ("x"):rep(1025), 413, "size", "size", "/mcp" },
  { "chunks above limits.body", CHUNKED .. ("800\r\n%s\r\n0\r\n\r\n"):format(("x"):rep(2048)), 413, "size", "size", "/mcp" },
  { "headers above 64 KiB", START .. "X: " .. ("x"):rep(70000) .. "\r\nContent-Length: 0\r\n\r\n", 431, "size", "size", "/mcp" },
  { "headers above 417,792 bytes", START .. "X: " .. ("x"):rep(420000), 400, "size", "size" },
  { "a number that is none", START .. "Content-Length: many\r\n\r\n", 400, "malformed", "http", "/mcp" },
  { "an unknown coding", START .. "Transfer-Encoding: rot13\r\n\r\n", 400, "malformed", "http", "/mcp" },
  { "broken chunks", CHUNKED .. "zz\r\n", 400, "malformed", "http", "/mcp" },
  { "an unknown expectation", START .. "Expect: the worst\r\nContent-Length: 1\r\n\r\n", 417, "malformed", "http", "/mcp" },
  { "two lengths", START .. "Content-Length: 0\r\nContent-Length: 0\r\n\r\n", 400, "malformed", "http", "/mcp" },
  { "a broken request line", "POST\r\n\r\n", 400, "malformed", "http" },
  { "a broken header line", START .. "a b: c\r\n\r\n", 400, "malformed", "http" },
  { "more than 100 headers", START .. ("x: y\r\n"):rep(101) .. "\r\n", 400, "malformed", "http" },
  { "half a head", START, nil, "request_time", "request time" },
  { "half a body", START .. "Content-Length: 10\r\n\r\nxxx", nil, "request_time", "request time" },
  { "a TLS ClientHello", "\22\3\1\2\0\1\0\1\252\3\3" .. ("x"):rep(600), 400, "client_hello", "scheme" },
}

-- { name, function that sends and reads, reason that is counted, cause of the log line, limits.body }
local streams = {
  { "a body above limits.body, announced", function(peer)
    assert.equal(413, peer:answer(peer:ask { body = false, headers = { ["content-length"] = "99999" } }).status)
  end, "size", "size" },
  { "a body above limits.body", function(peer) assert.equal(413, peer:answer(peer:ask { body = ("x"):rep(LIMIT + 1) }).status) end, "size", "size" },
  { "headers above 64 KiB", function(peer)
    local id = peer.next_id
    local block = http2.block(http2.fields { method = "GET" }) .. http2.literal("x", ("x"):rep(66000))
    for at = 1, #block, 16000 do
      local flags = (at == 1 and http2.END_STREAM or 0) | (at + 16000 > #block and http2.END_HEADERS or 0)
      peer:send(http2.frame(at == 1 and http2.HEADERS or http2.CONTINUATION, flags, id, block:sub(at, at + 15999)))
    end
    assert.equal(431, peer:answer(id).status)
  end, "size", "size" },
  { "a request without a path", function(peer)
    peer:send(http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, peer.next_id, http2.block { { ":method", "GET" } }))
  end, "malformed", "http" },
  { "a header with an upper-case letter", function(peer) peer:ask { method = "GET", headers = { Upper = "x" } } end, "protocol", "http2" },
  { "a body that is longer than announced", function(peer)
    peer:ask { body = "xxxx", headers = { ["content-length"] = "3" } }
  end, "malformed", "http" },
  { "more than 100 requests at once", function(peer)
    for _ = 1, 101 do peer:ask { body = false } end
  end, "http2_streams", "http2", "1MiB" },
  { "half a body", function(peer) assert.equal(408, peer:answer(peer:ask { body = false }).status) end, "request_time", "request time" },
}

-- The refusals that were counted, and what http2_refused has, by reason.
local function counted(g)
  local found = {}
  for _, family in ipairs { "refused", "http2_refused" } do
    for reason, count in pairs(g:status().counters[family]) do
      if count > 0 then found[reason] = count end
    end
  end
  return found
end

local function lines(g)
  local found = {}
  for _, line in ipairs(g:log_lines()) do
    if line.event == "refused" then found[#found + 1] = line.fields.cause .. " " .. (line.fields.path or "") end
  end
  return found
end

-- One gateway refused one request: one count, one line, no secret of its target.
local function assert_refused_once(g, name, reason, cause, path)
  g:wait_log("refused", { cause = cause })
  assert.same({ [reason] = 1 }, counted(g), name)
  assert.same({ cause .. " " .. (path or "") }, lines(g), name)
  assert.is_nil(g:log():find("secret", 1, true), name)
end

-- A short limits.request_time where it is the reason, and no other reason's company on a busy machine.
local function time_of(reason) return reason == "request_time" and "300ms" or "30s" end

describe("a request that is refused before a handler sees it", function()
  for _, case in ipairs(plain) do
    it("is counted and logged once, over HTTP/1.1: " .. case[1], function()
      local g <close> = gateway.start { config = { limits = { body = "1KiB", request_time = time_of(case[4]) } } }
      local connection <close> = client.connect(g)
      connection:send_raw(case[2])
      table.insert(connection.asked, "POST")
      connection:wait_closed()
      assert.equal(case[3], (connection.responses[1] or {}).status)
      assert_refused_once(g, case[1], case[4], case[5], case[6])
    end)
  end

  for _, case in ipairs(streams) do
    it("is counted and logged once, over HTTP/2: " .. case[1], function()
      local limits = { body = case[5] or "1KiB", request_time = time_of(case[3]) }
      local g <close> = gateway.start { config = http2.config { auth = "none", limits = limits } }
      local peer <close> = http2.connect(g)
      case[2](peer)
      g:wait_log("refused", { cause = case[4] })
      local has_path = case[4] == "size" or case[4] == "request time"
      assert_refused_once(g, case[1], case[3], case[4], has_path and "/mcp" or nil)
    end)
  end
end)
