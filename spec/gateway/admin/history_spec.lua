-- GET /api/history and GET /api/live of the admin listener: numbers of the last hour and day, and one event each second
-- with what has changed.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local operator, viewer, scraper = ("o"):rep(32), ("v"):rep(32), ("m"):rep(32)

local function start(config, constants)
  config = config or {}
  config.workers = 2
  config.admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = operator }, view = { ann = viewer }, metrics = { pro = scraper } } }
  return gateway.start { config = config, constants = constants, scripts = {
    ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.integer, b = t.integer }, function(args) return args.a + args.b end }',
    ["tools/fails.lua"] = 'return tool { "Fails.", function() return nil, "no luck" end }',
  } }
end

local function request(path, token, more)
  local headers = { Authorization = token ~= false and "Bearer " .. (token or viewer) or nil }
  for name, value in pairs(more or {}) do headers[name] = value end
  return { path = path, headers = headers }
end

local function get(g, path, token, more)
  return client.request(g, request(path, token, more), { admin = true })
end

-- A connection that reads /api/live.
local function live(g)
  local reader = client.connect(g, { admin = true })
  reader:send(request "/api/live")
  assert.equal(200, reader:read_head().status)
  return reader
end

local function events_of(reader)
  local list = {}
  for _, event in ipairs(reader:messages()) do
    if type(event) == "table" and event.at_ms then list[#list + 1] = event end
  end
  return list
end

describe("the history", function()
  it("has 40 numbers, a row each 5 s", function()
    local g <close> = start()
    local answer = get(g, "/api/history")
    assert.equal(200, answer.status)
    local all = answer:json()
    assert.equal("hour", all.span)
    assert.equal(5000, all.every_ms)
    local count = 0
    for name, values in pairs(all.values) do
      count = count + 1
      assert.is_true(#values >= 1, name)
    end
    assert.equal(40, count)
    local me = g:client "2026-07-28"
    for _ = 1, 20 do
      me:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } })
      me:call("tools/call", { name = "fails", arguments = {} })
    end
    wait.for_fact("a row with the calls", 60, function()
      local values = get(g, "/api/history?numbers=calls,errors,p50_ms,p99_ms,connections,resident_bytes,loop_p99_ms"):json().values
      local calls, errors = 0, 0
      for i = 1, #values.calls do
        calls = calls + (tonumber(values.calls[i]) or 0) * 5
        errors = errors + (tonumber(values.errors[i]) or 0) * 5
        local p50, p99 = tonumber(values.p50_ms[i]), tonumber(values.p99_ms[i])
        assert((p50 == nil) == (p99 == nil) and (not p50 or p50 <= p99 and p50 > 0))
      end
      assert.is_true((tonumber(values.resident_bytes[1]) or 0) > 1e6)
      return errors > 0 and calls > errors
    end)
    me:close()
    assert.same({ span = "day", every_ms = 60000, values = { calls = {} } }, (function(day)
      day.until_ms = nil
      return day
    end)(get(g, "/api/history?span=day&numbers=calls"):json()))
    assert.has_nothing_left(g)
  end)

  it("does not know errors and times where metrics are off", function()
    local g <close> = start { metrics = "off" }
    local values
    wait.for_fact("a second row", 60, function()
      values = get(g, "/api/history?numbers=calls,errors,p99_ms"):json().values
      return #values.calls >= 2
    end)
    assert.is_number(values.calls[2])
    assert.is_nil(tonumber(values.errors[2]))
    assert.is_nil(tonumber(values.p99_ms[2]))
  end)

  it("needs the role view, and a query that makes sense", function()
    local g <close> = start()
    for _, path in ipairs { "/api/history", "/api/live" } do
      assert.equal(401, get(g, path, false).status)
      assert.equal(403, get(g, path, scraper).status)
      assert.equal(403, get(g, path, operator, { Origin = "http://evil.example" }).status)
      assert.equal(200, client.request(g, { method = "HEAD", path = path, headers = { Authorization = "Bearer " .. viewer } }, { admin = true }).status)
      assert.equal(405, client.request(g, { method = "POST", path = path, headers = { Authorization = "Bearer " .. operator, ["Content-Length"] = 0 } },
        { admin = true }).status)
    end
    for _, query in ipairs { "span=year", "numbers=secrets", "x=1", "span=hour&numbers=calls,", "numbers=" .. ("calls,"):rep(500) .. "x" } do
      local answer = get(g, "/api/history?" .. query)
      assert.equal(query:find ",$" and 200 or 400, answer.status, query)
    end
    assert.has_nothing_left(g)
  end)

  it("goes out each second to 16 readers, as what has changed", function()
    local g <close> = start()
    local first = live(g)
    wait.for_fact("an event", 30, function()
      return #events_of(first) > 0
    end)
    local whole, count = events_of(first)[1], 0
    for _ in pairs(whole) do count = count + 1 end
    assert.equal(41, count)
    local me = g:client "2026-07-28"
    wait.for_fact("an event with the rate of calls, and one without what is as before", 60, function()
      me:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } })
      local has_rate, is_short = false, false
      for i, event in ipairs(events_of(first)) do
        has_rate = has_rate or (tonumber(event.calls) or 0) > 0
        is_short = is_short or (i > 1 and event.store_bytes == nil)
      end
      return has_rate and is_short
    end)
    local readers = { first }
    for i = 2, 16 do readers[i] = live(g) end
    assert.equal(503, get(g, "/api/live").status)
    assert.equal(1, g:status().counters.refused.admin_readers)
    for i = 9, 16 do readers[i]:close() end
    local again
    wait.for_fact("room for a reader", 20, function()
      again = client.connect(g, { admin = true })
      again:send(request "/api/live")
      if again:read_head().status == 200 then return true end
      again:close()
    end)
    again:close()
    for i = 1, 8 do readers[i]:close() end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("goes out to 16 readers, and what is over that is refused", function()
    local g <close> = start(nil, { admin_readers = 1 })
    local reader = live(g)
    local refused = get(g, "/api/live")
    assert.same({ 503, "1 such requests are open: close one of them" }, { refused.status, refused:json().error })
    assert.equal(200, get(g, "/api/history").status)
    assert.equal(1, g:status().counters.refused.admin_readers)
    reader:close()
  end)

  it("lets its readers go when the configuration changes, so that they come with a token that holds", function()
    local g <close> = start()
    local reader = live(g)
    local path = g.dir .. "/moonpool.yaml"
    local file <close> = assert(io.open(path))
    local text = file:read "a"
    local out <close> = assert(io.open(path, "w"))
    out:write((text:gsub(viewer, ("w"):rep(32))))
    out:close()
    reader:wait_end()
    assert.equal(401, get(g, "/api/live").status)
    reader:close()
  end)
end)
