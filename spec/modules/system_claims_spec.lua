-- What comments say about the kernel, OpenSSL and PCRE2, tried. docs/dev/libraries.md names each.
local lfs = require "lfs"
local modules = require "modules"

local system = modules.system

describe("the kernel", function()
  it("lets sockets with SO_REUSEPORT share a port, and refuses one without", function()
    assert.same({ true, true }, { system.shared_port() })
  end)

  it("gives connections to the sockets of a port by chance: of 64, one of two gets 36 and more as often as not", function()
    local uneven, tries = 0, 100
    for _, share in ipairs(system.shares(64, tries)) do
      if math.max(share, 64 - share) >= 36 then uneven = uneven + 1 end
    end
    assert.is_true(uneven > tries / 5 and uneven < tries * 3 / 5, uneven)
  end)

  it("takes a listening socket from its group at a shutdown, which keeps its port unless the kernel had chosen it, until it listens again", function()
    local others, keeps, again, lost = system.shut_listener()
    assert.same({ 20, true, true }, { others, keeps, lost })
    assert.is_true(again > 5, again)
  end)

  it("refuses regular files in an epoll set", function()
    assert.equal("EPERM", system.epoll_file "README.md")
  end)

  it("fires timers of processor time once in a tick, however short their interval is", function()
    local fired, ticks = system.ticks(400)
    -- The program asks for 400 timers. A thread that is often interrupted sees some more ticks: its time comes in
    -- parts, each of which may end a tick.
    assert.is_true(fired <= ticks * 2, fired .. " of " .. ticks)
    assert.is_true(fired > ticks / 3, fired .. " of " .. ticks)
  end)

  it("tells the number of descriptors as the size of their folder, from 6.2 on", function()
    local release <close> = assert(io.open "/proc/sys/kernel/osrelease")
    local major, minor = release:read "l":match "^(%d+)%.(%d+)"
    local count = 0
    for name in lfs.dir "/proc/self/fd" do if name:find "%d" then count = count + 1 end end
    local is_told = tonumber(major) > 6 or tonumber(major) == 6 and tonumber(minor) >= 2
    local size = lfs.attributes("/proc/self/fd", "size")
    assert.is_true(is_told and math.abs(size - count) <= 1 or not is_told and size == 0, size .. " of " .. count)
  end)
end)

describe("OpenSSL", function()
  it("reports an old failure in the queue of the thread as the failure of a connection that only waits", function()
    assert.same({ true, true }, { system.old_error() })
  end)
end)

describe("PCRE2", function()
  it("calls back before each item of a pattern", function()
    assert.equal(4, (system.items("abc", "abc"))) -- before each of the three items, and before the end of the pattern
  end)

  it("limits its backtracking steps, but not the bytes that one item scans", function()
    local _, code = system.items("(a+)+$", ("a"):rep(40) .. "b")
    assert.equal(-47, code) -- PCRE2_ERROR_MATCHLIMIT
    local count, long = system.items("^a*$", ("a"):rep(1000000))
    assert.equal(1, long)
    assert.is_true(count < 10, count)
  end)

  it("does not know long names of categories", function()
    assert.is_true(system.compiles "\\p{Lu}")
    assert.is_not_true(system.compiles "\\p{Uppercase_Letter}")
  end)

  it("10.42 needs long to compile a caseless range beyond ASCII", function()
    local versions <close> = assert(io.popen(os.getenv "MOONPOOL" .. " --version --all"))
    local minor = assert(tonumber(versions:read "a":match "PCRE2 +10%.(%d+)"))
    if minor > 42 then return pending(("PCRE2 10.%d is here: the one of Debian 13 is quick"):format(minor)) end
    local function seconds(pattern)
      local least = math.huge
      for _ = 1, 5 do
        local from = os.clock()
        for _ = 1, 5 do assert.is_true(system.compiles(pattern)) end
        least = math.min(least, os.clock() - from)
      end
      return least / 5
    end
    assert.is_true(seconds "(?i)[\\x{100}-\\x{10ffff}]" > 10 * seconds "[\\x{100}-\\x{10ffff}]")
  end)
end)
