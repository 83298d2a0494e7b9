-- B-67, B-68: a request that does not say exactly once where it ends is refused and its connection closed. The content
-- of a body is never taken for a request, and every answer belongs to the request that it follows.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wire = require "spec.helpers.wire"

local config = { limits = { request_time = "400ms" } } -- ends a connection that waits for bytes that do not come

local function head(lines)
  return table.concat(lines, "\r\n") .. "\r\n\r\n"
end

-- If this body were taken for a request, there would be one more session.
local inner = cjson.encode(wire.initialize_message "2025-11-25")
local smuggled = head {
  "POST /mcp HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Accept: " .. wire.both, "Content-Length: " .. #inner,
} .. inner

-- `more` are the header lines that frame the body; `first` is the request line.
local function post(more, body, first)
  return head { first or "POST /mcp HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Accept: " .. wire.both, more } .. body
end

local function chunk(bytes)
  return ("%x\r\n%s\r\n"):format(#bytes, bytes)
end

local LENGTH = "Content-Length: "
local CHUNKED = "Transfer-Encoding: chunked"
local LONG = LENGTH .. #smuggled

local ping = cjson.encode(wire.message(1, "ping"))

-- Each row: a name, and the bytes. All are refused, and the connection ends.
local unclear = {
  { "a negative length", post(LENGTH .. "-1", smuggled) },
  { "a length with a sign", post(LENGTH .. "+" .. #smuggled, smuggled) },
  { "a length in hexadecimal", post(LENGTH .. "0x10", smuggled) },
  { "a length that is a fraction", post(LENGTH .. "5.0", smuggled) },
  { "a length that is nothing", post(LENGTH, smuggled) },
  { "a length with a word behind it", post(LENGTH .. "5 bytes", smuggled) },
  { "a length that no number holds", post(LENGTH .. ("9"):rep(40), smuggled) },
  { "a length that wraps around", post(LENGTH .. "18446744073709551617", smuggled) },
  { "a list of lengths", post(LENGTH .. "5, 5", smuggled) },
  { "two lengths, the short one first", post(LENGTH .. "0\r\n" .. LONG, smuggled) },
  { "two lengths, the long one first", post(LONG .. "\r\n" .. LENGTH .. "0", smuggled) },
  { "the same length twice", post(LONG .. "\r\n" .. LONG, smuggled) },
  { "a length and chunks", post(LONG .. "\r\n" .. CHUNKED, chunk "{}" .. "0\r\n\r\n" .. smuggled) },
  { "chunks and a length", post(CHUNKED .. "\r\n" .. LENGTH .. "2", chunk(smuggled) .. "0\r\n\r\n") },
  { "chunks, and chunks again", post(CHUNKED .. "\r\n" .. CHUNKED, chunk "{}" .. "0\r\n\r\n" .. smuggled) },
  { "chunks, then nothing special", post("Transfer-Encoding: chunked, identity", chunk "{}" .. "0\r\n\r\n" .. smuggled) },
  { "something special, then chunks", post("Transfer-Encoding: gzip, chunked", chunk "{}" .. "0\r\n\r\n" .. smuggled) },
  { "an unknown encoding", post("Transfer-Encoding: xchunked", chunk "{}" .. "0\r\n\r\n" .. smuggled) },
  { "an unknown encoding beside a known one", post("Transfer-Encoding: x\r\n" .. CHUNKED, chunk "{}" .. "0\r\n\r\n" .. smuggled) },
  { "chunks whose name has a space behind it", post("Transfer-Encoding : chunked", chunk "{}" .. "0\r\n\r\n" .. smuggled) },
  { "chunks on a line that goes on", post("Transfer-Encoding:\r\n chunked", chunk "{}" .. "0\r\n\r\n" .. smuggled) },
  { "a line that goes on", post("X-Folded: a\r\n b\r\n" .. LENGTH .. "2", "{}" .. smuggled) },
  { "a chunk size that is no number", post(CHUNKED, "x\r\n{}\r\n0\r\n\r\n" .. smuggled) },
  { "a negative chunk size", post(CHUNKED, "-2\r\n{}\r\n0\r\n\r\n" .. smuggled) },
  { "a chunk size that no number holds", post(CHUNKED, ("f"):rep(17) .. "\r\n{}\r\n0\r\n\r\n" .. smuggled) },
  { "a chunk size that is nearly negative", post(CHUNKED, ("f"):rep(16) .. "\r\n{}\r\n0\r\n\r\n" .. smuggled) },
  { "a chunk longer than its size", post(CHUNKED, "2\r\n{}x\r\n0\r\n\r\n" .. smuggled) },
  { "a bare line feed behind a chunk's size", post(CHUNKED, ("%x\n%s\r\n0\r\n\r\n"):format(#ping, ping) .. smuggled) },
  { "a bare line feed behind a chunk", post(CHUNKED, ("%x\r\n%s\n0\r\n\r\n"):format(#ping, ping) .. smuggled) },
  { "a bare line feed behind the last size", post(CHUNKED, chunk(ping) .. "0\n\r\n" .. smuggled) },
  { "a bare line feed behind a trailer", post(CHUNKED, chunk(ping) .. "0\r\nX-A: b\n\r\n" .. smuggled) },
  { "a bare line feed that ends the trailers", post(CHUNKED, chunk(ping) .. "0\r\nX-A: b\r\n\n" .. smuggled) },
  { "a bare line feed in place of trailers", post(CHUNKED, chunk(ping) .. "0\r\n\n" .. smuggled) },
  { "a line feed within an extension", post(CHUNKED, "2;a\n{}\r\n0\r\n\r\n" .. smuggled) },
  { "an extension that hides a chunk", post(CHUNKED, "2;\n{}\r\n0\r\n\r\n" .. smuggled) },
  { "a carriage return within an extension", post(CHUNKED, "2;a\rb\r\n{}\r\n0\r\n\r\n" .. smuggled) },
  { "a NUL within an extension", post(CHUNKED, "2;a\0b\r\n{}\r\n0\r\n\r\n" .. smuggled) },
  { "two carriage returns behind a chunk's size", post(CHUNKED, "2\r\r\n{}\r\n0\r\n\r\n" .. smuggled) },
  { "two carriage returns behind a chunk", post(CHUNKED, "2\r\n{}\r\r\n0\r\n\r\n" .. smuggled) },
  { "two carriage returns behind the last size", post(CHUNKED, chunk(ping) .. "0\r\r\n\r\n" .. smuggled) },
  { "two carriage returns at the end", post(CHUNKED, chunk(ping) .. "0\r\n\r\r\n" .. smuggled) },
  { "white space behind a chunk's size", post(CHUNKED, "2 \r\n{}\r\n0\r\n\r\n" .. smuggled) },
  { "white space before a chunk's size", post(CHUNKED, " 2\r\n{}\r\n0\r\n\r\n" .. smuggled) },
  { "a chunk size with 0x", post(CHUNKED, "0x2\r\n{}\r\n0\r\n\r\n" .. smuggled) },
  { "no chunk size", post(CHUNKED, "\r\n{}\r\n0\r\n\r\n" .. smuggled) },
  { "a trailer without a name", post(CHUNKED, chunk(ping) .. "0\r\n: b\r\n\r\n" .. smuggled) },
  { "a trailer without a colon", post(CHUNKED, chunk(ping) .. "0\r\nX-A\r\n\r\n" .. smuggled) },
  { "a trailer that goes on", post(CHUNKED, chunk(ping) .. "0\r\nX-A: b\r\n c\r\n\r\n" .. smuggled) },
  { "a carriage return within a trailer", post(CHUNKED, chunk(ping) .. "0\r\nX-A: b\rc\r\n\r\n" .. smuggled) },
  { "an extension without end", post(CHUNKED, "2;" .. ("a"):rep(20000) .. "\r\n{}\r\n0\r\n\r\n" .. smuggled) },
  { "trailers without end", post(CHUNKED, chunk(ping) .. "0\r\n" .. ("X-A: b\r\n"):rep(5000) .. "\r\n" .. smuggled) },
  { "chunks in HTTP/1.0", post(CHUNKED, chunk(ping) .. "0\r\n\r\n" .. smuggled, "POST /mcp HTTP/1.0") },
  { "a target without a slash", post(LENGTH .. #inner, inner, "POST mcp HTTP/1.1") },
  { "bare line feeds", (post(LENGTH .. "2", "{}"):gsub("\r\n", "\n")) .. smuggled },
  { "one bare line feed", post("X-A: b\nX-B: c\r\n" .. LENGTH .. "2", "{}" .. smuggled) },
  { "a bare line feed that hides chunks", post("X-A: b\n" .. CHUNKED .. "\r\n" .. LENGTH .. "2", "{}" .. smuggled) },
  { "a carriage return within a line", post("X-A: b\rX-B: c\r\n" .. LENGTH .. "2", "{}" .. smuggled) },
  { "a NUL in a header", post("X-A: b\0c\r\n" .. LENGTH .. "2", "{}" .. smuggled) },
  { "a header without a name", post(": b\r\n" .. LENGTH .. "2", "{}" .. smuggled) },
  { "a header without a colon", post("X-A\r\n" .. LENGTH .. "2", "{}" .. smuggled) },
}

local may_be = { [400] = true, [404] = true, [405] = true, [411] = true, [413] = true, [501] = true }

local function sessions_opened(g)
  return g:status().counters.sessions_opened
end

describe("a request whose end is ambiguous (B-67)", function()
  local g

  setup(function()
    g = gateway.start { config = config }
  end)

  teardown(function()
    g:stop()
  end)

  for _, row in ipairs(unclear) do
    it("is refused, and its connection closed without reading another request: " .. row[1], function()
      local before = sessions_opened(g)
      local connection <close> = client.connect(g)
      connection:send_raw(row[2]):wait_closed()
      local answers = connection.responses
      assert.is_true(#answers <= 1, "there are " .. #answers .. " answers")
      if answers[1] then
        assert.is_true(may_be[answers[1].status], answers[1].status)
      end
      assert.equal(before, sessions_opened(g))
    end)
  end

  it("leaves no connection and no call", function()
    assert.has_nothing_left(g)
  end)
end)

-- Each row: a name, the bytes, the number of answers, and their statuses.
local get = head { "GET /nowhere HTTP/1.1", "Host: localhost" }

local plain = {
  { "HEAD with a body that looks like a request", post(LONG, smuggled, "HEAD /mcp HTTP/1.1") .. get, { 405, 404 } },
  { "HEAD of a stream with such a body", post(LONG, smuggled, "HEAD /sse HTTP/1.1") .. get, { 405, 404 } },
  { "HEAD of nothing with such a body, in chunks", post(CHUNKED, chunk(smuggled) .. "0\r\n\r\n", "HEAD /nowhere HTTP/1.1") .. get, { 404, 404 } },
  { "GET with such a body", post(LONG, smuggled, "GET /mcp HTTP/1.1") .. get, { 400, 404 } },
  { "GET with such a body, in chunks", post(CHUNKED, chunk(smuggled) .. "0\r\n\r\n", "GET /nowhere HTTP/1.1") .. get, { 404, 404 } },
  { "DELETE with such a body", post(LONG, smuggled, "DELETE /mcp HTTP/1.1") .. get, { 400, 404 } },
  { "OPTIONS with such a body", post(LONG, smuggled, "OPTIONS /mcp HTTP/1.1") .. get, { 405, 404 } },
  { "POST whose body is such a request", post(LONG, smuggled) .. get, { 400, 404 } },
  { "POST whose body is such a request, in chunks of one byte",
    post(CHUNKED, smuggled:gsub(".", chunk) .. "0\r\n\r\n") .. get, { 400, 404 } },
  { "POST in chunks with extensions, and trailers that look like headers",
    post(CHUNKED, ("%x;a=b\r\n%s\r\n0\r\nContent-Length: 999\r\nHost: evil.example\r\n\r\n"):format(#ping, ping)) .. get, { 400, 404 } },
  { "POST whose chunk size has zeros in front", post(CHUNKED, ("%012x\r\n%s\r\n0\r\n\r\n"):format(#ping, ping)) .. get, { 400, 404 } },
  { "requests behind each other", get .. post(LENGTH .. #ping, ping) .. get .. post(LENGTH .. "2", "{}") .. get, { 404, 400, 404, 400, 404 } },
  { "header names in any case", post("cOnTeNt-LeNgTh: " .. #ping, ping) .. get, { 400, 404 } },
  { "a length with white space before it", post("Content-Length: \t " .. #ping, ping) .. get, { 400, 404 } },
  { "a length with zeros in front", post("Content-Length: 000" .. #ping, ping) .. get, { 400, 404 } },
  { "chunks in capitals", post("Transfer-Encoding: CHUNKED", chunk(ping) .. "0\r\n\r\n") .. get, { 400, 404 } },
}

-- The answers that came, once there are `count` of them.
local function answers_of(connection, count)
  local statuses = {}
  for i = 1, count do
    statuses[i] = connection:read_response().status
  end
  return statuses
end

describe("requests on one connection (B-68)", function()
  for _, row in ipairs(plain) do
    it("are answered one by one: " .. row[1], function()
      local g <close> = gateway.start { config = config }
      for _, size in ipairs { #row[2], 7 } do -- at once, and byte by byte as TCP may bring it
        local connection <close> = client.connect(g)
        for method in ("\n" .. row[2]:gsub(smuggled, "", 1)):gmatch "\n(%u+) /%S+ HTTP" do
          table.insert(connection.asked, method)
        end
        for i = 1, #row[2], size do
          connection:send_raw(row[2]:sub(i, i + size - 1))
        end
        assert.same(row[3], answers_of(connection, #row[3]))
        connection:fin():wait_closed()
        assert.equal(0, #connection.responses)
        assert.equal("", connection.rest)
      end
      assert.equal(0, sessions_opened(g))
      assert.has_nothing_left(g)
    end)
  end
end)
