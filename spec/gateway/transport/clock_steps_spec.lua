-- The wall clock steps, as when a machine gets the time from the network: what has a time limit keeps it, and jobs with a
-- time of day run by the clock as it is now.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local is_sanitized = os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS"
local HOUR <const> = 3600

local function step(path, seconds)
  local file <close> = assert(io.open(path, "r+b"))
  file:write(string.pack("<i8", seconds))
end

-- A gateway, and a function that sets by how many seconds its wall clock is ahead.
local function start(options)
  local path = gateway.new_folder() .. "/step"
  local file <close> = assert(io.open(path, "wb"))
  file:write(string.pack("<i8", options.ahead or 0))
  file:close()
  options.env = { CLOCK_STEP = path, LD_PRELOAD = uv.fs_realpath(gateway.binary:match "^(.*)/[^/]*$" .. "/stepped_clock.so") }
  return gateway.start(options), function(seconds) step(path, seconds) end
end

describe("a step of the wall clock", function()
  if is_sanitized then
    pending "needs a preloaded library, which sanitizers do not allow"
    return
  end

  for _, ahead in ipairs { -HOUR, -400 * 24 * HOUR } do
    it(("of %d seconds does not hold a half request open"):format(ahead), function()
      local g <close>, set = start { config = { limits = { request_time = "1s" } } }
      local half <close> = g:connect()
      half:send_raw "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Le"
      set(ahead)
      half:wait_closed(20)
    end)
  end

  it("ahead by a year ends no idle connection, and answers have the new date", function()
    local g <close>, set = start { config = { limits = { request_time = "20s" } } }
    local c <close> = g:connect()
    local function get()
      c:send { path = "/nothing" }
      return c:read_response(20)
    end
    local before = get()
    set(365 * 24 * HOUR)
    wait.quietly(0.3)
    local after = get()
    assert.same({ 404, 404 }, { before.status, after.status })
    assert.are_not.equal(before.headers.date:match "%d%d%d%d", after.headers.date:match "%d%d%d%d")
  end)

  it("back before the start does not silence a job with a time of day", function()
    local now = os.time()
    local minute = now - now % 60
    local g <close>, set = start { scripts = { ["jobs/tick.lua"] = 'return job { "Ticks.", every = "* * * * *", function() log.info "ticks" end }' } }
    set(minute - 2 * HOUR + 58 - now) -- sets the wall clock two hours back, two seconds before a full minute
    g:wait_log("ticks", nil, 30)
  end)

  it("ahead by a day takes no tools of an upstream away that fails for a moment", function()
    local u <close> = upstream.start { transport = "http", revision = "2025-11-25" }
    local g <close>, set = start { config = { upstreams = upstream.entries({ one = u }, { one = { refresh = "1s" } }) } }
    local me <close> = g:client "2026-07-28"
    local function count() return #me:result("tools/list", {}).tools end
    local before = wait.for_fact("the list", 20, function() return count() > 0 and count() end)
    u:when("tools/list", upstream.faults.answers_http(500, {}, "no"))
    g:wait_log("upstream list missing", nil, 20)
    set(24 * HOUR)
    local asked = g:status().counters.upstream_errors
    g:wait_status(function(status) return status.counters.upstream_errors >= asked + 2 end, 30)
    assert.equal(before, count())
  end)
end)
