-- Thousands of sessions: caps hold, and delay no other client (B-23); ids are random bytes of the kernel, and never
-- chosen by a client (B-25).
-- proves: caps on sessions 2025-03-26..2025-11-25 http
local uv = require "luv"
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local memory = require "spec.helpers.memory"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local INITIALIZE = [[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},]]
  .. [["clientInfo":{"name":"flood","version":"1"}}}]]

local function request_of(token)
  return table.concat({
    "POST /mcp HTTP/1.1", "host: 127.0.0.1", "content-type: application/json", "accept: application/json, text/event-stream",
    "authorization: Bearer " .. (token or "none"), "content-length: " .. #INITIALIZE, "", INITIALIZE,
  }, "\r\n")
end

-- Raw requests on a connection of its own: sends `count` requests at once; `read` waits for as many answers.
local function pipe(g)
  local self = { socket = uv.new_tcp(), got = {} }
  local connected
  self.socket:connect("127.0.0.1", g.port, function(err) connected = not err end)
  wait.for_fact("a connection", 20, function() return connected end)
  self.answers = 0
  self.socket:read_start(function(_, chunk)
    self.got[#self.got + 1] = chunk
    if chunk then self.answers = self.answers + select(2, chunk:gsub("HTTP/1%.1 %d", "")) end
  end)
  self.send = function(_, text, count)
    self.got, self.answers = {}, 0
    self.socket:write(text:rep(count))
  end
  self.read = function(_, count)
    wait.for_fact(count .. " answers", 20, function() return self.answers >= count end)
    wait.for_fact("the last one's body", 20, function() return table.concat(self.got):find "}%s*$" end)
    return table.concat(self.got)
  end
  return setmetatable(self, { __close = function() self.socket:close() end })
end

local function statuses(text)
  local counts = {}
  for status in text:gmatch "HTTP/1%.1 (%d%d%d)" do counts[status] = (counts[status] or 0) + 1 end
  return counts
end

describe("a flood of initialize (B-23)", function()
  it("is refused with 429 above a cap, uses no memory, and does not disturb an older session", function()
    local g <close> = gateway.start {
      workers = 1, env = memory.environment(), config = { sessions = { per_principal = 50, max = 80, idle = "10m" } },
      scripts = { ["auth/main.lua"] = credentials.script, ["tools/who.lua"] = credentials.who },
    }
    local old = g:client("2025-11-25", { token = "carl-1" })
    local flood <close> = pipe(g)
    flood:send(request_of "ann-1", 60)
    local text = flood:read(60)
    assert.same({ ["200"] = 50, ["429"] = 10 }, statuses(text))
    assert.match("429[^\r]*\r\n.-[Rr]etry%-[Aa]fter: %d+\r\n", text)
    assert.truthy(text:find("too many sessions: try again later", 1, true))
    local before, took, refused = g:rss(), {}, 0
    for round = 1, 250 do
      flood:send(request_of(round % 2 == 0 and "ann-" .. round or "bob-" .. round), 20)
      took[round] = wait.timed(function() assert.equal("user:carl", (credentials.ask(old))) end)
      refused = refused + (statuses(flood:read(20))["429"] or 0)
    end
    -- Of the 80 places ann has 50, carl one, and bob 28; the last one is kept for principals with fewer sessions.
    assert.equal(5000 - 28, refused)
    table.sort(took)
    assert.is_true(took[125] < 0.05, ("half of the calls took longer than %g s"):format(took[125]))
    local most = os.getenv "TSAN_OPTIONS" and math.huge or 8 << 20 -- ThreadSanitizer has memory of its own for all that was ever touched
    assert.is_true(g:rss() - before < most, ("%d KB more"):format((g:rss() - before) // 1024))
    local status = g:status()
    assert.equal(79, status.gauges.sessions.http)
    assert.equal(5000 - 28 + 10, status.counters.refused.sessions)
    old:delete()
    flood:send(request_of "bob-1", 1) -- the number of sessions is below the cap again
    assert.same({ ["200"] = 1 }, statuses(flood:read(1)))
    old:close()
  end)
end)

describe("a session's id (B-25)", function()
  local EACH, POSITIONS = 2000, 36
  local MOST = 56.5 -- chi-square with 15 degrees of freedom: random ids exceed this value once in a million

  it("never repeats, also after restarts, and no character predicts another", function()
    local seen, count, counts, follows = {}, 0, {}, {}
    for i = 1, POSITIONS do counts[i], follows[i] = {}, {} end
    for _ = 1, 3 do
      local g <close> = gateway.start { workers = 2, config = { sessions = { per_principal = EACH, max = 2 * EACH } } }
      local last
      local many <close> = pipe(g)
      for _ = 1, EACH / 500 do
        many:send(request_of(), 500)
        for id in many:read(500):gmatch "[Mm]cp%-[Ss]ession%-[Ii]d: ([^\r]*)\r\n" do
          assert.match("^%x+$", id)
          assert.equal(POSITIONS, #id)
          assert.is_nil(seen[id])
          seen[id], count = true, count + 1
          for i = 1, POSITIONS do
            local c = tonumber(id:sub(i, i), 16)
            counts[i][c] = (counts[i][c] or 0) + 1
            if last then
              -- the difference between this digit and that of the id before it, modulo 16
              local step = (c - tonumber(last:sub(i, i), 16)) % 16
              follows[i][step] = (follows[i][step] or 0) + 1
            end
          end
          last = id
        end
      end
    end
    assert.equal(3 * EACH, count)
    for _, what in ipairs { counts, follows } do
      for i = 1, POSITIONS do
        local total, chi = 0, 0
        for c = 0, 15 do total = total + (what[i][c] or 0) end
        for c = 0, 15 do chi = chi + ((what[i][c] or 0) - total / 16) ^ 2 / (total / 16) end
        assert.is_true(chi < MOST, ("position %d: chi-square %.1f"):format(i, chi))
      end
    end
  end)

  it("is never one that a client chose", function()
    local g <close> = gateway.start { config = { endpoints = { sse = "/sse", messages = "/messages" } } }
    local chosen = ("0123456789abcdef"):rep(3):sub(1, 36)
    local answer = wire.post(g, INITIALIZE, { ["Mcp-Session-Id"] = chosen })
    assert.equal(404, answer.status)
    assert.is_nil(answer.headers["mcp-session-id"])
    local stream <close> = g:connect()
    stream:send { path = "/sse?session_id=" .. chosen, headers = { Accept = "text/event-stream", ["Mcp-Session-Id"] = chosen } }
    assert.is_nil(stream:wait_event("endpoint", 5).data:find(chosen, 1, true))
    assert.equal(404, wire.post(g, [[{"jsonrpc":"2.0","id":1,"method":"ping"}]], { ["Mcp-Session-Id"] = chosen }).status)
    stream:close()
    assert.has_nothing_left(g)
  end)
end)
