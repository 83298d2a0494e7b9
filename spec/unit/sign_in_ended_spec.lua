-- SD-01: which sign-ins have ended (lua/moonpool/sign_in/ended.lua): when the store is asked, and read again.

-- The module. `known[id]`: what the process knows, nil: nothing; `stored`: ids with an ending in the store.
local function load()
  local it = { known = {}, stored = {}, asked = 0, ended = {}, doubts = 1, is_known = false, relayed = {}, handlers = {}, now = 0, is_away = false }
  local host = {
    auth = {
      has_ended = function(id)
        if it.ended[id] then return true end
        if it.is_known then return false end
      end,
      end_sign_in = function(id) it.ended[id] = true end,
      doubt_endings = function(is_again)
        if it.is_known and not is_again then return 0 end
        it.is_known, it.doubts = false, it.doubts + 1
        return it.doubts
      end,
      know_endings = function(number) it.is_known = number == it.doubts end,
    },
    bus = { relay = function(topic, id) it.relayed[#it.relayed + 1] = topic .. " " .. id end },
    job = { begin = function(f) f() return true end },
    time = { now = function() return it.now end },
  }
  local records = {
    ids = function()
      if it.is_away then return nil end
      local list = {}
      for id in pairs(it.stored) do list[#list + 1] = id end
      return list
    end,
    is_there = function(_, id)
      it.asked = it.asked + 1
      if it.is_away then error({ sign_in_unavailable = "the store" }, 0) end
      return it.stored[id] ~= nil
    end,
  }
  local bus = { on = function(topic, f) it.handlers[topic] = f end }
  local stubs = { ["moonpool.host"] = host, ["moonpool.runtime.bus"] = bus, ["moonpool.sign_in.records"] = records }
  local before = {}
  for name, stub in pairs(stubs) do before[name], package.loaded[name] = package.loaded[name] or false, stub end
  local ended = dofile "lua/moonpool/sign_in/ended.lua"
  for name, old in pairs(before) do package.loaded[name] = old or nil end
  return ended, it
end

describe("whether a sign-in has ended", function()
  it("asks no store once the endings were read", function()
    local ended, it = load()
    it.stored.x = true
    ended.load()
    assert.same({ true, false, 0 }, { ended.has "x", ended.has "y", it.asked })
    ended.note "y"
    assert.same({ true, 0 }, { ended.has "y", it.asked })
    assert.same({ "sign-in ended y" }, it.relayed)
    it.handlers["sign-in ended"] "z"
    assert.same({ true, 0 }, { ended.has "z", it.asked })
  end)

  it("asks the store while they could not be read, and fails where that is away", function()
    local ended, it = load()
    it.stored.x, it.is_away = true, true
    ended.load()
    assert.has_error(function() ended.has "x" end)
    it.is_away = false
    assert.same({ true, false, 3 }, { ended.has "x", ended.has "y", it.asked })
    it.now = 11
    ended.has "y"
    assert.same({ 4, true }, { it.asked, it.is_known })
    assert.same({ true, 4 }, { ended.has "x", it.asked })
  end)

  it("reads them again when messages were missed", function()
    local ended, it = load()
    ended.load()
    it.stored.late = true
    assert.is_false(ended.has "late")
    it.handlers.missed()
    assert.same({ true, 0 }, { ended.has "late", it.asked })
  end)
end)
