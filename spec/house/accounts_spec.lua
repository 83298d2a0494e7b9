-- A number that threads share and that has a limit is an account (core/telemetry/account.h), which compares and adds in
-- one step. What is found here is what can be told from the source of one function: a sum that is read to decide, and
-- added to by another step. A function that reads the sum for another one is not found.

-- Files that read gauges to show them, or to estimate something: none of them adds to what it has read.
local READERS = {
  ["core/telemetry/stats.c"] = "defines it",
  ["core/admin/admin.c"] = "/status",
  ["core/admin/conditions.c"] = "what is wrong",
  ["core/telemetry/series_text.c"] = "/metrics",
  ["core/admin/history.c"] = "the charts",
  ["core/admin/saturation.c"] = "/readyz",
  ["core/gateway/trim.c"] = "how much memory may be free",
  ["core/gateway/upgrade/older.c"] = "says how many sessions end",
  ["core/gateway/worker.c"] = "whether a process that is to end has something left to serve",
  ["core/gateway/watchdog.c"] = "waits until the store is written",
  ["core/data/store_file.c"] = "says what was not written",
  ["core/lib/nodes.c"] = "what the record of the process says",
  ["core/rpc/session/sessions.c"] = "how fast calls end, for Retry-After",
}

-- Functions that compare and add under a lock, which all others that add have, too.
local LOCKED = {
  ["core/telemetry/series.c: find_or_make"] = true,
  ["core/rpc/stream/pubsub.c: place_of"] = true,
}

-- Files that post messages to the loop of another thread, which may be stuck: what bounds those that wait there. A file
-- that is not here needs an answer first: a message that anyone can cause again and again is compared with an account
-- where it is posted.
local POSTS = {
  ["core/loop/mailbox.c"] = "defines it",
  ["core/vm/bus.c"] = "vm->inbox.bytes",
  ["core/rpc/stream/reader.c"] = "bytes of others and of answers of a reader, and limits.answers; one for each reader replaced, and each call resumed",
  ["core/upstream/channel/exchange.c"] = "host->ordered; exchange->queued; one for each slot that is granted",
  ["core/trace/export.c"] = "8,192 spans and 16 MiB of them",
  ["core/data/database.c"] = "1,024 statements, and 256 MiB of parameters and results",
  ["core/data/semaphore.c"] = "one for each waiter", ["core/data/store_changes.c"] = "one for each waiter",
  ["core/os/pool.c"] = "1,024 jobs",
  ["core/net/client/lookup.c"] = "256 lookups", ["core/postgres/library.c"] = "64 errands",
  ["core/net/server/takeover.c"] = "limits.connections",
  ["core/net/server/server.c"] = "one for each server, while another one has no room",
  ["core/net/server/hold.c"] = "some for each address and upgrade",
  ["core/rpc/session/sessions.c"] = "one for each worker that a session was on, when it ends",
  ["core/rpc/auth/authn.c"] = "one for each worker, until it has looked which sign-ins have ended",
  ["core/rpc/call/call.c"] = "one for each call, when its client cancels it",
  ["core/rpc/call/client_request.c"] = "rpc->reply_bytes; one for each question of a call",
  ["core/rpc/call/report.c"] = "one for each worker and question of an operator, of which 16 may wait",
  ["core/rpc/transport/console.c"] = "what operators ask and run, of which 16 may wait",
  ["core/upstream/channel/channel.c"] = "one for each channel, when it closes",
  ["core/upstream/pending/pending.c"] = "one for each parked call, when it ends",
  ["core/upstream/pending/resumed_exchange.c"] = "those of a call that takes a parked one up, one after the other; MAX_PARKED",
  ["core/upstream/transport/dispatch.c"] = "one for each question of an exchange that has ended, whose queue was bounded",
  ["core/upstream/transport/listen_stream.c"] = "one for each listen stream and each channel",
  ["core/upstream/channel/acquire.c"] = "one for each take of a channel",
  ["core/admin/api.c"] = "one for each question of an operator",
  ["core/admin/others_door.c"] = "one for each process",
  ["core/admin/console_queue.c"] = "one for each inbox, which bounds what it holds",
  ["core/admin/profile.c"] = "one for each worker and profile, of which one runs",
  ["core/admin/tap.c"] = "one for each tap, which bounds what it holds",
  ["core/admin/thread.c"] = "one for each reload, and the end; at an upgrade 16 codes and 64 sign-ins",
  ["core/gateway/reload/handover.c"] = "one for each worker and reload",
  ["core/gateway/reload/status.c"] = "one for each question of an operator",
  ["core/gateway/upgrade/upgrade.c"] = "one for each request for an upgrade, of which 8 may wait",
  ["core/gateway/upgrade/news.c"] = "256 messages of other processes",
  ["core/gateway/worker.c"] = "32 configurations",
}

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return (file:read "a":gsub("/%*.-%*/", " "))
end

-- Calls visit(name, body) for each function of a file: its body is between "\n{" and "\n}".
local function each_function(text, visit)
  for head, body in text:gmatch "\n([%a][^\n;{}]-%b())%s-\n{\n(.-)\n}" do visit(head:match "([%w_]+)%s*%(" or head, body) end
end

-- The first arguments of the calls of `name`, or of its variant with an order, without '&': where in the function each
-- is first, and last.
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

  it("is compared where a message is posted, not where another thread takes it", function()
    local posts = {}
    for _, path in ipairs(sources()) do
      local text = path:find "%.c$" and read(path) or ""
      if text:find "mp_loop_post%(" or text:find "mp_loop_send%(" or text:find "mp_loop_call%(" then posts[#posts + 1] = path end
    end
    local known = {}
    for path in pairs(POSTS) do known[#known + 1] = path end
    table.sort(known)
    assert.same(known, posts)
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
