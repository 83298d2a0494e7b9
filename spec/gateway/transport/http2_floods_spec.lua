-- Frames that are cheap to send and cost work: each kind ends the connection, is counted, and costs the gateway little.
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local memory = require "spec.helpers.memory"
local wire = require "spec.helpers.wire"

local MIB = 1024 * 1024
local ROOM = 24 * MIB -- memory that a flood may take, of one connection
local SECONDS = 2 -- processor time that a flood may take, also under a sanitizer

-- The processor time that the gateway has used, in seconds.
local function cpu(g)
  local file <close> = assert(io.open("/proc/" .. g.pid .. "/stat"))
  local user, system = file:read("a"):match "%) %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+) (%d+)"
  return (user + system) / 100
end

local message = wire.initialize_message "2025-11-25"

-- Sends `bytes(i)` for i = 1 … n in parts, until the gateway closes the connection.
local function flood(peer, n, bytes)
  local parts = {}
  for i = 1, n do
    parts[#parts + 1] = bytes(i)
    if #parts == 500 or i == n then
      if peer:is_closed() then return end
      peer:send(table.concat(parts))
      parts = {}
      require "luv".run "nowait"
    end
  end
end

local function headers(id, more, flags)
  local list = http2.fields { method = "GET", path = "/nowhere", headers = more }
  return http2.frame(http2.HEADERS, flags or http2.END_HEADERS | http2.END_STREAM, id, http2.block(list))
end

local odd = function(i) return 2 * i - 1 end

local floods = {
  ping = { n = 20000, bytes = function() return http2.ping() end },
  settings = { n = 20000, bytes = function(i) return http2.settings { [http2.INITIAL_WINDOW_SIZE] = 65535 + i % 2 } end },
  ["settings (acknowledgements)"] = { kind = "settings", n = 20000, bytes = function() return http2.frame(http2.SETTINGS, http2.ACK) end },
  ["reset (rapid reset)"] = { kind = "reset", n = 20000, bytes = function(i) return headers(odd(i)) .. http2.rst(odd(i)) end },
  ["streams (DATA after the end)"] = { kind = "streams", n = 20000, bytes = function(i)
    return headers(odd(i)) .. http2.frame(http2.DATA, 0, odd(i), ("x"):rep(100))
  end },
  ["streams (WINDOW_UPDATE of 0)"] = { kind = "streams", n = 20000, bytes = function(i)
    return (i == 1 and headers(1) or "") .. http2.window(1, 0)
  end },
  ["streams (malformed requests)"] = { kind = "streams", n = 20000, bytes = function(i)
    return http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, odd(i), http2.block { { ":method", "GET" }, { ":path", "/" } })
  end },
  priority = { n = 20000, bytes = function(i)
    return http2.frame(http2.PRIORITY, 0, odd(i), (">I4B"):pack(odd(i) + 2 | 0x80000000, i % 256))
  end },
  ["data (empty)"] = { kind = "data", n = 20000, bytes = function(i)
    return (i == 1 and headers(1, nil, http2.END_HEADERS) or "") .. http2.frame(http2.DATA, 0, 1)
  end },
  ["data (padding alone)"] = { kind = "data", n = 20000, bytes = function(i)
    return (i == 1 and headers(1, nil, http2.END_HEADERS) or "") .. http2.frame(http2.DATA, http2.PADDED, 1, "\200" .. ("\0"):rep(200))
  end },
  ["data (one byte each)"] = { kind = "data", n = 60000, bytes = function(i)
    return (i == 1 and headers(1, nil, http2.END_HEADERS) or "") .. http2.frame(http2.DATA, 0, 1, "x")
  end },
  ["continuation (empty)"] = { kind = "continuation", n = 20000, bytes = function(i)
    return i == 1 and headers(1, nil, http2.END_STREAM) or http2.frame(http2.CONTINUATION, 0, 1)
  end },
  ["headers (CONTINUATION without end)"] = { kind = "headers", n = 5000, bytes = function(i)
    return i == 1 and headers(1, nil, http2.END_STREAM)
      or http2.frame(http2.CONTINUATION, 0, 1, http2.literal("x-" .. i, ("v"):rep(4000)))
  end },
  ["headers (bomb)"] = { kind = "headers", n = 200, bytes = function(i)
    local first = i == 1 and http2.literal("x-large", ("v"):rep(3900), 64) or ""
    return http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, odd(i),
      first .. http2.block(http2.fields { path = "/nowhere" }) .. ("\190"):rep(12000))
  end },
  window = { n = 60000, bytes = function(i) return (i == 1 and headers(1) or "") .. http2.window(0, 1) end },
  ["unknown (GOAWAY)"] = { kind = "unknown", n = 20000, bytes = function() return http2.frame(http2.GOAWAY, 0, 0, ("\0"):rep(8)) end },
  unknown = { n = 20000, bytes = function(i) return http2.frame(10 + i % 200, 0, 0, "x") end },
  ["streams (nothing is read)"] = { kind = "streams", n = 20000, pauses = true, bytes = function(i) return headers(odd(i)) end },
}

local names = {}
for name in pairs(floods) do names[#names + 1] = name end
table.sort(names)

describe("a flood of frames", function()
  for _, name in ipairs(names) do
    local case = floods[name]
    it("ends its own connection: " .. name, function()
      local g <close> = gateway.start { config = http2.config { auth = "none" }, workers = 1, env = memory.environment() }
      local other <close> = http2.connect(g)
      assert.equal(200, other:call(message).status)
      local before_bytes, before_seconds = g:rss(), cpu(g)
      local peer <close> = http2.connect(g, { buffer = case.pauses and 4096, acknowledges = false })
      if case.pauses then
        peer.connection:pause()
      end
      flood(peer, case.n, case.bytes)
      local status = g:wait_status(function(status)
        return status.counters.http2_refused[case.kind or name] > 0 and status
      end)
      assert.equal(1, status.counters.http2_refused[case.kind or name])
      if not case.pauses then
        local goaway = peer:refused()
        assert.is_true(goaway == true or goaway.code == http2.ENHANCE_YOUR_CALM, "GOAWAY " .. tostring(goaway ~= true and goaway.code))
      end
      peer:close()
      assert.is_true(g:rss() - before_bytes < ROOM, ("%d KiB more"):format((g:rss() - before_bytes) // 1024))
      assert.is_true(cpu(g) - before_seconds < SECONDS, ("%.2f s"):format(cpu(g) - before_seconds))
      assert.equal("http2", g:wait_log("refused", { cause = "http2" }).fields.cause)
      assert.equal(200, other:call(message).status)
      assert.is_nil(g:log():find "skipping frame")
    end)
  end
end)
