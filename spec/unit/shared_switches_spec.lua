-- What a node makes of switches of operators, here and elsewhere, that come at the same moment (lua/moonpool/cluster/
-- shared_switches.lua): whatever the order of the steps, its lists are as the newest version says.
-- Each access to the store is a step; tasks take turns between them at random.
local FIELD <const> = "tool:code"

-- The module on a store of its own. `node.server`: what the server has at FIELD.
local function load()
  local node = { store = {}, server = nil, tasks = {} }
  local function step()
    if coroutine.isyieldable() then coroutine.yield() end
  end
  local store = {}
  function store.get(key)
    step()
    return node.store[key]
  end
  function store.set(key, text)
    step()
    node.store[key] = text
    return true
  end
  function store.delete(key)
    step()
    node.store[key] = nil
    return true
  end
  function store.cas(key, old, text)
    step()
    if (node.store[key] or false) ~= old then return false end
    node.store[key] = text
    return true
  end
  function store.keys(prefix)
    local list = {}
    for key in pairs(node.store) do if key:sub(1, #prefix) == prefix then list[#list + 1] = key end end
    table.sort(list)
    return list
  end
  local registry = { MAX_OFF = 10 }
  function registry.off_key(word, name) return "kept:off:" .. word .. ":" .. name end
  function registry.held_off() return node.store["kept:off:tool:code"] and { { "tool", "code" } } or {} end
  local switches = {}
  function switches.operate(word, name, on, note)
    if on then return store.delete(registry.off_key(word, name)) end
    return store.set(registry.off_key(word, name), note)
  end
  local fakes = {
    ["moonpool.host"] = {
      store = store, time = { now = function() return 0 end, clock = function() return 0 end }, nodes = { tell = function() return {} end },
      job = { is_allowed = function() return true end, begin_own = function(f) node.tasks[#node.tasks + 1] = coroutine.create(f) end },
    },
    ["moonpool.json"] = { decode = function() return {} end },
    ["moonpool.runtime.bus"] = { on = function(_, f) node.take = f end },
    ["moonpool.registry.registry"] = registry, ["moonpool.registry.switches"] = switches,
    ["moonpool.cluster.fanout"] = {
      on = function() end, publish = function() end, at_tick = function(f) node.compare = f end, at_gap = function(f) node.again = f end,
    },
    ["moonpool.lib.cluster_server"] = { deadline = function() return 1 end, is_ready = function() return not node.is_away end },
    ["moonpool.lib.cluster_operation"] = { PREFIX = "mp:spec:" },
  }
  fakes["moonpool.lib.cluster_operation"].send = function(words)
    step()
    if words[1] == "HGETALL" then
      local list = node.server and { FIELD, node.server } or {}
      step()
      return true, list
    end
    local version, state = (node.server or "0 on "):match "^(%d+) (%a+)"
    local mine = tonumber(words[6])
    version = tonumber(version)
    if words[9] == "next" then mine = math.max(mine, version + 1)
    elseif mine < version or mine == version and (state == "off" or words[7] == "on") then return true, node.server end
    node.server = ("%d %s %s"):format(mine, words[7], words[8])
    local reply = node.server
    step()
    return true, reply
  end
  local before = {}
  for name, fake in pairs(fakes) do before[name], package.loaded[name] = package.loaded[name] or false, fake end
  package.loaded["moonpool.cluster.shared_switches"] = nil
  require "moonpool.cluster.shared_switches"
  package.loaded["moonpool.cluster.shared_switches"] = nil
  for name, was in pairs(before) do package.loaded[name] = was or nil end
  function node.operate(on, note)
    switches.note("tool", "code", on, note)
    switches.operate("tool", "code", on, note)
    switches.operate_at_nodes("tool", "code")
  end
  function node.noted() return node.store["kept:noted:" .. FIELD] end
  -- "on", or the note of what is off, as the lists have it and as is noted.
  function node.states()
    local state, note = (node.noted() or "0 on "):match "^%d+ (%a+) (.*)$"
    return node.store["kept:off:tool:code"] or "on", state == "on" and "on" or note
  end
  return node
end

local function run(tasks)
  while tasks[1] do
    local i = math.random(#tasks)
    assert(coroutine.resume(tasks[i]))
    if coroutine.status(tasks[i]) == "dead" then table.remove(tasks, i) end
  end
end

local function version_of(text) return tonumber(text and text:match "^%d+" or 0) end

describe("switches of operators", function()
  it("that were made while a comparison was under way are not undone by it", function()
    local node = load()
    node.server, node.store["kept:off:tool:code"] = "1 off a", "a"
    node.compare()
    local comparing = coroutine.create(node.compare)
    node.again()
    for _ = 1, 2 do assert(coroutine.resume(comparing)) end        -- it has read that the tool is off
    node.operate(true, "b")
    assert.equal("on", (node.states()))
    while coroutine.status(comparing) ~= "dead" do
      assert(coroutine.resume(comparing))
      assert.equal("on", (node.states()))
    end
    assert.matches("^%d+ on b$", node.server)
  end)

  it("leave the lists as the newest version says, whatever comes between", function()
    math.randomseed(11)
    for round = 1, 2000 do
      local node = load()
      node.is_away = round % 3 == 0
      if math.random(2) == 1 then node.server = ("%d off s"):format(math.random(3)) end
      node.again()
      node.tasks = { coroutine.create(node.compare) }
      for i = 1, 2 do
        node.tasks[#node.tasks + 1] = coroutine.create(function() node.operate(math.random(2) == 1, "o" .. i) end)
        node.take(("%s\n%d %s m%d"):format(FIELD, math.random(4), math.random(2) == 1 and "on" or "off", i))
      end
      run(node.tasks)
      local shown, noted = node.states()
      assert.equal(noted, shown, round)
      if not node.is_away then
        assert.is_true(version_of(node.noted()) >= version_of(node.server), round)
      end
      node.is_away = false
      node.again()
      node.compare()
      shown, noted = node.states()
      assert.equal(noted, shown, round)
      assert.equal(node.server:match "^%d+ %a+", node.noted():match "^%d+ %a+", round)
    end
  end)
end)
