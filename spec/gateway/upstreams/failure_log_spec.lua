-- What the log says of an upstream that misbehaves: a line for each change of its state, and at level info the cause of
-- each call that failed, with a bound for each upstream and reason.
local free_port = require "spec.helpers.free_port"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local faults = upstream.faults
local FAILED <const> = "upstream call failed"

local function echo(c) return c:call("tools/call", { name = "echo", arguments = { n = 1 } }) end

local function lines(g, event, name)
  local found = {}
  for _, line in ipairs(g:log_lines()) do
    if line.event == event and line.fields.upstream == name then found[#found + 1] = line end
  end
  return found
end

-- { what, fault, transport, reason, outcome, status, words of the cause }
local CASES <const> = {
  { "hangs", faults.hangs(), "http", "timeout", "unknown" },
  { "hangs as a program", faults.hangs(), "stdio", "timeout", "unknown" },
  { "closes the connection", faults.dies(), "http", "closed", "unknown" },
  { "ends as a program", faults.exits(3), "stdio", "closed", "unknown" },
  { "answers no JSON", faults.answers "not JSON", "http", "unreadable", "unknown", "200" },
  { "answers another id", faults.answers '{"jsonrpc":"2.0","id":123456,"result":{"content":[]}}', "http", "unreadable", "unknown", "200" },
  { "answers a result that is none", faults.result '{"content":7}', "http", "unreadable", "unknown", nil, "its content is not a list" },
  { "answers 500", faults.answers_http(500, {}, "no"), "http", "status", "unknown", "500" },
  { "answers 401", faults.status(401), "http", "barred", "not_run", "401" },
  { "is busy", faults.busy(503, 7), "http", "busy", "not_run", "503" },
}

describe("the log of a gateway whose upstream", function()
  for _, case in ipairs(CASES) do
    it(case[1] .. " has the cause of the call that failed", function()
      local u <close> = upstream.start { revision = "2025-11-25", transport = case[3] }
      local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { timeout = "300ms", circuit = { failures = 100 } } }) })
      local c <close> = g:client "2025-11-25"
      upstream.text(echo(c))
      assert.same({}, lines(g, FAILED, "one"))
      u:when("tools/call echo", case[2])
      upstream.failure(echo(c), case[5])
      g:wait_log(FAILED, { upstream = "one", reason = case[4], outcome = case[5] })
      local one = lines(g, FAILED, "one")
      assert.equal(1, #one)
      assert.equal("info", one[1].level)
      assert.equal(case[6], one[1].fields.status)
      assert.matches(case[7] or ".", one[1].fields.why, 1, case[7] ~= nil)
      assert.is_string(one[1].fields.call)
      u:behave()
    end)
  end

  it("is not there has a line when it is down, and the cause of the call", function()
    local g <close> = upstream.gateway({ one = { entry = { url = ("http://127.0.0.1:%d/mcp"):format(free_port()) } } },
      { entries = { one = { prefix = "", list_wait = "100ms" } }, scripts = { ["tools/ask.lua"] = [[
        return tool { "Asks.", function() local answer, why = upstream("one"):call("echo", { n = 1 }) return why or "answered" end }]] } })
    local c <close> = g:client "2025-11-25"
    assert.matches("is not there", upstream.text(c:call("tools/call", { name = "ask" })), 1, true)
    g:wait_log("upstream down", { upstream = "one" })
    g:wait_log(FAILED, { upstream = "one", outcome = "not_run" })
  end)

  it("opens its circuit and closes it has a line for each, and one for the calls that are refused meanwhile", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, {
      entries = upstream.plain({ one = u }, { one = { timeout = "300ms", circuit = { failures = 1, open = "500ms..500ms" } } }) })
    local c <close> = g:client "2025-11-25"
    upstream.text(echo(c))
    u:when("*", faults.dies())
    echo(c)
    g:wait_log("upstream down", { upstream = "one" })
    upstream.failure(echo(c), "not_run", "down")
    g:wait_log(FAILED, { upstream = "one", reason = "down", outcome = "not_run" })
    u:behave()
    wait.for_fact("the upstream answers", 20, function() return echo(c).result ~= nil end)
    g:wait_log("upstream up", { upstream = "one" })
  end)

  it("loses its sessions has a line for that, however many there are", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { per = "session" } }) })
    local clients <close> = setmetatable({}, { __close = function(all) for _, c in ipairs(all) do c:close() end end })
    for n = 1, 5 do
      clients[n] = g:client "2025-11-25"
      upstream.text(echo(clients[n]))
    end
    u:lose_sessions "404"
    for n = 1, 5 do upstream.text(echo(clients[n])) end
    g:wait_log("upstream session lost", { upstream = "one", transport = "http" })
    assert.is_true(g:status().upstreams.one.lost >= 5)
    assert.is_true(#lines(g, "upstream session lost", "one") <= 3) -- one a second
    assert.same({}, lines(g, FAILED, "one")) -- the calls were sent again
  end)

  it("fails each call has ten lines at once, and the number of those without one in the next", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { workers = 1, entries = upstream.plain({ one = u }, { one = { circuit = { failures = 1000 } } }) })
    local c <close> = g:client "2025-11-25"
    upstream.text(echo(c))
    u:when("tools/call echo", faults.busy(429, 1))
    for _ = 1, 30 do upstream.failure(echo(c), "not_run", "busy") end
    u:behave()
    u:when("tools/call echo", faults.answers "not JSON", 1)
    upstream.failure(echo(c), "unknown", "unreadable")
    g:wait_log(FAILED, { upstream = "one", reason = "unreadable" }) -- another reason has its own lines
    local count = 0
    for _, line in ipairs(lines(g, FAILED, "one")) do count = count + (line.fields.reason == "busy" and 1 or 0) end
    assert.is_true(count >= 10 and count <= 13, count)
    u:when("tools/call echo", faults.busy(429, 1))
    wait.for_fact("a line with the number of those that have none", 30, function()
      echo(c)
      for _, line in ipairs(lines(g, FAILED, "one")) do
        if tonumber(line.fields.not_logged or 0) >= 10 then return true end
      end
    end)
  end)
end)
