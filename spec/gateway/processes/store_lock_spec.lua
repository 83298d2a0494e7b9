-- Locks of store.lock while a gateway is several processes, and when one of them stands still or is killed.
local gateway = require "spec.helpers.gateway"
local upgrading = require "spec.helpers.upgrading"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local SCRIPTS <const> = {
  -- Holds the lock until it is told to end, and says so in the store.
  ["tools/hold.lua"] = [[return tool { "Holds.", input = { ttl = t.number }, timeout = 120, function(args)
    local got, why = store.lock("held", { ttl = args.ttl, wait = 60 }, function(lock)
      local on_end <close> = closing(function() log.info "holder ended" end)
      store.set("holder", lock.fence)
      log.info "lock held"
      while store.get "go" ~= lock.fence do sleep(0.02) end
      return try(store.set("last", lock.fence, { lock = lock })) and lock.fence
    end)
    return { fence = got, why = why }
  end }]],
  ["tools/try.lua"] = [[return tool { "Tries.", input = { wait = t.optional(t.number) }, timeout = 120, function(args)
    local fence, why = store.lock("held", { ttl = 2, wait = args.wait or 0 }, function(lock) return lock.fence end)
    return { fence = fence, why = why, holder = store.get "holder" }
  end }]],
  -- Holds the lock for longer than it may, and then writes with it.
  ["tools/late.lua"] = [[return tool { "Is late.", input = { ttl = t.number }, timeout = 120, function(args)
    local held
    local _, why = store.lock("held", { ttl = args.ttl }, function(lock)
      held = lock
      log.info "lock held"
      sleep(100)
    end)
    local set, refused
    for _ = 1, 100 do
      set, refused = store.set("last", "late", { lock = held })
      if refused ~= "unavailable" and refused ~= "unknown" then break end
      sleep(0.02)
    end
    return { why = why, fence = held.fence, set = tostring(set) .. " " .. tostring(refused) }
  end }]],
  ["tools/last.lua"] = [[return tool { "What was last.", function() return tostring(store.get "last") end }]],
  ["tools/go.lua"] = [[return tool { "Lets the holder end.", function() return tostring(store.set("go", store.get "holder")) end }]],
}

local function hold(c, ttl) return c:open("tools/call", { name = "hold", arguments = { ttl = ttl } }) end
local function structured(answer) return answer.result.structuredContent end
local function try(c, seconds) return structured(c:call("tools/call", { name = "try", arguments = { wait = seconds } }, 60)) end

describe("a lock while a gateway is upgraded", function()
  it("stays with its call in the older process, is renewed from there, and goes to the newer one with a greater fence", function()
    local g <close> = upgrading.start_quick { workers = 1, scripts = SCRIPTS }
    local old <close> = g:client "2025-11-25"
    local stream = hold(old, 2)
    g:wait_log "lock held"
    g:must_upgrade()
    local new <close> = g:client "2026-07-28"
    local began = uv.hrtime()
    wait.for_fact("more than the ttl to pass", 30, function() return uv.hrtime() - began > 2.5e9 end)
    local refused = try(new)
    assert.equal("locked", refused.why)
    new:result("tools/call", { name = "go" })
    local held = structured(stream:answer(30))
    assert.equal(refused.holder, held.fence)
    assert.is_true(try(new, 30).fence > held.fence)
  end)

  it("is free after its ttl if its process was killed", function()
    local g <close> = upgrading.start_quick { workers = 1, scripts = SCRIPTS }
    g:must_upgrade()
    local second = g.pid
    local old <close> = g:client "2025-11-25"
    hold(old, 3)
    g:wait_log "lock held"
    g:must_upgrade()
    local new <close> = g:client "2026-07-28"
    uv.kill(second, "sigkill")
    local got = try(new, 60)
    assert.is_true(got.fence > got.holder)
  end)
end)

describe("a lock whose process stands still", function()
  it("goes to another process with a greater fence, and its earlier holder writes nothing by it any more", function()
    local g <close> = upgrading.start_quick { workers = 1, scripts = SCRIPTS }
    local first = g.pid
    local old <close> = g:client "2025-11-25"
    local stream = old:open("tools/call", { name = "late", arguments = { ttl = 2 } })
    g:wait_log "lock held"
    g:must_upgrade()
    local new <close> = g:client "2026-07-28"
    uv.kill(first, "sigstop")
    local got = try(new, 60)
    uv.kill(first, "sigcont")
    local late = structured(stream:answer(30))
    assert.same({ "lost", "nil lost" }, { late.why, late.set })
    assert.is_true(got.fence > late.fence)
    assert.equal("nil", new:result("tools/call", { name = "last" }).content[1].text)
  end)

  it("is lost for its holder once its time is over, as suspended machines find it", function()
    local g <close> = gateway.start { workers = 1, scripts = SCRIPTS }
    local c <close> = g:client "2026-07-28"
    local stream = hold(c, 2)
    g:wait_log "lock held"
    uv.kill(g.pid, "sigstop")
    local began = uv.hrtime()
    wait.for_fact("the lock's time to pass", 30, function() return uv.hrtime() - began > 2.2e9 end)
    uv.kill(g.pid, "sigcont")
    assert.equal("lost", structured(stream:answer(30)).why)
    g:wait_log "holder ended"
  end)
end)
