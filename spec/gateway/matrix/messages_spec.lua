-- Messages beside the answer of a call, in all cells of the matrix (spec/helpers/matrix.lua): each comes once, in order,
-- to the client of the call.
-- pairs: progress, log messages and cancelling; clients 2024-11-05..; upstreams 2024-11-05 sse http stdio
-- pairs: progress, log messages and cancelling; clients 2024-11-05..; upstreams 2025-03-26.. http stdio
local matrix = require "spec.helpers.matrix"
local wait = require "spec.helpers.wait"

local LEVEL <const> = "io.modelcontextprotocol/logLevel"

-- `_meta` by which a client of 2026-07-28 wants log messages from a level on.
local function wants(cell, level, token)
  return { [LEVEL] = cell.kind.revision == "2026-07-28" and level or nil, progressToken = token }
end

local function say(x, level, data)
  x:emit(('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"%s","logger":"stub","data":"%s"}}'):format(level, data))
end

local function log(level, data) return { level = level, logger = "stub", data = data } end

-- The params of what came, without the number of the subscription or other hints.
local function params_of(cell, method)
  local list = {}
  for _, note in ipairs(cell.ann:notes()) do
    assert.equal(method, note.method)
    list[#list + 1] = note.params
  end
  return list
end

describe("messages:", function()
  local m = matrix.group "messages"
  lazy_setup(function() m:begin() end)
  lazy_teardown(function() m:finish() end)

  m:feature("progress", function(cell)
    local token = #cell.form.name % 2 == 0 and 7 or "7"
    local stream, x = cell:hold { progressToken = token }
    x:report(1, 10, "first")
    cell:wait_notes(1)
    x:report(2.5, 10)
    cell:wait_notes(2)
    cell:release(stream)
    assert.same({
      { progressToken = token, progress = 1, total = 10, message = cell.oldest >= "2025-03-26" and "first" or nil },
      { progressToken = token, progress = 2.5, total = 10 },
    }, params_of(cell, "notifications/progress"))
  end)

  -- Of two calls in one program it is not known to which a log message belongs: it reaches nobody.
  local function alone(cell)
    if not cell:is_shared() then return end
    local stream, x = cell:hold(wants(cell, "info"))
    say(x, "error", "whose")
    cell:release(stream)
    assert.same({}, cell.ann:notes())
    cell:end_bobs()
  end

  m:feature("log messages", function(cell)
    alone(cell)
    local stream, x = cell:hold(wants(cell, "info"))
    for _, level in ipairs { "debug", "info", "error" } do say(x, level, level .. " of ann") end
    cell:release(stream)
    assert.same({ log("info", "info of ann"), log("error", "error of ann") }, params_of(cell, "notifications/message"))
  end)

  m:feature("the level of log messages", function(cell)
    alone(cell)
    local is_old = cell.kind.revision ~= "2026-07-28"
    if is_old then assert.same({}, cell.ann:result("logging/setLevel", { level = "error" })) end
    local stream, x = cell:hold(wants(cell, "error"))
    -- where clients share a connection, the upstream is told the least level that one of them has wanted
    local told = x.modern and x.meta[LEVEL] or x.session.level
    assert.is_true(told == "error" or told == "info", told)
    for _, level in ipairs { "debug", "info", "error" } do say(x, level, level .. " of ann") end
    cell:release(stream)
    assert.same({ log("error", "error of ann") }, params_of(cell, "notifications/message"))
    if is_old then cell.ann:result("logging/setLevel", { level = "info" }) end
  end)

  m:feature("notes and the answer in their order", function(cell)
    alone(cell)
    local stream, x = cell:hold(wants(cell, "info", "t"))
    for n = 1, 4 do
      x:report(n)
      say(x, "info", tostring(n))
      cell:wait_notes(2 * n)
    end
    cell:release(stream)
    local seen = {}
    for i, note in ipairs(cell.ann:notes()) do seen[i] = note.params.progress or note.params.data end
    assert.same({ 1, "1", 2, "2", 3, "3", 4, "4" }, seen)
  end)

  m:feature("the client cancels", function(cell)
    local stream, x = cell:hold()
    if cell.kind.revision == "2026-07-28" then
      stream:hang_up()
    else
      cell.ann.c:notify("notifications/cancelled", { requestId = stream.id })
    end
    -- over HTTP an upstream of 2026-07-28 sees the end of the stream, and any other gets a notification, on a connection
    -- of its own
    local by_stream = x.modern and cell.form.transport == "http"
    local function told()
      local count = 0
      for _, entry in ipairs(cell.u:all { method = "notifications/cancelled" }) do
        count = count + (entry.session == x.session and entry.text:find('"requestId":' .. x.id .. "[,}]") and 1 or 0)
      end
      return count
    end
    wait.for_fact("the upstream's call to be cancelled", 20, function()
      if by_stream then return x.left end
      return told() > 0
    end)
    cell:fence()
    assert.same({}, cell.ann:notes())
    assert.is_nil(cell.ann:answer_to(stream.id))
    assert.equal(by_stream and 0 or 1, told())
  end)

  m:feature("the upstream pings", function(cell)
    local stream, x = cell:hold()
    if not x.modern then
      local got
      x:ask("ping", "{}", function(json) got = json end)
      assert.same({}, wait.for_fact("the answer to the ping", 20, function() return got end).result)
    end
    cell:release(stream)
    assert.same({}, cell.ann:notes())
    for _, entry in ipairs(cell.u:all { method = "ping" }) do assert.is_false(entry.exchange.modern) end -- nor does the gateway ping
  end)

  m:specs(it)
end)
