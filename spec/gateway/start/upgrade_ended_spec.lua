-- What the processes of a gateway know of one that has ended: its sessions are unknown in all, whichever process learns
-- of its end first.
local uv = require "luv"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local REVISION <const> = "2025-11-25"

-- Opens a session, which keeps its process alive, and closes its connection. Returns the session's id.
local function open_session(g)
  local session = g:client(REVISION)
  session.kept:close()
  session.kept = nil
  return session.session
end

-- The status of a request of this session.
local function ask(connection, id)
  return connection:request({ method = "POST", path = "/mcp", body = wire.message(1, "tools/list"), headers = {
    Accept = wire.both, ["Content-Type"] = "application/json", ["Mcp-Session-Id"] = id, ["MCP-Protocol-Version"] = REVISION } }).status
end

local function ask_newest(g, id)
  local connection <close> = g:connect()
  return ask(connection, id)
end

local function wait_ended(...)
  for _, pid in ipairs { ... } do
    wait.for_fact("process " .. pid .. " to end", 20, function() return not upgrading.lives(pid) end)
  end
end

describe("limits.linger", function()
  it("is a time in which older processes serve on, too", function()
    local g <close> = upgrading.start_quick { config = { limits = { linger = "10m" } } }
    local first, session = g.pid, open_session(g)
    g:must_upgrade()
    g:signal "sigterm"
    g:wait_log("lingering", { ms = "600000" })
    wait.for_fact("a turn of the main thread that has seen the signal", 20, function() return g:admin("/readyz").status == 503 end)
    for _ = 1, 20 do assert.equal(200, ask_newest(g, session)) end
    assert.is_true(upgrading.lives(first))
    g:signal "sigterm" -- the second one does not wait
    wait_ended(g.pid, first)
  end)

  it("is followed by the drain of older processes", function()
    local g <close> = upgrading.start_quick { config = { limits = { linger = "300ms", drain = "10m" } } }
    local first = g.pid
    open_session(g)
    g:must_upgrade()
    g:signal "sigterm"
    wait_ended(g.pid, first)
  end)
end)

describe("a process that has ended", function()
  it("in the trial of another one is unknown to that one, too", function()
    local g <close> = upgrading.start { env = { SPEC_TIME_2000 = "4000" }, config = { limits = { drain = "1s" } } }
    local first, session = g.pid, open_session(g)
    g:must_upgrade()
    local other = open_session(g)
    g:signal "sigusr2"
    wait.for_fact("a second trial", 30, function() return select(2, g:log():gsub("upgrade on trial", "")) == 2 end)
    uv.kill(first, "sigterm")
    g:wait_log("older process ended", { pid = first })
    local second = g.pid
    g:wait_upgraded(2)
    assert.equal(404, ask_newest(g, session))
    assert.equal(200, ask_newest(g, other))
    local listed = g:status().upgrade
    assert.same({ 1, second }, { #listed, listed[1].pid })
  end)

  it("is unknown to the older ones", function()
    local g <close> = upgrading.start { env = { SPEC_TIME_2000 = "100" } }
    local held = {}
    for i = 1, 200 do
      held[i] = g:connect()
      assert.equal(404, held[i]:request({ path = "/nothing" }).status)
    end
    local kept = open_session(g)
    g:must_upgrade()
    local session, second = open_session(g), g.pid
    g:must_upgrade()
    uv.kill(second, "sigkill")
    g:wait_log("older process ended", { pid = second })
    wait.for_fact("the oldest process to know it", 20, function() -- the answer closes the connection
      local one = assert(table.remove(held))
      local status = ask(one, session)
      one:close()
      return status == 404
    end)
    assert.equal(200, ask(held[#held], kept))
    for _, one in ipairs(held) do one:close() end
  end)
end)
