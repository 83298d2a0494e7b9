-- A body is accepted up to its limit, to the byte, and no byte beyond the limit is stored, whichever way its length is
-- sent and whichever path it is posted to (B-64). HTTP/2 is not supported. limits_spec has the exact border of a small
-- limit; here it is the default limit, 4 MiB.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local memory = require "spec.helpers.memory"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local LIMIT = 4 * 1024 * 1024
local GIGABYTE = 1024 * 1024 * 1024
local PIECE = ("x"):rep(64 * 1024)

local function body_of(size)
  local head, tail = '{"jsonrpc":"2.0","id":1,"method":"ping","x":"', '"}'
  return head .. ("x"):rep(size - #head - #tail) .. tail
end

local function headers_of(more)
  local lines = { "Host: localhost", "Content-Type: application/json", "Accept: " .. wire.both }
  for name, value in pairs(more) do lines[#lines + 1] = name .. ": " .. value end
  return table.concat(lines, "\r\n")
end

-- Sends as long as the other side reads, up to a gigabyte: returns the number of bytes, and the HTTP status.
local function pour(g, path, framing, piece)
  local connections = g:status().gauges.connections
  local connection <close> = client.connect(g)
  connection.asked = { "POST" }
  connection:send_raw(("POST %s HTTP/1.1\r\n%s\r\n\r\n"):format(path, headers_of(framing)))
  local sent, flying = 0, 0
  wait.for_fact("the server to refuse or to take it all", 60, function()
    while flying < 4 and sent < GIGABYTE and not connection:is_closed_by_peer() and not connection.tcp:is_closing() do
      flying = flying + 1
      local ok = connection.tcp:write(piece, function(err)
        flying = flying - 1
        if not err then sent = sent + #PIECE end
      end)
      if not ok then break end
    end
    return connection:is_closed_by_peer() or sent >= GIGABYTE
  end)
  pcall(connection.read_head, connection, 0.1)
  connection:close()
  g:wait_status(function(status) return status.gauges.connections <= connections end) -- counts only the bytes of this body
  return sent, connection.responses[1] and connection.responses[1].status
end

describe("a body of limits.body, and one byte more,", function()
  it("is accepted, or refused with 413, on every path and in every framing", function()
    local g <close> = gateway.start {}
    local session = wire.initialize(g, "2025-11-25")
    local sse = g:client "2024-11-05"
    for size, status in pairs { [LIMIT - 1] = 200, [LIMIT] = 200, [LIMIT + 1] = 413 } do
      local body = body_of(size)
      local piece = ("%x\r\n"):format(size) .. body .. "\r\n0\r\n\r\n"
      for _, path in ipairs { "/mcp", sse.endpoint, "/nowhere" } do
        local expected = status == 200 and (path == sse.endpoint and 202 or path == "/nowhere" and 404) or status
        for framing, bytes in pairs { [{ ["Content-Length"] = size }] = body, [{ ["Transfer-Encoding"] = "chunked" }] = piece } do
          if path == "/mcp" then framing["Mcp-Session-Id"] = session end
          local connection <close> = client.connect(g)
          connection.asked = { "POST" }
          connection:send_raw(("POST %s HTTP/1.1\r\n%s\r\n\r\n"):format(path, headers_of(framing)) .. bytes)
          assert.equal(expected, connection:read_head(20).status, path .. " with " .. size)
        end
      end
    end
    sse:close()
    wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = session })
    assert.has_nothing_left(g)
  end)
end)

describe("a body of a gigabyte", function()
  it("is refused after little more than the limit, and uses no more memory", function()
    local g <close> = gateway.start { env = memory.environment() }
    local sse = g:client "2024-11-05"
    sse:result "ping"
    local before, most = g:rss(), 0
    local watcher <close> = setmetatable({ timer = uv.new_timer() }, { __close = function(self) self.timer:close() end })
    watcher.timer:start(1, 1, function() most = math.max(most, g:rss()) end)
    local chunk = ("%x\r\n%s\r\n"):format(#PIECE, PIECE)
    for _, path in ipairs { "/mcp", sse.endpoint, "/nowhere" } do
      for name, framing in pairs { length = { ["Content-Length"] = GIGABYTE }, chunks = { ["Transfer-Encoding"] = "chunked" } } do
        for _ = 1, 2 do
          local sent, status = pour(g, path, framing, name == "chunks" and chunk or PIECE)
          -- `sent` includes the bytes in the kernel on both sides, which the gateway does not hold
          assert.is_true(sent < LIMIT + 16 * 1024 * 1024, ("%d bytes went to %s by %s"):format(sent, path, name))
          assert.is_true(status == 413 or status == nil, path .. ": " .. tostring(status))
        end
      end
    end
    watcher.timer:stop()
    local after = g:rss()
    local told = ("%d KiB grew to %d KiB, and are %d KiB now"):format(before // 1024, most // 1024, after // 1024)
    local spare = os.getenv "ASAN_OPTIONS" and 8 * 1024 * 1024 or 1024 * 1024 -- AddressSanitizer keeps freed memory for a while
    assert.is_true(most - before < 2 * LIMIT + spare, told) -- the buffer of the body, and the larger one that it is moved to
    assert.is_true(after - before < LIMIT, told)
    assert.same({}, sse:result "ping")
    sse:close()
    assert.has_nothing_left(g)
  end)
end)
