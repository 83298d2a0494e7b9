-- What RFC 9113 and RFC 7541 forbid, case by case as h2spec tests it: each is an error of the stream or of the
-- connection.
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local wait = require "spec.helpers.wait"

local HEAD, LAST = http2.END_HEADERS, http2.END_HEADERS | http2.END_STREAM

local function request(id, flags, list)
  return http2.frame(http2.HEADERS, flags or LAST, id, http2.block(list or http2.fields { method = "GET", path = "/nowhere" }))
end

local function with(...)
  local list = http2.fields { method = "GET", path = "/nowhere" }
  for _, pair in ipairs { ... } do list[#list + 1] = pair end
  return list
end

local function fields(change)
  local list = http2.fields { method = "GET", path = "/nowhere" }
  return change(list) or list
end

local f, w = http2.frame, http2.window

-- { bytes, error code or list of codes }; `stream` true: an error of the stream is expected, or of the connection.
local cases = {
  -- 3.4, 4: preface and frames
  { "3.4: a broken preface", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" .. ("x"):rep(40), bare = true },
  { "3.4: the first frame is no SETTINGS", http2.preface .. http2.ping(), 1, bare = true },
  { "4.2: DATA over the frame size", request(1, HEAD) .. f(0, 1, 1, ("x"):rep(16385)), 6 },
  { "4.2: HEADERS over the frame size", f(1, LAST, 1, ("\130"):rep(16385)), { 6, 9, 11 } },
  { "4.3: a block that ends within a field", f(1, LAST, 1, "\64"), 9 },
  { "4.3: PRIORITY within a block", request(1, http2.END_STREAM) .. f(2, 0, 1, ("\0"):rep(5)), 1 },
  { "4.3: HEADERS of another stream within a block", request(1, http2.END_STREAM) .. request(3), 1 },
  -- 5.1: states of streams
  { "5.1: DATA on an idle stream", f(0, 1, 1, "x"), 1 },
  { "5.1: RST_STREAM on an idle stream", http2.rst(1), 1 },
  { "5.1: WINDOW_UPDATE on an idle stream", w(1, 100), 1 },
  { "5.1: CONTINUATION on an idle stream", f(9, 4, 1, "\130"), 1 },
  { "5.1: DATA on a half-closed stream", request(1) .. f(0, 1, 1, "x"), 5, stream = true },
  { "5.1: HEADERS on a half-closed stream", request(1) .. request(1), { 1, 5 } },
  { "5.1: CONTINUATION on a half-closed stream", request(1) .. f(9, 4, 1, "\130"), { 1, 5 } },
  { "5.1: DATA after RST_STREAM", request(1, HEAD) .. http2.rst(1) .. f(0, 1, 1, "x"), 5, stream = true },
  { "5.1: HEADERS after RST_STREAM", request(1, HEAD) .. http2.rst(1) .. request(1), { 1, 5 } },
  { "5.1.1: an even stream", request(2), 1 },
  { "5.1.1: a smaller stream", request(5) .. request(3), { 1, 5 } },
  { "5.1.2: over the streams allowed", (function()
    local all = {}
    for i = 0, 100 do all[#all + 1] = request(2 * i + 1, HEAD) end
    return table.concat(all)
  end)(), { 1, 7 }, stream = true, id = 201 },
  { "5.3.1: HEADERS that depend on themselves", f(1, LAST | 32, 1, (">I4B"):pack(1, 16) .. http2.block(with())), 1, stream = true },
  { "5.3.1: PRIORITY that depends on itself", f(2, 0, 1, (">I4B"):pack(1, 16)), 1, stream = true },
  -- 6: kinds of frames
  { "6.1: DATA on stream 0", f(0, 1, 0, "x"), 1 },
  { "6.1: DATA with more padding than bytes", request(1, HEAD) .. f(0, 9, 1, "\6xxxxx"), 1 },
  { "6.2: HEADERS on stream 0", request(0), 1 },
  { "6.2: HEADERS with more padding than bytes", f(1, LAST | 8, 1, "\255\130\132"), 1 },
  { "6.2: HEADERS too short for its priority", f(1, LAST | 32, 1, "\0\0"), { 1, 6 } },
  { "6.3: PRIORITY on stream 0", f(2, 0, 0, ("\0"):rep(5)), 1 },
  { "6.3: PRIORITY of another size", f(2, 0, 1, "\0\0\0\0"), 6, stream = true },
  { "6.4: RST_STREAM on stream 0", http2.rst(0), 1 },
  { "6.4: RST_STREAM of another size", request(1, HEAD) .. f(3, 0, 1, "\0\0\0"), 6 },
  { "6.5: SETTINGS acknowledged with bytes", f(4, 1, 0, "\0"), 6 },
  { "6.5: SETTINGS on a stream", f(4, 0, 1, (">I2I4"):pack(3, 100)), 1 },
  { "6.5: SETTINGS of another size", f(4, 0, 0, "\0\3\0"), 6 },
  { "6.5.2: ENABLE_PUSH of 2", http2.settings { [2] = 2 }, 1 },
  { "6.5.2: INITIAL_WINDOW_SIZE over 2^31-1", http2.settings { [4] = 0x80000000 }, 3 },
  { "6.5.2: MAX_FRAME_SIZE below 16384", http2.settings { [5] = 16383 }, 1 },
  { "6.5.2: MAX_FRAME_SIZE over 2^24-1", http2.settings { [5] = 1 << 24 }, 1 },
  { "6.5.2: HEADER_TABLE_SIZE below 4096, which libh2o cannot follow", http2.settings { [1] = 0 }, 9 },
  { "6.6: PUSH_PROMISE", f(5, 4, 1, "\0\0\0\2\130"), 1 },
  { "6.7: PING on a stream", f(6, 0, 1, "12345678"), 1 },
  { "6.7: PING of another size", f(6, 0, 0, "123456"), 6 },
  { "6.8: GOAWAY on a stream", f(7, 0, 1, ("\0"):rep(8)), 1 },
  { "6.8: GOAWAY too short", f(7, 0, 0, "\0\0\0\0"), { 1, 6 } },
  { "6.9: WINDOW_UPDATE of 0 on the connection", w(0, 0), 1 },
  { "6.9: WINDOW_UPDATE of 0 on a stream", request(1, HEAD) .. w(1, 0), 1, stream = true },
  { "6.9: WINDOW_UPDATE of another size", f(8, 0, 0, "\0\0\1"), 6 },
  { "6.9.1: a window of the connection over 2^31-1", w(0, 0x7fffffff) .. w(0, 0x7fffffff), 3 },
  { "6.9.1: a window of a stream over 2^31-1", request(1, HEAD) .. w(1, 0x7fffffff) .. w(1, 0x7fffffff), 3, stream = true },
  { "6.10: CONTINUATION on stream 0", request(1, http2.END_STREAM) .. f(9, 4, 0, "\130"), 1 },
  { "6.10: CONTINUATION of another stream", request(1, HEAD) .. request(3, http2.END_STREAM) .. f(9, 4, 1, "\130"), 1 },
  { "6.10: CONTINUATION after the end of a block", request(1, HEAD) .. f(9, 4, 1, "\130"), 1 },
  { "6.10: CONTINUATION after DATA", request(1, HEAD) .. f(0, 1, 1, "x") .. f(9, 4, 1, "\130"), 1 },
  -- 8: requests
  { "8.1: trailers that do not end the stream", request(1, HEAD) .. f(0, 0, 1, "x") .. request(1, HEAD, { { "x-t", "v" } }), 1 },
  { "8.1: trailers with a pseudo-header", request(1, HEAD) .. f(0, 0, 1, "x") .. request(1, LAST, { { ":method", "POST" } }), 1 },
  { "8.1.1: a content-length that is not the body's", request(1, HEAD, with { "content-length", "1" }) .. f(0, 1, 1, "four"), 1, stream = true },
  { "8.1.1: a content-length without a body", request(1, LAST, with { "content-length", "1" }), 1, stream = true },
  { "8.1.1: a content-length of several frames", request(1, HEAD, with { "content-length", "1" }) .. f(0, 0, 1, "fo") .. f(0, 1, 1, "ur"), 1, stream = true },
  { "8.2: a name in upper case", request(1, LAST, with { "X-Test", "v" }), 1, stream = true },
  { "8.2: an empty name", request(1, LAST, with { "", "v" }), 1, stream = true },
  { "8.2: a name with a space", request(1, LAST, with { "x test", "v" }), 1, stream = true },
  { "8.2: a value with a line feed", request(1, LAST, with { "x-test", "v\nx: y" }), 1, stream = true },
  { "8.2: a value with NUL", request(1, LAST, with { "x-test", "v\0" }), 1, stream = true },
  { "8.2.2: connection", request(1, LAST, with { "connection", "keep-alive" }), 1, stream = true },
  { "8.2.2: transfer-encoding", request(1, HEAD, with { "transfer-encoding", "chunked" }), 1, stream = true },
  { "8.2.2: upgrade", request(1, LAST, with { "upgrade", "h2c" }), 1, stream = true },
  { "8.2.2: te other than trailers", request(1, LAST, with { "te", "trailers, deflate" }), 1, stream = true },
  { "8.3: an unknown pseudo-header", request(1, LAST, with { ":test", "v" }), 1, stream = true },
  { "8.3: :status in a request", request(1, LAST, with { ":status", "200" }), 1, stream = true },
  { "8.3: a pseudo-header after a header", request(1, LAST, fields(function(list) table.insert(list, 2, { "x", "v" }) end)), 1, stream = true },
  { "8.3: a pseudo-header in trailers", request(1, HEAD) .. request(1, LAST, { { ":path", "/" } }), 1, stream = true },
  { "8.3.1: an empty :path", request(1, LAST, fields(function(list) list[3][2] = "" end)), 1, stream = true },
  { "8.3.1: no :method", request(1, LAST, fields(function(list) table.remove(list, 1) end)), 1, stream = true },
  { "8.3.1: no :scheme", request(1, LAST, fields(function(list) table.remove(list, 2) end)), 1, stream = true },
  { "8.3.1: no :path", request(1, LAST, fields(function(list) table.remove(list, 3) end)), 1, stream = true },
  { "8.3.1: two :method", request(1, LAST, fields(function(list) table.insert(list, 1, { ":method", "GET" }) end)), 1, stream = true },
  { "8.3.1: two :path", request(1, LAST, fields(function(list) table.insert(list, 1, { ":path", "/" }) end)), 1, stream = true },
  { "8.3.1: two :authority", request(1, LAST, fields(function(list) table.insert(list, 1, { ":authority", "localhost" }) end)), 1, stream = true },
  { "8.3.1: two Host", request(1, LAST, fields(function(list)
    list[4] = { "host", "localhost" }
    table.insert(list, 5, { "host", "localhost" })
  end)), 1, stream = true },
  { "8.3.1: a Host with a space", request(1, LAST, fields(function(list) list[4] = { "host", "local host" } end)), 1, stream = true },
  { "8.3.1: a :path that is no path", request(1, LAST, fields(function(list) list[3][2] = "mcp" end)), 1, stream = true },
  { "8.3.1: a :path that is a URL", request(1, LAST, fields(function(list) list[3][2] = "http://evil.example/" end)), 1, stream = true },
  { "8.3.1: a :path with a space", request(1, LAST, fields(function(list) list[3][2] = "/a HTTP/1.1" end)), 1, stream = true },
  { "8.3.1: an :authority with a space", request(1, LAST, fields(function(list) list[4][2] = "local host" end)), 1, stream = true },
  -- RFC 7541
  { "HPACK 2.3.3: an index beyond the table", f(1, LAST, 1, http2.integer(128, 7, 70) .. http2.block(with())), 9 },
  { "HPACK 4.2: a table size over the limit", f(1, LAST, 1, http2.integer(32, 5, 4097) .. http2.block(with())), 9 },
  { "HPACK 5.1: an integer without end", f(1, LAST, 1, "\255" .. ("\255"):rep(30)), 9 },
  { "HPACK 5.2: padding of Huffman's code over 7 bits", f(1, LAST, 1, http2.block(with()) .. "\0\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff"), 9 },
  { "HPACK 5.2: padding of Huffman's code with zeros", f(1, LAST, 1, http2.block(with()) .. "\0\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90"), 9 },
  { "HPACK 5.2: the end of Huffman's code in a text", f(1, LAST, 1, http2.block(with()) .. "\0\x85\xf2\xb2\x4a\x84\xff\x87\x49\x51\xff\xff\xff\xfa\x7f"), 9 },
  { "HPACK 6.1: index 0", f(1, LAST, 1, "\128" .. http2.block(with())), 9 },
}

local function is_one_of(code, codes)
  for _, each in ipairs(type(codes) == "table" and codes or { codes }) do
    if code == each then return true end
  end
  return codes == nil
end

describe("a request that HTTP/2 forbids", function()
  local g
  setup(function() g = gateway.start { config = http2.config { auth = "none" }, constants = { log_refusals = 100000 } } end)
  teardown(function() g:stop() end)

  for _, case in ipairs(cases) do
    it("is an error: " .. case[1], function()
      local peer <close> = http2.connect(g, { bare = case.bare, acknowledges = false })
      peer:send(case[2])
      local id = case.id or 1
      wait.for_fact("an error", 20, function()
        return peer:is_closed() or peer.goaway or (peer.streams[id] and peer.streams[id].reset)
      end)
      local reset = peer.streams[id] and peer.streams[id].reset
      local code = peer.goaway and peer.goaway.code or reset
      assert.is_true(code == nil or is_one_of(code, case[3]), "error " .. tostring(code))
      assert.is_true(case.stream or not reset or peer.goaway ~= nil, "the connection goes on")
      if not peer.goaway and not peer:is_closed() then
        assert.is_true(peer:is_alive())
      end
    end)
  end

  it("leaves no stream and no request in memory", function()
    assert.has_nothing_left(g)
  end)
end)

describe("a request that HTTP/2 allows", function()
  local g
  setup(function() g = gateway.start { config = http2.config { auth = "none" } } end)
  teardown(function() g:stop() end)

  local function answers(name, bytes, id)
    it("is served: " .. name, function()
      local peer <close> = http2.connect(g)
      peer:send(bytes)
      assert.equal(404, peer:answer(id or 1).status)
      assert.is_true(peer:is_alive())
    end)
  end

  answers("unknown frames and flags", f(200, 255, 7, "x") .. f(6, 0x16, 0, "12345678") .. request(1))
  answers("unknown settings", http2.settings { [255] = 1 } .. request(1))
  answers("PRIORITY of any stream", f(2, 0, 9, (">I4B"):pack(5, 1)) .. f(2, 0, 5, (">I4B"):pack(9, 1)) .. request(5), 5)
  answers("HEADERS with priority and padding", f(1, LAST | 32 | 8, 3, "\4" .. (">I4B"):pack(1 | 0x80000000, 255) .. http2.block(with()) .. "\0\0\0\0"), 3)
  answers("a block in many frames", (function()
    local block = http2.block(with())
    return f(1, http2.END_STREAM, 1, block:sub(1, 7)) .. f(9, 0, 1, block:sub(8, 9)) .. f(9, 0, 1) .. f(9, 4, 1, block:sub(10))
  end)())
  answers("trailers", request(1, HEAD) .. f(0, 0, 1, "body") .. request(1, LAST, { { "x-trailer", "v" } }))
  answers("trailers in several frames", request(1, HEAD) .. f(0, 0, 1, "body") .. f(1, http2.END_STREAM, 1, "\0\1") .. f(9, 4, 1, "x\1v"))
  answers("cache-digest, also in trailers", request(1, HEAD, with { "cache-digest", "AAAA" }) .. request(1, LAST, { { "cache-digest", "AAAA" } }))
  answers("padding in DATA", request(1, HEAD) .. f(0, 9, 1, "\5body\0\0\0\0\0"))
  answers("a body in an empty last frame", request(1, HEAD) .. f(0, 0, 1, "body") .. f(0, 1, 1))
  answers("te: trailers", request(1, LAST, with { "te", "trailers" }))
  answers("fields of the dynamic table",
    f(1, LAST, 1, "\130\134\4\8/nowhere\1\9localhost" .. http2.literal("x-a", "1", 64)) .. f(1, LAST, 3, "\130\134\4\8/nowhere\1\9localhost\190"), 3)
  answers("WINDOW_UPDATE and RST_STREAM of closed streams", request(1) .. http2.rst(1) .. http2.window(1, 5) .. http2.rst(1) .. request(3), 3)

  it("is served without mistaking its trailers for headers", function()
    local peer <close> = http2.connect(g)
    peer:send(request(1, HEAD, { { ":method", "POST" }, { ":scheme", "http" }, { ":path", "/mcp" }, { ":authority", "localhost" } })
      .. f(0, 0, 1, "{}") .. request(1, LAST, { { "content-type", "application/json" }, { "accept", "*/*" } }))
    assert.equal(415, peer:answer(1).status)
  end)

  it("is refused: a request without :authority", function()
    local peer <close> = http2.connect(g)
    assert.equal(403, peer:answer(peer:ask { method = "GET", authority = false }).status)
  end)

  it("may have Host in its place, as proxies send what they got over HTTP/1.1; :authority goes before it", function()
    local peer <close> = http2.connect(g)
    local function status(authority, host)
      return peer:answer(peer:ask { method = "GET", path = "/nowhere", authority = authority, headers = { host = host } }).status
    end
    assert.same({ 404, 403, 404, 403 },
      { status(false, "localhost"), status(false, "evil.example"), status("localhost", "evil.example"), status("evil.example", "localhost") })
    peer:send(request(peer.next_id, HEAD, { { ":method", "POST" }, { ":scheme", "http" }, { ":path", "/nowhere" } })
      -- a `host` in the trailers is no name of the host
      .. f(0, 0, peer.next_id, "{}") .. request(peer.next_id, LAST, { { "host", "localhost" } }))
    assert.equal(403, peer:answer(peer.next_id).status)
  end)
end)
