-- What gateways of a cluster do without the server: the share that each of them counts alone, and the instants of jobs.
local host = require "spec.helpers.host"

describe("a gateway of a cluster", function()
  local vm, replies, asked
  before_each(function()
    vm = host.start {}
    vm.host.config.cluster = { name = "spec", limits = "local", quotas = "refuse", timeout = 0.25 }
    replies, asked = {}, {}
    package.loaded["moonpool.lib.cluster_server"] = { nodes = function() return 3 end, brief = {} }
    package.loaded["moonpool.lib.cluster_operation"] = {
      PREFIX = "mp:spec:", CLOCK = "", ask = function() return nil, "unavailable" end,
      timed = function(_, _, plan)
        local from, till, key, words = plan(replies.now)
        asked[#asked + 1] = { from = from, till = till, key = key, words = words }
        if not from then return nil end
        return table.unpack(table.remove(replies, 1) or { nil, "unavailable" })
      end,
    }
  end)
  after_each(host.stop)

  it("admits its share where it counts alone, and no more than a policy says otherwise", function()
    local taken, counted = {}, {}
    local counts = require "moonpool.lib.cluster_counts" {
      take = function(...) taken[#taken + 1] = { ... } return true end,
      count = function(_, most) counted[#counted + 1] = most return true, 60 end,
    }
    assert.is_true(counts.take("l:\0it\0ann", 0.5, 20))
    assert.is_true(counts.take("visitor l:\0it\0192.0.2.1", 20 * 86400, 2))
    assert.same({ { "l:\0it\0ann", 1.5, 6 }, { "visitor l:\0it\0192.0.2.1", 30 * 86400, 1 } }, taken)
    assert.same({ nil, "unavailable" }, { counts.take("l:\0it\0ann", 0.5, 20, "refuse") })
    assert.is_true(counts.take("l:\0it\0ann", 0.5, 20, "allow"))
    replies.now = 1000
    local function period_at(now) return "q:1\0it", now, now + 60 end
    assert.same({ nil, "unavailable" }, { counts.count(period_at, 100) })
    assert.is_true(counts.count(period_at, 100, "local"))
    assert.is_true(counts.count(period_at, 2, "local"))
    assert.is_true(counts.count(period_at, 2, "allow"))
    assert.same({ 33, 0 }, counted)
    assert.equal(2, #taken)
  end)

  describe("claims a job", function()
    local jobs
    before_each(function() jobs = require "moonpool.lib.cluster_jobs" end)

    -- Claims at `now`, in seconds: the slot that was asked for, in seconds, and the fence.
    local function claim(one, now, ...)
      replies.now, replies[1] = now * 1000 // 1 | 0, { ... }
      local held, fence = jobs.claim(one)
      local last = asked[#asked]
      return last.from and last.from / 1000, fence, held
    end

    it("at multiples of its interval, in the first minute", function()
      local one = { name = "tick", every = 10 }
      local slot, fence, held = claim(one, 1000000007.5, "17")
      assert.same({ 1000000000, 17, 15 }, { slot, fence, held.ttl })
      assert.equal("j:tick", asked[#asked].key)
      assert.is_nil((claim(one, 1000000009.9)))                    -- this gateway has run it
      assert.equal(1000000010, (claim(one, 1000000010, "past", "1000000010000")))
      assert.is_nil((claim(one, 1000000011)))                      -- another one has
      assert.equal(1000000020, (claim(one, 1000000021, "held")))
      assert.equal(1000000020, (claim(one, 1000000022)))           -- no answer
      assert.equal(1000000020, (claim(one, 1000000023, "18")))
      assert.equal(1000000800, (claim({ name = "hour", every = 3600 }, 1000000859, "held")))
      assert.is_nil((claim({ name = "hour", every = 3600 }, 1000000861, "19")))
    end)

    it("again, where the clock of the server was a day ahead of now", function()
      local one = { name = "tick", every = 10 }
      claim(one, 1000200000, "17")
      assert.is_nil((claim(one, 1000150000)))
      assert.equal(1000100000, (claim(one, 1000100000, "18")))
    end)

    it("at times of day, once where a time exists twice", function()
      local cron = require "moonpool.lib.cron"
      local one = { name = "night", times = assert(cron.read("30 2 * * *", "Europe/Berlin")) }
      local first = 1792888200                                      -- 2026-10-25T00:30:00Z, 02:30 in Berlin; an hour later it is 02:30 again
      assert.equal(first, (claim(one, first + 70, "17")))
      assert.is_nil((claim(one, first + 71)))
      assert.is_nil((claim(one, first + 3600)))
      local other = { name = "other", times = one.times }
      assert.is_nil((claim(other, first + 3600)))                   -- it was missed, and is not made up
      assert.equal(first + 25 * 3600, (claim(other, first + 25 * 3600 + 119, "18")))
      assert.is_nil((claim({ name = "third", times = one.times }, first + 25 * 3600 + 121)))
    end)

    it("and sees when the next run is", function()
      assert.equal(1000000010, jobs.next({ every = 10 }, 1000000000))
      assert.equal(1000000010, jobs.next({ every = 10 }, 1000000009.9))
      for every, period in pairs { [0.1] = 0.05, [5] = 0.5, [600] = 1 } do assert.equal(period, jobs.period { every = every }) end
      assert.equal(5, jobs.period { every = "0 3 * * *", times = {} })
    end)
  end)
end)
