-- A worker that has more requests than it can serve refuses some of them at once. The gateway is stopped while requests
-- are sent, so that it finds all of them at the same time, however busy this machine is.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/endless.lua"] = 'return tool { "Does not end.", timeout = 300, function() while true do end end }',
  ["tools/quick.lua"] = 'return tool { "Ends at once.", function() return "x" end }',
  ["tools/burn.lua"] = [[
return tool { "Computes for a millisecond.", function(_, call)
  local from = os.clock()
  while os.clock() - from < 0.001 do end
  return tostring(call.overloaded)
end }]],
}

local META <const> = { ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28", ["io.modelcontextprotocol/clientCapabilities"] = {} }

local function message(method, name)
  return {
    method = "POST", path = "/mcp", body = { jsonrpc = "2.0", id = 1, method = method, params = { name = name, _meta = META } },
    headers = { Accept = "application/json, text/event-stream", ["MCP-Protocol-Version"] = "2026-07-28", ["Mcp-Method"] = method, ["Mcp-Name"] = name },
  }
end

-- A ping of a session: the newest revision has none.
local function ping(session)
  return {
    method = "POST", path = "/mcp", body = { jsonrpc = "2.0", id = 1, method = "ping" },
    headers = { Accept = "application/json, text/event-stream", ["Mcp-Session-Id"] = session },
  }
end

local function burn() return message("tools/call", "burn") end

-- Opens `count` connections; `from(i)`, if given, is the client's own address of connection i.
local function connect(g, count, from)
  local all = {}
  for i = 1, count do all[i] = g:connect(from and { from = from(i) }) end
  return all
end

-- Sends request(i) on each connection while the gateway stands still; returns the answers.
local function burst(g, connections, request)
  g:signal "sigstop"
  for i, connection in ipairs(connections) do connection:send(request(i)) end
  g:signal "sigcont"
  local answers = {}
  for i, connection in ipairs(connections) do answers[i] = connection:read_response(60) end
  return answers
end

local function count(answers, status, from, step)
  local found = 0
  for i = from or 1, #answers, step or 1 do found = found + (answers[i].status == status and 1 or 0) end
  return found
end

local function close(connections)
  for _, connection in ipairs(connections) do connection:close() end
end

local function start(config)
  return gateway.start { workers = 1, scripts = scripts, config = config }
end

describe("requests that wait longer than overload.wait before they begin", function()
  it("are refused, each with the time after which there is room for it", function()
    local g <close> = start { overload = { wait = "100ms" } }
    local all = connect(g, 400)
    local answers = burst(g, all, burn)
    local refused = count(answers, 503)
    assert.equal(400, refused + count(answers, 200))
    assert.is_true(refused > 0 and refused < 400, refused .. " were refused")
    for _, answer in ipairs(answers) do
      if answer.status == 503 then
        local seconds = tonumber(answer.headers["retry-after"])
        assert.is_true(seconds >= 1 and seconds <= 60)
        assert.matches("overload.wait", answer:json().error.message, 1, true)
      end
    end
    assert.equal(refused, g:status().counters.refused.overload)
    g:wait_log "worker overloaded"
    g:wait_log("refused", { cause = "overload" })
    g:wait_log "worker no longer overloaded"
    assert.equal(0, g:status().gauges.workers_overloaded)
    assert.equal("false", all[1]:request(burn()):json().result.content[1].text)
    close(all)
    assert.has_nothing_left(g)
  end)

  it("are served where overload.wait is off", function()
    local g <close> = start { overload = { wait = "off" } }
    local all = connect(g, 400)
    assert.equal(400, count(burst(g, all, burn), 200))
    close(all)
  end)
end)

describe("a worker that is overloaded", function()
  it("refuses lists before calls, and never what is cheap or ends something", function()
    local g <close> = start { overload = { wait = "100ms" } }
    local session = g:client "2025-11-25"
    local all = connect(g, 400)
    burst(g, all, burn)
    local answers = burst(g, all, function(i)
      if i % 20 == 1 then return ping(session.session) end
      return i % 2 == 0 and message "tools/list" or burn()
    end)
    assert.equal(20, count(answers, 200, 1, 20))
    local lists, calls = count(answers, 503, 2, 2), count(answers, 503, 1, 2)
    assert.is_true(lists > 0 and lists >= calls, ("%d of 200 lists and %d of 180 calls were refused"):format(lists, calls))
    local is_told = false
    for _ = 1, 10 do -- on a busy machine a second may pass after the last refusal: then the worker is no longer overloaded
      burst(g, all, burn)
      local result = all[1]:request(burn()):json().result
      is_told = is_told or result ~= nil and result.content[1].text == "true"
      if is_told then break end
    end
    assert.is_true(is_told, "no handler was told that its worker is overloaded")
    assert.equal(202, session:notify("notifications/cancelled", { requestId = 77 }).status)
    assert.equal(204, session:delete().status)
    assert.equal(200, g:admin("/status").status)
    session:close()
    close(all)
    assert.has_nothing_left(g)
  end)

  -- A preempted handler has begun, so it does not wait to begin. The answer to `quick` comes when all calls before it
  -- have begun.
  it("is one whose preempted handlers take too long to go on, where most handlers are preempted", function()
    local g <close> = start { overload = { wait = "200ms" } }
    local control, all = g:connect(), {}
    local status
    while status ~= 503 and #all < 400 do
      for _ = 1, 20 do all[#all + 1] = g:connect():send(message("tools/call", "endless")) end
      status = control:request(message("tools/call", "quick")).status
    end
    assert.equal(503, status)
    g:wait_log "worker overloaded"
    close(all)
    g:wait_log "worker no longer overloaded"
    assert.equal(200, control:request(message("tools/call", "quick")).status)
    control:close()
    assert.has_nothing_left(g)
  end)

  it("is none whose handlers end soon, whatever other handlers do not end", function()
    local g <close> = start { overload = { wait = "200ms" } }
    local control, all = g:connect(), {}
    for _ = 1, 120 do
      all[#all + 1] = g:connect():send(message("tools/call", "endless"))
      for _ = 1, 10 do assert.equal(200, control:request(message("tools/call", "quick")).status) end
    end
    assert.equal(0, g:status().counters.refused.overload)
    close(all)
    control:close()
    assert.has_nothing_left(g)
  end)

  it("refuses requests over HTTP+SSE on the session's stream", function()
    local g <close> = start { overload = { wait = "100ms" } }
    local sse = g:client "2024-11-05"
    local all = connect(g, 400)
    burst(g, all, burn)
    burst(g, all, function(i)
      if i % 10 ~= 0 then return burn() end
      return { method = "POST", path = sse.endpoint, body = { jsonrpc = "2.0", id = 1000 + i, method = "tools/call", params = { name = "burn" } } }
    end)
    local refused
    for i = 10, 400, 10 do refused = sse.stream:wait_event(1000 + i, 30).json.error or refused end
    assert.matches("overload.wait", refused.message, 1, true)
    sse:close()
    close(all)
  end)

  it("accepts no connection above nine tenths of limits.connections", function()
    local g <close> = start { overload = { wait = "1ms" }, limits = { connections = 40 } }
    local all = connect(g, 37)
    local function recovered() return select(2, g:log():gsub("worker no longer overloaded", "")) end
    burst(g, all, burn)
    burst(g, all, burn)
    local before = recovered()
    g:signal "sigstop"
    local late = g:connect():send(burn())
    g:signal "sigcont"
    assert.equal(200, late:read_response(30).status)
    -- On a busy machine the late request itself may have waited as long as overload.wait: then it makes the worker
    -- overloaded again.
    assert.is_true(g:status().gauges.workers_overloaded == 0 or recovered() > before, "the worker was overloaded all the time")
    late:close()
    close(all)
    assert.has_nothing_left(g)
  end)
end)

describe("principals of a worker that is overloaded", function()
  local function as(name, request)
    request.headers.Authorization = "Bearer " .. name
    return request
  end

  local function start_named(patience)
    local all = {
      ["auth/main.lua"] = [[
return auth { function(request)
  local from = os.clock()
  while os.clock() - from < 0.0001 do end
  return { id = try(request.bearer, "no token") }
end }]],
      ["tools/number.lua"] = [[
local n = 0
return tool { "Computes for half a millisecond, and says how many calls had begun.", function()
  n = n + 1
  local number, from = n, os.clock()
  while os.clock() - from < 0.0005 do end
  return tostring(number)
end }]],
    }
    for path, text in pairs(scripts) do all[path] = text end
    return gateway.start { workers = 1, scripts = all, config = { overload = { wait = patience } } }
  end

  -- Each principal has an address of its own: requests take turns by address until the auth script has named their
  -- principal.
  it("begin in turns, whoever comes first", function()
    local g <close> = start_named "off"
    local names = { "ann", "ben", "eve", "joe" }
    local function number_of(i) return (i - 1) // 60 + 1 end
    local function name_of(i) return names[number_of(i)] end
    local all = connect(g, 240, function(i) return "127.0.0." .. number_of(i) end)
    local early = {}
    for i, answer in ipairs(burst(g, all, function(i) return as(name_of(i), message("tools/call", "number")) end)) do
      local n = tonumber(answer:json().result.content[1].text)
      if n <= 100 then early[name_of(i)] = (early[name_of(i)] or 0) + 1 end
    end
    -- 25 calls of each principal, apart from calls that began before all requests were read
    for _, name in ipairs(names) do
      assert.is_true((early[name] or 0) >= 10, name .. " has " .. tostring(early[name]) .. " of the first 100")
    end
    close(all)
    assert.has_nothing_left(g)
  end)

  -- At one address, requests are queued by a hash of their credential, so most principals have a queue of their own.
  it("are authenticated in turns at one address, too, whatever one of them sends", function()
    local g <close> = gateway.start {
      workers = 1, config = { overload = { wait = "off" } },
      scripts = {
        ["lib/order.lua"] = "return { n = 0 }",
        ["auth/main.lua"] = [[
local order = require "order"
return auth { function(request)
  local from = os.clock()
  while os.clock() - from < 0.0005 do end
  order.n = order.n + 1
  order[request.bearer] = order.n
  return { id = request.bearer }
end }]],
        ["tools/number.lua"] = [[
local order = require "order"
return tool { "Says how many authentications had ended with that of the caller.", function(_, call) return tostring(order[call.principal.id]) end }]],
      },
    }
    local all, early = connect(g, 410), 0
    local answers = burst(g, all, function(i) return as(i <= 400 and "greedy" or "small" .. i, message("tools/call", "number")) end)
    for i = 401, 410 do
      local n = tonumber(answers[i]:json().result.content[1].text)
      early = early + (n <= 200 and 1 or 0)
    end
    assert.is_true(early >= 6, early .. " of 10 were among the first 200")
    close(all)
    assert.has_nothing_left(g)
  end)

  -- Each handler computes until it is ended, and counts for itself: two handlers with one counter could lose counts,
  -- since one may be preempted between reading and writing it.
  it("get the same time for handlers that were preempted, however many each has", function()
    local g <close> = gateway.start {
      workers = 1, config = { limits = { call = { cpu = "10m", time = "10m" } } },
      scripts = {
        ["auth/main.lua"] = "return auth { function(request) return { id = try(request.bearer, 'no token') } end }",
        ["lib/counts.lua"] = "return {}",
        ["tools/work.lua"] = [[
local counts = require "counts"
return tool { "Counts.", timeout = 600, function(_, call)
  local own = { id = call.principal.id, n = 0 }
  counts[#counts + 1] = own
  while true do own.n = own.n + 1 end
end }]],
        ["tools/counts.lua"] = [[
local counts = require "counts"
return tool { "Counts so far.", function()
  local all = { begun = #counts }
  for _, of in ipairs(counts) do all[of.id] = (all[of.id] or 0) + of.n end
  return json.encode(all)
end }]],
      },
    }
    local all, control = connect(g, 31), g:connect()
    for i, connection in ipairs(all) do connection:send(as(i == 1 and "ann" or i <= 11 and "ben" or "greedy", message("tools/call", "work"))) end
    local function counts() return cjson.decode(control:request(as("joe", message("tools/call", "counts"))):json().result.content[1].text) end
    local first, now
    wait.for_fact("all to compute", 60, function()
      first = counts()
      return first.begun == 31
    end)
    wait.for_fact("some turns of each", 120, function()
      now = counts()
      return now.ann - first.ann + now.ben - first.ben + now.greedy - first.greedy > 60000000
    end)
    local most, least = 0, math.huge
    for _, name in ipairs { "ann", "ben", "greedy" } do
      most, least = math.max(most, now[name] - first[name]), math.min(least, now[name] - first[name])
    end
    assert.is_true(least > 0.9 * most, ("one counted to %d, another to %d"):format(least, most))
    close(all)
    control:close()
    assert.has_nothing_left(g)
  end)

  it("are served all that they ask for, if that is less than the share of each", function()
    local g <close> = start_named "400ms"
    local all, refused = connect(g, 802), 0
    for _ = 1, 5 do
      local answers = burst(g, all, function(i) return as(i <= 800 and "greedy" or i == 801 and "ann" or "ben", burn()) end)
      refused = refused + count(answers, 503)
      assert.same({ 200, 200 }, { answers[801].status, answers[802].status })
    end
    assert.is_true(refused > 100, refused)
    close(all)
    assert.has_nothing_left(g)
  end)
end)
