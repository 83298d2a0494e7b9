-- For specs that measure the memory of a gateway.
local wait = require "spec.helpers.wait"

local memory = {}

-- Environment variables with which AddressSanitizer keeps little freed memory: it keeps freed memory for a while, and
-- that is not memory of the gateway.
function memory.environment()
  local options = os.getenv "ASAN_OPTIONS"
  return { ASAN_OPTIONS = (options and options .. ":" or "") .. "quarantine_size_mb=1:thread_local_quarantine_size_kb=64:detect_stack_use_after_return=0" }
end

-- The least resident memory of three quiet seconds, in bytes. A gateway looks once a second whether it is quiet, and
-- then returns to the system what its allocator has free.
function memory.resting(g)
  return memory.resting_all({ { g = g } })[1]
end

-- The least resident memory of three quiet seconds for each gateway in `list`, an array of { g = gateway }, as a list
-- of bytes.
function memory.resting_all(list)
  local least = {}
  for i in ipairs(list) do least[i] = math.huge end
  for _ = 1, 30 do
    wait.quietly(0.1)
    for i, one in ipairs(list) do least[i] = math.min(least[i], one.g:rss()) end
  end
  return least
end

-- The most by which a gateway's resident memory grew while `run` ran, in MiB; and what `run` returned.
function memory.peak(g, run)
  local function kilobytes(name)
    local file <close> = assert(io.open(("/proc/%d/status"):format(g.pid)))
    return tonumber(file:read "a":match(name .. ":%s*(%d+)"))
  end
  local file <close> = assert(io.open(("/proc/%d/clear_refs"):format(g.pid), "w"))
  file:write "5" -- the highest number begins anew
  file:flush()
  local before = kilobytes "VmRSS"
  local got = table.pack(run())
  return (kilobytes "VmHWM" - before) / 1024, table.unpack(got, 1, got.n)
end

-- Fails unless the resident memory comes to rest at `before` and a tenth of it.
function memory.assert_returned(g, before)
  -- ThreadSanitizer keeps memory of its own for all addresses that were ever used
  if os.getenv "TSAN_OPTIONS" then return end
  local function what() return ("%.1f MB of memory at most; there are %.1f MB"):format(before * 1.1 / 1e6, g:rss() / 1e6) end
  wait.for_fact(what, 15, function() return g:rss() <= before * 1.1 end)
end

return memory
