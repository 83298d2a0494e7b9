-- What a node makes of the messages of others (lua/moonpool/cluster/fanout.lua): each once, however connections overtake
-- each other, and a loss exactly where one was.
local UID <const> = ("a"):rep(32)

-- The module on a host whose clock stands still, and what it has done. `node.clock` is in seconds.
local function load(kept, has_followers)
  local node = { clock = 100, store = kept or {}, counts = {}, sent = {}, is_answering = true, delivered = {}, logged = {}, renewed = 0, current = {} }
  local store = {}
  local ends = {}
  function store.get(key)
    if ends[key] and node.clock >= ends[key] then node.store[key] = nil end
    return node.store[key]
  end
  function store.set(key, text, seconds)
    node.store[key], ends[key] = text, seconds and node.clock + seconds
    return true
  end
  function store.add(key, text)
    local is_new = node.store[key] == nil
    node.store[key] = node.store[key] or text
    return is_new
  end
  function store.delete(key) node.store[key] = nil end
  function store.incr(key, n)
    node.store[key] = tostring((math.tointeger(tonumber(node.store[key])) or 0) + n)
    return math.tointeger(tonumber(node.store[key]))
  end
  function store.keys(prefix)
    local list = {}
    for key in pairs(node.store) do if key:sub(1, #prefix) == prefix then list[#list + 1] = key end end
    table.sort(list)
    return list
  end
  local function nothing() end
  local host = {
    config = { cluster = { name = "spec", beat_ms = 1000, timeout = 0.25 } }, upstream = { instance = ("b"):rep(32) }, store = store,
    time = { now = function() return node.clock end, sleep = nothing }, bus = { relay = nothing, broadcast = nothing },
    log = { write = function(_, event) node.logged[#node.logged + 1] = event end },
    topic = { count = function(what, n) node.counts[what] = (node.counts[what] or 0) + n end },
    redis = { channel = function() return {} end, connection = function() return {} end },
    job = { listen = nothing, is_allowed = function() return true end, begin_own = function(f) node.task = f return true end },
  }
  function host.redis.renew()
    node.renewed = node.renewed + 1
    return not node.is_refused
  end
  local server = {
    place = "here", NODES = "nodes", nodes = function() return tonumber(node.store.nodes) or 1 end, deadline = function() return node.clock + 1 end,
    is_ready = function() return node.is_answering end, current = function() return node.current end, renew = nothing,
  }
  function server.send_all(requests)
    if node.is_lost then return nil, "lost", "unavailable" end
    local replies = {}
    for i, words in ipairs(requests) do replies[i], node.sent[#node.sent + 1] = 1, words[3] end
    return true, replies[2] and replies or 1
  end
  for name in pairs(package.loaded) do
    if name:find "^moonpool" then package.loaded[name] = nil end
  end
  package.loaded["moonpool.host"], package.loaded["moonpool.lib.cluster_server"] = host, server
  node.fanout, node.bus = require "moonpool.cluster.fanout", require "moonpool.runtime.bus"
  if has_followers then
    node.told = 0
    package.loaded["moonpool.json"] = {}
    package.loaded["moonpool.registry.subscriptions"] = {
      list_may_have_changed = function() node.told = node.told + 1 end, resource_topic = function() return "" end, updated_elsewhere = nothing,
    }
    host.topic.names = function() return {} end
    host.random = { bytes = function(n) return ("\x80"):rep(n) end }
    require "moonpool.cluster.followers"
  end
  node.fanout.on("x", function(body) node.delivered[#node.delivered + 1] = body end)
  node.fanout.start()
  for name in pairs(package.loaded) do
    if name:find "^moonpool" then package.loaded[name] = nil end
  end
  return node
end

local function message(number, kind) return ("1 %s %d %s\n%d"):format(UID, number, kind or "x", number) end

-- Runs the job for a second and more, with the own beat.
local function tick(node, seconds)
  node.clock = node.clock + (seconds or 1.1)
  node.fanout.run(false)
  if node.is_answering and not node.is_silent then node.fanout.run(node.sent[#node.sent]) end
end

-- The message that the server answers again.
local function come_back(node) node.bus.deliver("fan-out back", "") end

local function gaps(node) return node.counts.gap or 0 end

describe("a node", function()
  it("takes each message once, and notes a loss exactly where messages are missing", function()
    math.randomseed(7)
    for round = 1, 500 do
      local node = load()
      node.fanout.run(nil)
      tick(node)
      local list, lost, number = {}, {}, 0
      for _ = 1, 60 do
        number = number + 1
        if round % 2 == 0 and math.random(20) == 1 then lost[number] = true else list[#list + 1] = number end
        if math.random(10) == 1 then list[#list + 1] = math.random(number) end      -- once more
        if lost[list[#list]] then table.remove(list) end
      end
      for i = 1, #list - 3 do
        local other = i + math.random(0, 3)
        list[i], list[other] = list[other], list[i]
      end
      node.fanout.run(message(0, "beat"))
      for _, one in ipairs(list) do node.fanout.run(message(one)) end
      node.fanout.run(message(number, "beat"))
      tick(node)
      local seen = {}
      for _, body in ipairs(node.delivered) do
        assert.is_nil(seen[body])
        seen[body] = true
      end
      for i = 1, number do assert.equal(not lost[i], seen[tostring(i)] == true) end
      assert.equal(0, gaps(node))                                  -- they may still come
      for _ = 1, 2 do
        tick(node)
        assert.equal(next(lost) and 1 or 0, gaps(node))
      end
    end
  end)

  it("knows the numbers that another Lua state, or process, of it has seen", function()
    local node = load()
    node.fanout.run(nil)
    tick(node)
    for i = 1, 5 do node.fanout.run(message(i)) end
    local later = load(node.store)
    later.clock = node.clock
    later.fanout.run(nil)
    later.fanout.run(message(5, "beat"))
    later.fanout.run(message(5))
    later.fanout.run(message(6))
    tick(later)
    assert.same({ "6" }, later.delivered)
    assert.equal(0, gaps(later))
    local last = load(later.store)
    last.clock = later.clock
    last.fanout.run(nil)
    last.fanout.run(message(8, "beat"))
    tick(last, 2)
    assert.equal(1, gaps(last))
  end)

  it("notes no loss of numbers that are void, nor while nothing comes at all", function()
    local node = load()
    node.fanout.run(nil)
    tick(node)
    node.fanout.run(message(1))
    for _, number in ipairs { 3, 2, 9 } do node.fanout.run(message(number)) end      -- 4 to 8 are missing
    node.fanout.run(("1 %s 6 void\n3"):format(UID))
    node.fanout.run(("1 %s 8 void\n2"):format(UID))
    node.fanout.run(("1 %s 12 void\n3"):format(UID))
    node.fanout.run(message(12, "beat"))
    for _ = 1, 4 do tick(node) end
    assert.same({ 0, 4 }, { gaps(node), #node.delivered })
    node.fanout.run(message(14))
    node.is_answering = false
    for _ = 1, 20 do tick(node) end
    assert.equal(0, gaps(node))
    node.is_answering = true
    node.fanout.run(message(13))
    for _ = 1, 4 do tick(node) end
    assert.same({ 0, 6 }, { gaps(node), #node.delivered })
  end)

  it("takes numbers when it sends, so that an outage leaves no holes", function()
    local node = load()
    node.fanout.publish("x", "one")
    node.fanout.publish("x", "two")
    node.is_answering = false
    node.task()
    assert.same({ [1] = nil, [2] = 2 }, { node.store["fanout:number:" .. ("b"):rep(32)], node.counts.waits })
    node.is_answering, node.is_lost = true, true                   -- the connection breaks before they are written
    come_back(node)
    node.task()
    assert.equal("2", node.store["fanout:number:" .. ("b"):rep(32)])
    node.is_lost = false
    node.fanout.run(false)
    come_back(node)
    node.task()
    node.fanout.run(false)                                         -- nothing is void any more
    local kinds = {}
    for i, text in ipairs(node.sent) do kinds[i] = text:match "^1 b+ (%d+ %l+\n.*)$" end
    assert.same({ "2 void\n2", "2 beat\n", "3 x\none", "4 x\ntwo", "4 beat\n" }, kinds)
    assert.equal(0, node.counts.waits)
    local other = load()
    other.fanout.run(nil)
    tick(other)
    other.fanout.run(("1 %s 0 beat\n"):format(UID))
    for _, text in ipairs(node.sent) do other.fanout.run((text:gsub("b+", UID, 1))) end
    for _ = 1, 5 do tick(other) end
    assert.same({ 0, { "one", "two" } }, { gaps(other), other.delivered })
  end)

  it("does not doubt a sender that had ended before a loss", function()
    local node = load()
    node.fanout.run(nil)
    tick(node)
    node.fanout.run(message(1))
    for _ = 1, 10 do tick(node) end
    node.fanout.run(nil)
    for _ = 1, 20 do tick(node) end
    assert.equal(0, gaps(node))
    node.fanout.run(message(2))                                    -- it had only been silent
    for _ = 1, 5 do tick(node) end
    assert.same({ 0, { "1", "2" } }, { gaps(node), node.delivered })
  end)

  it("notes a loss where a sender is not heard again after one, or began meanwhile", function()
    local node = load()
    node.fanout.run(nil)
    tick(node)
    node.fanout.run(message(1))
    tick(node)
    node.fanout.run(nil)
    for _ = 1, 12 do tick(node) end
    assert.equal(0, gaps(node))
    for _ = 1, 4 do tick(node) end
    assert.equal(1, gaps(node))
    node.fanout.run(message(3))
    assert.equal(2, gaps(node))
  end)

  it("subscribes again when its own beats do not come back, and not while the server does not answer", function()
    local node = load()
    node.fanout.run(nil)
    tick(node)
    node.is_answering = false
    for _ = 1, 10 do tick(node) end
    assert.equal(1, node.renewed)                                  -- the server is known
    node.is_answering, node.is_silent = true, true
    for _ = 1, 4 do tick(node) end
    assert.equal(2, node.renewed)
    for _ = 1, 90 do tick(node) end                                -- after 6, 12, 24 and 48 s
    assert.equal(6, node.renewed)
    assert.same({ "subscription made again" }, node.logged)
    node.is_silent = false
    tick(node)
    node.current = {}                                              -- another server is the primary
    tick(node)
    assert.equal(7, node.renewed)
    node.is_silent, node.is_refused, node.logged = true, true, {}
    for _ = 1, 12 do tick(node) end
    assert.same({ 9, {} }, { node.renewed, node.logged })
  end)

  it("tells its clients of losses with pauses that grow while there are more", function()
    local node = load(nil, true)
    node.fanout.run(nil)
    tick(node)
    local told = {}
    local function pass(from, to, lost)
      for second = from, to do
        if lost(second) then node.fanout.run(message(2 * second)) end      -- one of two is missing
        tick(node, 1)
        if node.task then node.task() end
        node.task = nil
        if node.told > 0 then told[#told + 1], node.told = second, 0 end
      end
    end
    pass(1, 900, function(second) return second <= 600 end)
    assert.is_true(told[1] <= 10 and told[#told] > 600 and told[#told] <= 670, table.concat(told, " "))
    for i = 2, #told do
      local least = math.min(5 * 2 ^ (i - 2), 60)
      assert.is_true(told[i] - told[i - 1] >= least and told[i] - told[i - 1] <= least + 12, table.concat(told, " "))
    end
    pass(901, 930, function(second) return second == 901 end)
    assert.is_true(told[#told] > 900 and told[#told] <= 910, table.concat(told, " "))
  end)

  it("counts the nodes that are there, and not while nothing comes", function()
    local node = load()
    local function pass(seconds, beats)
      for _ = 1, seconds do
        for i = 1, beats do node.fanout.run(("1 %s%d 0 beat\n"):format(UID, i)) end
        tick(node, 1)
      end
    end
    node.fanout.run(nil)
    pass(4, 2)
    assert.is_nil(node.store.nodes)
    pass(4, 2)
    assert.equal("3", node.store.nodes)
    node.is_answering = false
    pass(20, 0)
    node.is_answering = true
    pass(4, 0)
    assert.equal("3", node.store.nodes)
    pass(8, 1)
    assert.equal("2", node.store.nodes)
    assert.same({ "gateways of the cluster counted", "gateways of the cluster counted" }, node.logged)
  end)

  it("sends what it publishes in order, the last of each topic, and counts what it drops", function()
    local node = load()
    for i = 1, 5000 do node.fanout.publish("x", "body " .. i, "topic " .. (i <= 4500 and i or 1)) end
    node.fanout.publish("x", ("x"):rep(5000))
    assert.equal(4096, node.counts.waits)
    node.task()
    assert.equal(0, node.counts.waits)
    assert.equal(4096, #node.sent)
    assert.equal("1 " .. ("b"):rep(32) .. " 406 x\nbody 5000", node.sent[1])
    assert.equal(404 + 1, node.counts.dropped)
    node.fanout.publish("x", "one more")
    node.task()
    assert.matches("^1 b+ 4502 x\none more$", node.sent[#node.sent])
  end)
end)
