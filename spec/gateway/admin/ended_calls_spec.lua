-- GET /api/calls?state=ended: the last calls of each worker that have ended, for operators.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local VIEW <const>, METRICS <const>, OPERATE <const> = ("v"):rep(32), ("m"):rep(32), ("o"):rep(32)

local KEY <const> = "key-of-the-spec"
local SECRET_URIS <const> = {
  { "https://ann:" .. KEY .. "@example.com/a@b?c=" .. KEY .. "#" .. KEY, "example.com/a@b" },
  { "https://example.com/@team/a#" .. KEY, "https://example.com/@team/a" },
  { "note:a?to=x@example.com&key=" .. KEY, "note:a" },
}

local function start(constants, more)
  local config = more or {}
  config.admin = { listen = "127.0.0.1:0", tokens = { view = { ann = VIEW }, metrics = { prom = METRICS }, operate = { joe = OPERATE } } }
  local scripts = {
    ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.integer, password = t.optional(t.string) }, function(args) return args.a end }',
    ["tools/fails.lua"] = 'return tool { "Fails.", function() return nil, "no" end }',
    ["resources/note.lua"] = 'return resource { "A note.", uri = "note://{name}", function(vars) return vars.name end }',
  }
  for i, uri in ipairs(SECRET_URIS) do
    scripts["resources/held" .. i .. ".lua"] = ('return resource { "Holds.", uri = %q, function() sleep(60) end }'):format(uri[1])
  end
  return gateway.start { constants = constants, workers = 1, config = config, scripts = scripts }
end

local function ask(g, query, token)
  return client.request(g, { path = "/api/calls" .. query, headers = { Authorization = "Bearer " .. (token or VIEW) } }, { admin = true })
end

-- The calls that have ended, newest first, once there are `count`.
local function ended(g, count)
  local calls
  wait.for_fact(count .. " calls that have ended", 20, function()
    local answer = ask(g, "?state=ended"):json()
    assert.equal(0, answer.workers_without_answer)
    calls = answer.calls
    return #calls == count
  end)
  return calls
end

describe("the list of calls that have ended", function()
  it("has when, what, who, the outcome and the time of each, and nothing of arguments", function()
    local g <close> = start()
    local c <close> = g:client "2026-07-28"
    assert.same({}, ask(g, "?state=ended"):json().calls)
    c:call("tools/call", { name = "add", arguments = { a = 41, password = "hunter2-of-the-spec" } })
    c:call("tools/call", { name = "fails", arguments = {} })
    c:call("resources/read", { uri = "note://x" })
    c:call("tools/call", { name = "x" .. ("é"):rep(200), arguments = {} })
    local calls = ended(g, 4)
    local text = ask(g, "?state=ended").body
    assert.is_nil(text:find("hunter2", 1, true))
    local names, outcomes = {}, {}
    for i, one in ipairs(calls) do
      names[i], outcomes[i] = one.name, one.outcome
      assert.matches("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%dZ$", one.ended)
      assert.is_true(one.took_ms > 0 and one.took_ms < 60000)
      assert.matches("^0%-%d+$", one.call)
      assert.is_string(one.principal)
    end
    assert.same({ "x" .. ("é"):rep(47), "note://x", "fails", "add" }, names)
    assert.same({ "error", "ok", "failed", "ok" }, outcomes)
    assert.equal("tools/call", calls[4].method)
    assert.equal(4, g:status().gauges.ended_calls)
  end)

  it("has URIs without user, query and fragment, as the tap, the log and the list of running calls have them", function()
    local g <close> = start(nil, { log = { level = "debug" } })
    local c <close> = g:client "2026-07-28"
    local tap <close> = client.connect(g, { admin = true })
    tap:send { path = "/api/tap", headers = { Authorization = "Bearer " .. OPERATE } }
    assert.equal(200, tap:read_head().status)
    for i, uri in ipairs(SECRET_URIS) do
      local held = c:open("resources/read", { uri = uri[1] })
      local running = wait.for_fact("the call to run", 20, function() return ask(g, ""):json().calls[1] end)
      assert.equal(uri[2], running.name)
      local answer = client.request(g, { path = "/api/call/" .. running.call, method = "DELETE",
        headers = { Authorization = "Bearer " .. OPERATE, ["moonpool-admin"] = "1" } }, { admin = true })
      assert.equal(200, answer.status)
      held:answer()
      assert.equal(uri[2], ended(g, i)[1].name)
      for _, event in ipairs { "call", "answer" } do
        tap:wait_event(function(one) return type(one.json) == "table" and one.json.event == event and one.json.name == uri[2] end, 20)
      end
      g:wait_log("request", { method = "resources/read", name = uri[2] })
    end
    assert.is_nil((ask(g, "?state=ended").body .. g:log()):find("key-of-the-spec", 1, true))
  end)

  it("keeps the last ones, as many as its constant says, and gives running calls without the query", function()
    local g <close> = start { ended_calls = 3 }
    local c <close> = g:client "2026-07-28"
    for i = 1, 7 do c:call("tools/call", { name = i % 2 == 0 and "fails" or "add", arguments = { a = i } }) end
    local calls = ended(g, 3)
    assert.same({ "add", "fails", "add" }, { calls[1].name, calls[2].name, calls[3].name })
    assert.is_true(calls[1].ended >= calls[3].ended)
    assert.same({}, ask(g, ""):json().calls)
    assert.same({}, ask(g, "?state=running"):json().calls)
    assert.equal(3, g:status().gauges.ended_calls)
    c:close()
    assert.has_nothing_left(g)
  end)

  it("needs the role view, and refuses another query", function()
    local g <close> = start()
    assert.equal(403, ask(g, "?state=ended", METRICS).status)
    assert.equal(401, ask(g, "?state=ended", ("x"):rep(32)).status)
    local answer = ask(g, "?state=all")
    assert.equal(400, answer.status)
    assert.matches("state=running or state=ended", answer.body)
  end)
end)
