-- Sessions open and end; their memory is freed.
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local memory = require "spec.helpers.memory"

local scripts = {
  ["tools/add.lua"] = [[
--- Add two numbers.
---@param a integer
---@param b integer
return function(a, b) return a + b end]],
}

local AT_ONCE = 50

local function message(id, method, params)
  return { jsonrpc = "2.0", id = id, method = method, params = params }
end

local INITIALIZE = message(1, "initialize", {
  protocolVersion = "2024-11-05", capabilities = cjson.decode "{}", clientInfo = { name = "passer-by", version = "1" },
})

-- Fifty clients at once: open a stream, initialize, call a tool, disconnect; by FIN and RST in turn.
local function one_batch(g)
  local people = {}
  for i = 1, AT_ONCE do
    local stream = client.connect(g):send { path = "/sse", headers = { Accept = "text/event-stream" } }
    people[i] = { stream = stream, posts = client.connect(g) }
  end
  local function all_post(body)
    for _, person in ipairs(people) do
      person.posts:send { method = "POST", path = person.endpoint, body = body }
    end
    for _, person in ipairs(people) do
      assert.equal(202, person.posts:read_response(20).status)
    end
  end
  for _, person in ipairs(people) do
    person.endpoint = person.stream:wait_event("endpoint", 20).data
  end
  all_post(INITIALIZE)
  for _, person in ipairs(people) do
    assert.equal("2024-11-05", person.stream:wait_event(1, 20).json.result.protocolVersion)
  end
  all_post(message(nil, "notifications/initialized"))
  all_post(message(2, "tools/call", { name = "add", arguments = { a = 2, b = 3 } }))
  for i, person in ipairs(people) do
    assert.equal("5", person.stream:wait_event(2, 20).json.result.content[1].text)
    local leave = i % 2 == 0 and person.stream.close or person.stream.reset
    leave(person.stream)
    leave(person.posts)
  end
end

local function run_sessions(g, count)
  for _ = 1, count / AT_ONCE do
    one_batch(g)
  end
  assert.has_nothing_left(g)
end

describe("B-05 10,000 HTTP+SSE sessions, 50 at a time", function()
  it("leave no session and no memory behind", function()
    local g <close> = gateway.start { scripts = scripts, env = memory.environment() }
    run_sessions(g, 3000) -- until the Lua state holds as much garbage as the collector allows
    local first = memory.resting(g)
    run_sessions(g, 7000)
    assert.equal(10000, g:status().counters.sessions_closed.gone)
    memory.assert_returned(g, first)
  end)
end)
