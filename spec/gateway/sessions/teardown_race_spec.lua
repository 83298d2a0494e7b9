-- Clients that disconnect while messages for them are still on their way.
local uv = require "luv"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local departures = require "spec.helpers.departures"

local RACES = 2000
local AT_ONCE = 40
local SPREAD = 0.005 -- seconds in which all races of a batch happen

local scripts = {
  ["tools/echo.lua"] = [[
--- Say it again.
---@param text string
return function(text) return text end]],
  ["tools/doze.lua"] = [[
return tool { "Sleeps for a moment.", function() sleep(0.003) return "awake" end }]],
}

local TOOLS = { { name = "echo", arguments = { text = "hello" } }, { name = "doze" } }

local function call_of(race)
  return { jsonrpc = "2.0", id = race, method = "tools/call", params = TOOLS[race % 2 + 1] }
end

-- Runs each { at =, run = } at its moment, counted from now.
local function play(plan)
  table.sort(plan, function(a, b) return a.at < b.at end)
  local start = departures.now()
  for _, step in ipairs(plan) do
    repeat
      uv.run "nowait"
    until departures.now() - start >= step.at
    step.run()
  end
end

local function leave(connection, race)
  if race % 4 < 2 then
    connection:close()
  else
    connection:reset()
  end
end

-- Initialized HTTP+SSE sessions: { stream =, posts =, endpoint = }.
local function open_sessions(g, count)
  local people = {}
  for i = 1, count do
    local stream = client.connect(g):send { path = "/sse" }
    people[i] = { stream = stream, posts = client.connect(g) }
  end
  for _, person in ipairs(people) do
    person.endpoint = person.stream:wait_event("endpoint", 20).data
    person.posts:send { method = "POST", path = person.endpoint, body = { jsonrpc = "2.0", id = 0, method = "initialize", params = {
      protocolVersion = "2024-11-05", capabilities = cjson.decode "{}", clientInfo = { name = "racer", version = "1" },
    } } }
  end
  for _, person in ipairs(people) do
    assert.equal(202, person.posts:read_response(20).status)
    person.stream:wait_event(0, 20)
  end
  return people
end

-- Clients of either transport that take no part in the races, and must not be disturbed.
local function open_bystanders(g)
  local sse, http = g:client "2024-11-05", g:client "2025-11-25"
  local stream = http:get_stream():wait "comment"
  return {
    check = function()
      for _, c in ipairs { sse, http } do
        assert.equal("unharmed", c:result("tools/call", { name = "echo", arguments = { text = "unharmed" } }).content[1].text)
      end
    end,
    leave = function()
      for _, message in ipairs(sse.stream:messages()) do
        assert.is_true(message.id ~= nil and message.id <= sse.ids, "not its own: " .. cjson.encode(message))
      end
      assert.same({}, stream:messages())
      assert.equal(204, http:delete().status)
      sse:close()
      http:close()
    end,
  }
end

-- Batches of races: `one_batch(first)` has the races first … first + AT_ONCE - 1.
local function run_races(one_batch)
  math.randomseed(11)
  local g <close> = gateway.start { scripts = scripts, config = departures.config }
  local bystanders = open_bystanders(g)
  for first = 1, RACES, AT_ONCE do
    one_batch(g, first)
    bystanders.check()
  end
  bystanders.leave()
  assert.has_nothing_left(g)
  assert.equal(0, g:status().counters.tool_faults)
  departures.assert_calm(g)
end

describe("B-11 a POST and the end of its event stream, 2,000 times within 5 ms of each other,", function()
  it("end in 202 or 404, and in 404 when the end came first", function()
    local seen = { [202] = 0, [404] = 0 }
    run_races(function(g, first)
      local people, plan = open_sessions(g, AT_ONCE), {}
      for i, person in ipairs(people) do
        local race = first + i - 1
        plan[#plan + 1] = { at = math.random() * SPREAD, run = function()
          person.posted_late = person.left
          person.posts:send { method = "POST", path = person.endpoint, body = call_of(race) }
        end }
        plan[#plan + 1] = { at = math.random() * SPREAD, run = function()
          person.left = true
          leave(person.stream, race)
        end }
      end
      play(plan)
      for i, person in ipairs(people) do
        local status = person.posts:read_response(20).status
        assert.is_true(status == 404 or (status == 202 and not person.posted_late), ("race %d: %d"):format(first + i - 1, status))
        seen[status] = seen[status] + 1
        person.posts:close()
      end
    end)
    assert.is_true(seen[202] > 0 and seen[404] > 0, "no races: " .. seen[202] .. " times 202")
  end)
end)

describe("B-11 a client that disconnects, 2,000 times,", function()
  it("with half of a body sent, leaves no session; the other half is refused", function()
    run_races(function(g, first)
      local people, plan = open_sessions(g, AT_ONCE), {}
      for i, person in ipairs(people) do
        local race = first + i - 1
        local body = cjson.encode(call_of(race))
        local half = #body // 2
        person.posts:send { method = "POST", path = person.endpoint, body = body:sub(1, half),
          headers = { ["Content-Length"] = #body, ["Content-Type"] = "application/json" } }
        plan[#plan + 1] = { at = math.random() * SPREAD, run = function()
          leave(person.stream, race)
          if race % 2 == 0 then
            leave(person.posts, race)
          else
            person.posts:send_raw(body:sub(half + 1))
          end
        end }
      end
      play(plan)
      for _, person in ipairs(people) do
        if not person.posts.tcp:is_closing() then
          assert.equal(404, person.posts:read_response(20).status)
          person.posts:close()
        end
      end
    end)
  end)

  it("before the first event of its stream, leaves no session and no stream", function()
    run_races(function(g, first)
      local session = g:client "2025-11-25"
      local plan = {}
      for race = first, first + AT_ONCE - 1 do
        local stream = client.connect(g)
        if race % 2 == 0 then
          stream:send { path = "/sse" }
        else -- only one of these is accepted at a time
          stream:send { path = "/mcp", headers = {
            Accept = "text/event-stream", ["Mcp-Session-Id"] = session.session, ["MCP-Protocol-Version"] = "2025-11-25" } }
        end
        plan[#plan + 1] = { at = math.random() * SPREAD, run = function()
          leave(stream, race)
        end }
      end
      play(plan)
      assert.equal(204, session:delete().status)
      session:close()
    end)
  end)
end)
