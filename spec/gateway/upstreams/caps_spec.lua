-- How many programs of upstreams run at once: never more than the limits; a task that must wait waits in its order,
-- then it is refused; a program that is idle makes room.
local credentials = require "spec.helpers.credentials"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local AUTH <const> = { ["auth/main.lua"] = credentials.script }
-- capabilities of clients that can be asked: each of their sessions has a program of its own
local ASKABLE <const> = { elicitation = {} }

local function gateway(stubs, processes, options)
  options = options or {}
  return upstream.gateway(stubs, {
    entries = upstream.plain(stubs, options.entries), scripts = AUTH,
    config = { limits = { upstreams = { processes = processes } }, sessions = { per_principal = 1000 } },
    constants = { upstream_evict_idle_ms = options.evict_idle_ms },
  })
end

-- A stub whose programs are counted when they start: `most` is how many ran at once.
local function start(count)
  local u = upstream.start { transport = "stdio", revision = "2025-06-18" }
  count = count or { most = 0, now = {} }
  u.counted = count
  u.at_start = function()
    local n = 0
    for one in pairs(count.now) do
      if one.ended then count.now[one] = nil else n = n + 1 end
    end
    count.most = math.max(count.most, n + 1)
    count.now[u.children[#u.children]] = true
  end
  return u, count
end

local function session(g, token) return g:client("2025-11-25", { token = token, capabilities = ASKABLE }) end
local function begin(c, tool) return c:open("tools/call", { name = tool or "counter" }) end

describe("limits.upstreams.processes", function()
  it("lets those wait for whom there is no room, and serves them in their order", function()
    local u <close>, count = start()
    local g <close> = gateway({ one = u }, 2, { evict_idle_ms = 3600000 })
    local ann <close> = session(g, "ann-1")
    local bob <close> = session(g, "bob-1")
    local cid <close> = session(g, "ann-1")
    assert.equal("1", upstream.text(begin(ann):answer()))
    local bobs = begin(bob)
    g:wait_status(function(now) return now.gauges.upstream_takes == 1 end)
    local cids = begin(cid)
    g:wait_status(function(now) return now.gauges.upstream_takes == 2 end)
    ann:delete()
    assert.equal("1", upstream.text(bobs:answer()))
    assert.equal(1, g:status().gauges.upstream_takes)
    bob:delete()
    assert.equal("1", upstream.text(cids:answer()))
    assert.equal(2, count.most)
  end)

  it("refuses as busy what waits longer than `open`", function()
    local u <close>, count = start()
    local g <close> = gateway({ one = u }, 2, { evict_idle_ms = 3600000, entries = { one = { open = "1s" } } })
    local ann <close> = session(g, "ann-1")
    local bob <close> = session(g, "bob-1")
    assert.equal("1", upstream.text(begin(ann):answer()))
    local data, message = upstream.failure(begin(bob):answer(), "not_run", "busy")
    assert.equal("one", data.upstream)
    assert.matches("is busy", message)
    assert.equal(2, count.most)
    assert.equal("2", upstream.text(begin(ann):answer()))
    ann:delete()
    assert.equal("1", upstream.text(begin(bob):answer()))
  end)

  it("ends the program of any upstream that was idle longest", function()
    local a <close>, count = start()
    local b <close> = start(count)
    local g <close> = gateway({ a = a, b = b }, 3, { evict_idle_ms = 1, entries = { b = { prefix = "b_" } } })
    local ann <close> = session(g, "ann-1")
    local bob <close> = session(g, "bob-1")
    local cid <close> = session(g, "ann-1")
    wait.for_fact("both lists", 20, function() return #a:alive() == 1 and #b:alive() == 1 end)
    assert.equal("1", upstream.text(begin(ann):answer()))
    -- starts a program, for which one that read lists is ended
    assert.equal("1", upstream.text(begin(bob, "b_counter"):answer()))
    assert.equal(1, g:status().counters.upstream_evicted)
    assert.equal("1", upstream.text(begin(cid):answer()))
    assert.equal(2, g:status().counters.upstream_evicted)
    assert.equal("2", upstream.text(begin(bob, "b_counter"):answer()))
    assert.equal("2", upstream.text(begin(cid):answer()))
    wait.for_fact("the line of the log", 20, function() return g:log():find("idle channel ended for room", 1, true) end)
    assert.equal(3, count.most)
  end)

  it("serves all that wait as programs become idle, and ends none that runs", function()
    local one <close>, count = start()
    local two <close> = start(count)
    local g <close> = gateway({ one = one, two = two }, 4, { evict_idle_ms = 100, entries = { one = { open = "5m" }, two = { prefix = "b_", open = "5m" } } })
    wait.for_fact("both lists", 20, function() return #one:alive() == 1 and #two:alive() == 1 end)
    local busy <close> = session(g, "ann-1")
    assert.equal("1", upstream.text(begin(busy):answer()))
    local held = begin(busy, "hold")
    one:wait_held(1)
    local clients, streams = {}, {}
    for i = 1, 12 do
      clients[i] = session(g, i % 3 == 0 and "ann-1" or "bob-1")
      streams[i] = begin(clients[i], i % 2 == 0 and "b_counter" or "counter")
      if i > 1 then g:wait_status(function(now) return now.gauges.upstream_takes > 0 or (now.counters.upstream_evicted or 0) > 0 end) end
    end
    for _, stream in ipairs(streams) do assert.equal("1", upstream.text(stream:answer(120))) end
    assert.is_true(count.most <= 4, count.most .. " at once")
    assert.is_true(g:status().counters.upstream_evicted >= 9)
    assert.equal(0, (g:status().counters.refused or {}).upstream_busy or 0)
    one:release()
    held:answer()
    -- the second call reaches the same program, which was not ended
    assert.equal("2", upstream.text(begin(busy):answer()))
  end)

  it("holds for many sessions before several upstreams, and serves all of them", function()
    local stubs, entries, count = {}, {}, nil
    for i = 1, 4 do
      local u
      u, count = start(count)
      stubs["u" .. i], entries["u" .. i] = u, { prefix = "u" .. i .. "_", process = { most = 3 } }
    end
    local g = gateway(stubs, 6, { evict_idle_ms = 1, entries = entries })
    local ok, why = pcall(function()
      local clients, streams = {}, {}
      for i = 1, 10 do clients[i] = session(g, i % 2 == 0 and "ann-1" or "bob-1") end
      for _, c in ipairs(clients) do
        for i = 1, 4 do streams[#streams + 1] = begin(c, ("u%d_counter"):format(i)) end
      end
      for _, stream in ipairs(streams) do assert.equal("1", upstream.text(stream:answer(60))) end
      assert.is_true(count.most <= 6, count.most .. " at once")
      for _, c in ipairs(clients) do c:delete() end
    end)
    do
      local _ <close> = g -- luacheck: ignore 211
    end
    for _, u in pairs(stubs) do u:close(not ok) end
    assert.is_true(ok, tostring(why))
  end)
end)

describe("process.most", function()
  it("counts programs that are about to end", function()
    local u <close>, count = start()
    local g <close> = gateway({ one = u }, 64, { entries = { one = { process = { most = 2 } } }, evict_idle_ms = 1 })
    for i = 1, 8 do
      local c <close> = session(g, "ann-1")
      assert.equal("1", upstream.text(begin(c):answer()))
      if i % 2 == 0 then c:delete() end
    end
    assert.equal(2, count.most)
  end)
end)

describe("programs of many sessions", function()
  it("may start within one minute", function()
    local u <close> = start()
    local g <close> = gateway({ one = u }, 64)
    local open = {}
    for i = 1, 8 do
      open[i] = session(g, "ann-1")
      assert.equal("1", upstream.text(begin(open[i]):answer()))
    end
    for _, c in ipairs(open) do c:delete() end
    assert.equal(0, g:status().upstreams.one.restarts)
  end)
end)
