-- SD-04: all sign-ins are judged by new rules (lua/moonpool/sign_in/watch.lua), also where main.lua loops for one person, or
-- does not know at that moment.

-- The module with sign-ins of its own, of which each id is the user, too. `kept.verdict[id]`: what people.judge returns, or "cut": the
-- task is ended at that place, as one that is over its limit of processor time.
local function load(ids)
  local kept = { found = {}, verdict = {}, asked = {}, logged = {}, ended = {}, now = 0, turns = 0 }
  for _, id in ipairs(ids) do kept.found[id] = true end
  local function begin(f)
    local task = coroutine.create(f)
    local ok, why = coroutine.resume(task)
    assert(ok, why)
    coroutine.close(task)
    return true
  end
  local stubs = {
    ["moonpool.host"] = {
      time = { now = function() return kept.now end, sleep = function() end },
      log = { write = function(_, event) kept.logged[event] = (kept.logged[event] or 0) + 1 end },
      job = { begin = function(f) return not kept.is_full and begin(f) end, begin_own = begin }, store = { delete = function() end },
      semaphore = { take = function() return not kept.is_taken and setmetatable({}, { __close = function() end }) or nil end },
    },
    ["moonpool.sign_in.families"] = { finish = function(id) kept.found[id], kept.ended[#kept.ended + 1] = nil, id end },
    ["moonpool.sign_in.people"] = {
      rules = function() return kept.rules end,
      judge = function(user)
        kept.asked[#kept.asked + 1] = user
        local verdict = kept.verdict[user]
        if verdict == "cut" then coroutine.yield() end
        return verdict == nil or nil, "no", verdict == "unknown"
      end,
    },
    ["moonpool.sign_in.records"] = {
      ids = function() return not kept.is_away and ids or nil end, settle = function() end,
      get = function(kind, id) if kind == "rules" then return kept.judged end return kept.found[id] and { user = id } or nil end,
      put = function(_, _, value) kept.judged = value end,
    },
  }
  local before = {}
  for name, stub in pairs(stubs) do before[name], package.loaded[name] = package.loaded[name] or false, stub end
  kept.watch = dofile "lua/moonpool/sign_in/watch.lua"
  for name, old in pairs(before) do package.loaded[name] = old or nil end
  kept.rules = "r1"
  --- What is asked of whom by a look some seconds later.
  function kept.look(seconds)
    kept.now, kept.asked = kept.now + seconds, {}
    kept.watch.run()
    return kept.asked
  end
  return kept
end

describe("judging all sign-ins by new rules", function()
  it("goes on behind the person at whom a round was cut, after a pause", function()
    local kept = load { "ann", "bob", "eve" }
    kept.verdict = { ann = "cut", eve = "refused" }
    assert.same({ "ann" }, kept.look(0))
    assert.same({}, kept.look(9))
    assert.same({ "bob", "eve", "ann" }, kept.look(1))
    assert.same({ { "eve" }, 1 }, { kept.ended, kept.logged["sign-ins ended"] })        -- though this round is cut, too
    assert.is_nil(kept.judged)
    assert.same({}, kept.look(19))
    kept.verdict.ann = nil
    assert.same({ "ann" }, kept.look(1))
    assert.equal("r1", kept.judged)
    assert.same({}, kept.look(1000))
    assert.same({ ["sign-in not possible"] = 2, ["sign-ins ended"] = 1 }, kept.logged)
  end)

  it("asks again of whom it was not known, and of nobody else", function()
    local kept = load { "ann", "bob" }
    kept.verdict.ann = "unknown"
    assert.same({ "ann", "bob" }, kept.look(0))
    assert.is_nil(kept.judged)
    assert.same({ "ann" }, kept.look(10))
    kept.verdict.ann = "refused"
    assert.same({ "ann" }, kept.look(20))
    assert.same({ "ann" }, kept.ended)
    assert.equal("r1", kept.judged)
  end)

  it("begins anew by other rules without a pause", function()
    local kept = load { "ann", "bob" }
    kept.verdict.ann = "unknown"
    kept.look(0)
    kept.rules, kept.verdict = "r2", { bob = "refused" }
    assert.same({ "ann", "bob" }, kept.look(0))
    assert.same({ "bob" }, kept.ended)
    assert.equal("r2", kept.judged)
  end)

  it("is one worker's, whatever clients run, and waits for the store", function()
    local kept = load { "ann" }
    kept.is_full, kept.is_taken = true, true
    assert.same({}, kept.look(0))
    kept.is_taken, kept.is_away = false, true
    assert.same({}, kept.look(1))
    assert.is_nil(kept.judged)
    kept.is_away = false
    assert.same({}, kept.look(9))
    assert.same({ "ann" }, kept.look(1))
    assert.equal("r1", kept.judged)
  end)
end)
