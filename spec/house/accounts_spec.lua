-- A number that threads share and that has a limit is an account (core/telemetry/account.h), which compares and adds in one step. What is found here
-- is what can be told from the source of one function: a sum that is read to decide, and added to by another step. A function that reads the sum
-- for another one is not found.

-- Files that read gauges to show them, or to estimate something: none of them adds to what it has read.
local READERS = {
  ["core/telemetry/stats.c"] = "defines it",
  ["core/gateway/admin/admin.c"] = "/status",
  ["core/gateway/metrics.c"] = "/metrics",
  ["core/gateway/history.c"] = "the charts",
  ["core/gateway/saturation.c"] = "/readyz",
  ["core/gateway/trim.c"] = "how much memory may be free",
  ["core/gateway/watchdog.c"] = "waits until the store is written",
  ["core/data/store_file.c"] = "says what was not written",
  ["core/rpc/session/table.c"] = "how fast calls end, for Retry-After",
}

-- Functions that compare and add under a lock, which all others that add have, too.
local LOCKED = {
  ["core/telemetry/series.c: find_or_make"] = true,
  ["core/rpc/request/tap.c: mp_tap_open"] = true,
}

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return (file:read "a":gsub("/%*.-%*/", " "))
end

-- Calls visit(name, body) for each function of a file: its body is between "\n{" and "\n}".
local function each_function(text, visit)
  for head, body in text:gmatch "\n([%a][^\n;{}]-%b())%s-\n{\n(.-)\n}" do visit(head:match "([%w_]+)%s*%(" or head, body) end
end

-- The first arguments of the calls of `name`, or of its variant with an order, without '&': where in the function each is first, and last.
local function arguments_of(body, name)
  local first, last = {}, {}
  for at, call in body:gmatch("()%f[%w_]" .. name .. "[_explicit]*%s*(%b())") do
    local what = call:match "^%(%s*&?([^,]-)%s*[,)]"
    if what then
      first[what] = first[what] or at
      last[what] = at
    end
  end
  return first, last
end

-- What a function reads first and adds to by a later step.
local function faults_of(path, text, allowed)
  local faults = {}
  each_function(text, function(name, body)
    for _, pair in ipairs { { "atomic_load", "atomic_fetch_add" }, { "mp_account_used", "mp_account_add" } } do
      local _, added = arguments_of(body, pair[2])
      for what, at in pairs(arguments_of(body, pair[1])) do
        local where = ("%s: %s"):format(path, name)
        if added[what] and at < added[what] then
          if allowed[where] then allowed[where] = "found" else faults[#faults + 1] = ("%s() reads %s and adds to it later"):format(where, what) end
        end
      end
    end
  end)
  return faults
end

local function sources()
  local list, found <close> = {}, assert(io.popen "find core -name '*.[ch]' | sort")
  for path in found:lines() do list[#list + 1] = path end
  return list
end

describe("a limit that threads share", function()
  it("is compared and added to in one step", function()
    local faults = {}
    for _, path in ipairs(sources()) do
      for _, fault in ipairs(faults_of(path, read(path), LOCKED)) do faults[#faults + 1] = fault end
    end
    assert.equal("", table.concat(faults, "\n"))
    for where, state in pairs(LOCKED) do assert.equal("found", state, where .. " does so no more") end
  end)

  it("is no gauge that a file reads to decide", function()
    local faults = {}
    for _, path in ipairs(sources()) do
      local text = read(path)
      local reads = text:find "mp_stat_read%(" or text:find "mp_stat_sum%("
      if reads and not READERS[path] and not path:find "%.h$" then faults[#faults + 1] = path end
    end
    assert.same({}, faults)
  end)

  it("is its own gauge: nothing else adds to that", function()
    local faults, accounts = {}, {}
    for _, path in ipairs(sources()) do
      for id in read(path):gmatch "\nMP_ACCOUNT%(([%w_]+)" do accounts[id] = true end
    end
    for _, path in ipairs(sources()) do
      for id in read(path):gmatch "mp_stat_add%(&mp_stat_([%w_]+)" do
        if accounts[id] then faults[#faults + 1] = path .. ": " .. id end
      end
    end
    assert.is_true(accounts.fs_bytes and accounts.queue_bytes)
    assert.same({}, faults)
  end)

  it("would be found where it is not", function()
    local code = [[

static bool take(cap *cap)
{
    if (atomic_load_explicit(&cap->used, memory_order_relaxed) >= cap->most)
        return false;
    atomic_fetch_add(&cap->used, 1);
    return true;
}

static void hold(size_t n)
{
    if (mp_account_used(&mp_account_bytes) + n <= MOST)
        mp_account_add(&mp_account_bytes, n);
}
]]
    assert.same({ "x.c: take() reads cap->used and adds to it later", "x.c: hold() reads mp_account_bytes and adds to it later" }, faults_of("x.c", code, {}))
  end)
end)
