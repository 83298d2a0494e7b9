-- Each list of an upstream is read by itself: one that fails or is not answered is missing, and the others are served.
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local faults = upstream.faults

local function names(c, method, member)
  local found = {}
  for _, entry in ipairs(c:result(method or "tools/list", {})[member or "tools"]) do found[entry.name] = true end
  return found
end

-- Waits until a list has an entry.
local function has(c, name, method, member)
  wait.for_fact(name, 20, function() return names(c, method, member)[name] end)
end

local function broken()
  return {
    ["answers 403"] = faults.status(403), ["answers 404"] = faults.status(404), ["answers 405"] = faults.status(405),
    ["answers 500"] = faults.status(500), ["answers a login page"] = faults.html(), ["gives no answer"] = faults.hangs(),
    ["answers an error"] = faults.error(-32603, "the table is locked"), ["has no list"] = faults.list "7", ["closes the connection"] = faults.dies(),
  }
end

-- The list that fails, and one entry of each that stays.
local LISTS <const> = {
  ["tools/list"] = { "tools", "one_echo" }, ["prompts/list"] = { "prompts", "one_greet" }, ["resources/list"] = { "resources", "text" },
}

describe("the other lists are served where one list", function()
  for what, fault in pairs(broken()) do
    it(what, function()
      for failing in pairs(LISTS) do
        local u <close> = upstream.start { revision = "2025-11-25" }
        u:when(failing, fault)
        local g <close> = upstream.gateway({ one = u }, { entries = { one = { timeout = "2s", list_wait = "2s", refresh = "1h" } } })
        local c <close> = g:client "2026-07-28"
        for method, row in pairs(LISTS) do
          if method ~= failing then has(c, row[2], method, row[1]) end
        end
        g:wait_log("upstream list missing", { upstream = "one", list = failing })
        if failing ~= "tools/list" then
          assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = 1 } })))
        end
      end
    end)
  end

  it("of a program gives no answer", function()
    local u <close> = upstream.start { revision = "2025-11-25", transport = "stdio" }
    u:when("resources/list", faults.hangs())
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { timeout = "2s", list_wait = "2s" } } })
    local c <close> = g:client "2025-11-25"
    has(c, "one_echo")
    has(c, "one_greet", "prompts/list", "prompts")
  end)
end)

describe("a list that gives no answer", function()
  it("holds up the others for less than list_wait", function()
    for _, method in ipairs { "prompts/list", "resources/list", "resources/templates/list" } do
      local u <close> = upstream.start { revision = "2025-11-25" }
      u:when(method, faults.hangs())
      local g <close> = upstream.gateway({ one = u }, { entries = { one = { timeout = "60s", list_wait = "3s" } } })
      local c <close> = g:client "2026-07-28"
      -- the first answer that the client gets has them: many clients ask once
      assert.is_true(names(c).one_echo)
    end
  end)

  it("is served once its answer comes, and clients are told then", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local late
    u:when("prompts/list", function(x) late = x end, 1)
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { timeout = "60s", list_wait = "1s" } } })
    local c <close> = g:client "2025-11-25"
    has(c, "one_echo")
    assert.same({}, names(c, "prompts/list", "prompts"))
    local stream = c:get_stream()
    late:serve()
    stream:wait_event "notifications/prompts/list_changed"
    assert.is_true(names(c, "prompts/list", "prompts").one_greet)
  end)
end)

describe("a list that fails later", function()
  it("stays as it was for `keep`, is read again, and is told of once", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { refresh = "1s" } } })
    local c <close> = g:client "2026-07-28"
    has(c, "one_greet", "prompts/list", "prompts")
    u:when("prompts/list", faults.status(500), 3)
    g:wait_log("upstream list missing", { list = "prompts/list", status = 500 })
    assert.is_true(names(c, "prompts/list", "prompts").one_greet)
    g:wait_log("upstream list is there again", { list = "prompts/list" })
    assert.is_true(names(c, "prompts/list", "prompts").one_greet)
    local count = 0
    for _, line in ipairs(g:log_lines()) do count = count + (line.event == "upstream list missing" and 1 or 0) end
    assert.equal(1, count)
  end)

  it("is gone after `keep`", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { refresh = "1s" } }, constants = { upstream_keep_ms = 1500 } })
    local c <close> = g:client "2026-07-28"
    has(c, "one_greet", "prompts/list", "prompts")
    u:when("prompts/list", faults.status(500))
    wait.for_fact("the prompts to go", 20, function() return not names(c, "prompts/list", "prompts").one_greet end)
    assert.is_true(names(c).one_echo)
  end)
end)
