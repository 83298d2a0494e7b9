-- What operators see over an upgrade, and over the end of older processes: one gateway, whose counters never fall.
local uv = require "luv"
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local scrape = require "spec.helpers.scrape"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local token = ("o"):rep(32)
local scripts = {
  ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.integer, b = t.integer }, function(args) return args.a + args.b end }',
  ["tools/hold.lua"] = 'return tool { "Holds.", function() log.info "holds" sleep(60) end }',
}

local function start()
  return upgrading.start_quick { scripts = scripts, workers = 2, config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } } } }
end

local function request(path, method, body)
  return { method = method or "GET", path = path, body = body and cjson.encode(body),
    headers = { Authorization = "Bearer " .. token, ["moonpool-admin"] = "1", ["Content-Type"] = body and "application/json" or nil } }
end

local function admin(g, ...) return client.request(g, request(...), { admin = true }) end
local function status(g) return admin(g, "/status"):json() end

local function add(c) return c:result("tools/call", { name = "add", arguments = { a = 1, b = 2 } }) end

local function counters_of(g)
  local all = {}
  for family, value in pairs(status(g).counters) do
    if type(value) ~= "table" then value = { [""] = value } end
    for name, number in pairs(value) do all[family .. " " .. name] = number end
  end
  for name, value in pairs(scrape.samples(g)) do
    if name:find "_total" or name:find "_bucket" or name:find "_count" or name:find "_sum" then all[name] = value end
  end
  return all
end

local function assert_none_fell(before, after, when)
  for name, value in pairs(before) do
    assert.is_true(after[name] and after[name] >= value, ("%s fell %s from %s to %s"):format(name, when, value, after[name]))
  end
end

describe("over three upgrades", function()
  it("no counter falls, /status lists the older processes, and each call can be cancelled", function()
    local g <close> = start()
    local clients, calls, before = {}, {}, {}
    local function follow(when)
      local now = counters_of(g)
      assert_none_fell(before, now, when)
      before = now
    end
    for round = 1, 3 do
      local c = g:client "2025-11-25"
      clients[round] = c
      for _ = 1, 5 do add(c) end
      calls[round] = c:open("tools/call", { name = "hold", arguments = {} })
      wait.for_fact("the call", 20, function() return #(admin(g, "/api/calls"):json().calls) == round end)
      follow "before an upgrade"
      g:must_upgrade_by_signal()
      follow "at an upgrade"
    end
    local now = status(g)
    assert.equal(3, #now.upgrade)
    assert.equal(3, now.gauges.sessions.http)
    local pids = {}
    for _, one in ipairs(now.upgrade) do
      pids[one.pid] = true
      assert.same({ 1, 1 }, { one.sessions, one.calls })
    end
    for _, pid in ipairs(g:older()) do assert.is_true(pids[pid]) end
    local list = admin(g, "/api/calls"):json().calls
    assert.equal(3, #list)
    for i, call in ipairs(list) do
      local answer = admin(g, "/api/call/" .. (i == 1 and call.id or call.call), "DELETE", {})
      assert.same({ 200, true }, { answer.status, answer:json().cancelled })
    end
    for _, call in ipairs(calls) do
      local answer = call:answer()
      assert.is_true(answer.error ~= nil or answer.result.isError)
    end
    follow "after calls were cancelled"
    for _, c in ipairs(clients) do
      c:delete()
      c:close()
    end
    wait.for_fact("the older processes to end", 60, function()
      follow "while older processes end"
      return #status(g).upgrade == 0
    end)
    follow "after the end of older processes"
    assert.is_true(before["sessions_opened "] >= 3)
  end)
end)

describe("a tap", function()
  it("that was open before an upgrade is ended and says so; the next one has the calls of all", function()
    local g <close> = start()
    local c <close> = g:client "2025-11-25"
    local function tap()
      local reader = client.connect(g, { admin = true })
      reader:send(request "/api/tap")
      assert.equal(200, reader:read_head().status)
      return reader
    end
    local first <close> = tap()
    first:wait_event(function(event) return event.json and event.json.event == "tap opened" end)
    g:must_upgrade_by_signal()
    first:wait_event(function(event) return event.json and event.json.event == "tap closed" and event.json.why:find "another process" end, 20)
    local second <close> = tap()
    wait.for_fact("taps in both", 20, function() return status(g).gauges.taps == 2 end)
    local d <close> = g:client "2025-11-25"
    add(c)
    add(d)
    wait.for_fact("the calls of both", 20, function()
      local ended = 0
      for _, event in ipairs(second:messages()) do
        if event.event == "answer" and event.name == "add" then ended = ended + 1 end
      end
      return ended == 2
    end)
  end)

  it("ends in its time while an older process stands still", function()
    local g <close> = start()
    local c <close> = g:client "2025-11-25"
    local older = g.pid
    g:must_upgrade_by_signal()
    uv.kill(older, "sigstop")
    local code, out, err = gateway.exec({ "tap", "--for", "1s", "--admin", "127.0.0.1:" .. g.admin_port },
      { env = { MOONPOOL_ADMIN_TOKEN = token }, seconds = 20 })
    uv.kill(older, "sigcont")
    assert.same({ 0, "" }, { code, out })
    assert.matches("the time of the tap is over", err, 1, true)
    add(c)
  end)
end)

describe("a connection to the admin listener that was open before an upgrade", function()
  it("is answered for all processes", function()
    local g <close> = start()
    local c <close> = g:client "2025-11-25"
    local kept <close> = client.connect(g, { admin = true })
    local old = kept:request(request "/status"):json()
    g:must_upgrade_by_signal()
    local now = kept:request(request "/status"):json()
    assert.same({ g.pid, old.pid }, { now.pid, now.upgrade[1] and now.upgrade[1].pid })
    add(c)
  end)
end)
