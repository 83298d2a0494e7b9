-- Waiting times after wrong passwords (lua/moonpool/sign_in/waits.lua): a password is judged only while too few were wrong.

-- The module on records of its own; each is replaced only as it was read.
local function load()
  local kept = { found = {} }
  local stubs = {
    ["moonpool.host"] = { http = { counted = function(address) return address:match "^(.-::)" or address end } },
    ["moonpool.sign_in.records"] = {
      hash = function(text) return text end,
      get = function(_, id)
        local text = kept.found[id]
        if coroutine.isyieldable() then coroutine.yield() end
        if not text then return nil end
        return { math.tointeger(text:match "^%d+"), tonumber(text:match " (.*)$") }, text
      end,
      add = function(_, id, value)
        if kept.found[id] then return false end
        kept.found[id] = value[1] .. " " .. value[2]
        return true
      end,
      replace = function(_, id, text, value)
        if kept.found[id] ~= text then return false end
        kept.found[id] = value[1] .. " " .. value[2]
        return true
      end,
      drop = function(_, id) kept.found[id] = nil end,
    },
  }
  local before = {}
  for name, stub in pairs(stubs) do before[name], package.loaded[name] = package.loaded[name] or false, stub end
  kept.waits = dofile "lua/moonpool/sign_in/waits.lua"
  for name, old in pairs(before) do package.loaded[name] = old or nil end
  return kept.waits, kept
end

describe("waits", function()
  it("begin with the fifth wrong password, and double", function()
    local waits = load()
    local now, real = 1000, os.time
    os.time = function() return now end       -- luacheck: ignore 122
    finally(function() os.time = real end)    -- luacheck: ignore 122
    local seconds = {}
    for i = 1, 18 do
      assert.is_false(waits.is_early("ann", "10.0.0.1"))
      waits.note_failure("ann", "10.0.0.1")
      local from = now
      while waits.is_early("ann", "10.0.0.1") do now = now + 1 end
      seconds[i] = now - from
    end
    assert.same({ 0, 0, 0, 0, 2, 3, 5, 9, 17 }, { table.unpack(seconds, 1, 9) })
    assert.same({ 901, 901, 901 }, { table.unpack(seconds, 16, 18) })
  end)

  it("count each of many failures at once", function()
    local waits, kept = load()
    local tasks = {}
    for i = 1, 40 do tasks[i] = coroutine.create(waits.note_failure) end
    local is_busy = true
    while is_busy do
      is_busy = false
      for _, task in ipairs(tasks) do
        if coroutine.status(task) ~= "dead" then
          is_busy = true
          assert(coroutine.resume(task, "ann", "10.0.0.1"))
        end
      end
    end
    local _, text = next(kept.found)
    assert.equal("40", text:match "^%d+")
  end)

  it("are those of a user and a network", function()
    local waits = load()
    for _ = 1, 5 do waits.note_failure("ann", "2001:db8::1") end
    assert.same({ true, true, false, false }, { waits.is_early("ann", "2001:db8::1"), waits.is_early("ann", "2001:db8::ffff"),
      waits.is_early("ann", "10.0.0.1"), waits.is_early("bob", "2001:db8::1") })
    waits.forget("ann", "2001:db8::2")
    assert.is_false(waits.is_early("ann", "2001:db8::1"))
  end)
end)
