-- Requests to the admin listener that wait for workers: how many may wait, how long, and what both count.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local blocking = require "spec.helpers.blocking"
local wait = require "spec.helpers.wait"

local token <const> = ("o"):rep(32)
local headers <const> = { Authorization = "Bearer " .. token, ["moonpool-admin"] = "1" }

local function get(g, path) return client.request(g, { path = path, headers = headers }, { admin = true }) end

-- A request whose answer is read later.
local function open(g, path)
  local reader = client.connect(g, { admin = true })
  reader:send { path = path, method = "GET", headers = headers }
  return reader
end

-- A gateway whose only worker waits until blocking.release(g), with a call of `block`: its client and the call.
local function start_blocked(constants)
  local admin <const> = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } }
  constants = constants or {}
  constants.stuck_ms = 200
  local g = gateway.start { workers = 1, constants = constants,
    config = { admin = admin, scripts = { path = "scripts", trust = "full" } }, scripts = {
    ["tools/block.lua"] = blocking.tool,
  } }
  wait.for_fact("the worker", 20, function() return get(g, "/api/tools").status == 200 end)
  local me = g:client "2026-07-28"
  local pending = blocking.open(g, me)
  g:wait_status(function(now) return now.gauges.workers_stuck == 1 end, 20)
  return g, me, pending
end

describe("a request to the admin listener that waits for a worker", function()
  it("waits for 2 s, and what was not answered is counted", function()
    local g <close>, me, pending = start_blocked { admin_question_ms = 100 }
    local before = g:status().counters.admin_unanswered
    local refused = get(g, "/api/tools")
    assert.equal(503, refused.status)
    assert.matches("a worker does not answer", refused:json().error)
    assert.equal(before + 1, g:status().counters.admin_unanswered)
    assert.equal(1, get(g, "/api/calls"):json().workers_without_answer)
    assert.equal(before + 2, g:status().counters.admin_unanswered)
    assert.equal(0, g:status().gauges.admin_questions)
    blocking.release(g)
    pending:answer(20)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is refused above 16, until one has its answer or its reader leaves", function()
    local g <close>, me, pending = start_blocked { admin_question_ms = 60000, admin_questions = 2 }
    local lists, tools = open(g, "/api/calls"), open(g, "/api/tools")
    g:wait_status(function(now) return now.gauges.admin_questions == 2 end)
    for i, path in ipairs { "/api/tools", "/api/streams" } do
      local refused = get(g, path)
      assert.equal(503, refused.status)
      assert.matches("16 requests wait", refused:json().error)
      assert.equal(i, g:status().counters.refused.admin_questions)
    end
    tools:close()
    lists:close()
    g:wait_status(function(now) return now.gauges.admin_questions == 0 end)
    lists, tools = open(g, "/api/calls"), open(g, "/api/tools")
    g:wait_status(function(now) return now.gauges.admin_questions == 2 end)
    blocking.release(g)
    assert.equal(0, lists:read_response(20):json().workers_without_answer)
    assert.equal("block", tools:read_response(20):json().tools[1].name)
    pending:answer(20)
    lists:close()
    tools:close()
    me:close()
    g:wait_status(function(now) return now.gauges.admin_questions == 0 end)
    assert.has_nothing_left(g)
  end)

  it("gets an error where a worker's answer would be larger than limits.call.output", function()
    local scripts = {}
    for i = 1, 30 do scripts[("tools/tool%02d.lua"):format(i)] = 'return tool { "Does nothing.", function() return "done" end }' end
    local g <close> = gateway.start { workers = 1, scripts = scripts, config = {
      admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } }, limits = { call = { output = "1KiB" } } } }
    local list
    wait.for_fact("the worker", 20, function()
      list = get(g, "/api/tools")
      return list.body and not list.body:find("the gateway starts", 1, true)
    end)
    assert.equal(503, list.status)
    assert.matches("limits%.call%.output", list:json().error)
    assert.equal("tool01", get(g, "/api/tools?search=tool01"):json().tools[1].name)
    assert.has_nothing_left(g)
  end)
end)
