-- lane: alone
-- What the pages of the dashboard cost a gateway that has much to show: no request holds a worker for more than a
-- millisecond of processor time, and the admin thread only for a few. /status counts these turns, by their processor
-- time: asked_turns of workers, admin_turns of the admin thread.
local beat = require "spec.helpers.beat"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local TOOLS <const>, SESSIONS <const> = 5000, 2000
local token <const> = ("o"):rep(32)

local function scripts()
  local files = { ["tools/fill.lua"] = [[
    local one <const> = metrics.histogram { "one", "Fills the series", labels = { "word" }, most = 1000 }
    local other <const> = metrics.histogram { "other", "Fills the series, too", labels = { "word" }, most = 1000 }
    return tool { "Makes all series.", function()
      for i = 0, 999 do
        one:observe(1, { word = tostring(i) })
        other:observe(1, { word = tostring(i) })
      end
      return "filled"
    end }]] }
  for i = 1, TOOLS do
    files[("tools/group%02d/tool%04d.lua"):format(i // 100, i)] = ('return tool { "Does something, number %d.", ' ..
      'input = { text = t.string, count = t.integer { optional = true } }, function(args) return args.text end }'):format(i)
  end
  return files
end

local function get(g, path, accept)
  local headers = { Authorization = "Bearer " .. token, Accept = accept }
  local response = client.request(g, { method = "GET", path = path, headers = headers }, { admin = true })
  assert.equal(200, response.status, path)
  return response
end

-- Opens the sessions, many at a time on one connection each.
local function open_sessions(g)
  local body <const> = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},' ..
    '"clientInfo":{"name":"one of many","version":"1"}}}'
  for _ = 1, SESSIONS do
    local response = client.request(g, { method = "POST", path = "/mcp", body = body, headers = {
      ["content-type"] = "application/json", accept = "application/json, text/event-stream" } })
    assert.equal(200, response.status)
  end
end

-- What takes a millisecond takes two to five in a build with AddressSanitizer, and five to fifteen with
-- ThreadSanitizer, which watch each access to memory.
local SHORT <const> = { ["1ms"] = true, ["5ms"] = beat.is_sanitized(), ["20ms"] = gateway.binary:find "tsan" ~= nil }

-- The turns of `family` that /status counts, by their processor time: the short ones, and the longer ones.
local function turns(g, family)
  local short, longer = 0, 0
  for within, count in pairs(g:status().counters[family]) do
    if SHORT[within] then short = short + count else longer = longer + count end
  end
  return short, longer
end

-- Fails if more than `share` of the turns that `work` causes are longer than a millisecond. In a virtual machine the
-- time that its host takes away counts as processor time, and the build of the specs is slower than the one that is
-- delivered; one with a sanitizer may have four times as many. So `work` may be tried `tries` times.
local function check_turns(g, family, share, work, tries)
  local short, long
  for _ = 1, tries or 1 do
    local short_before, long_before = turns(g, family)
    work()
    short, long = turns(g, family)
    short, long = short - short_before, long - long_before
    assert.truthy(short > 50, family .. ": " .. short)
    if long <= share * (beat.is_sanitized() and 4 or 1) * short then return end
  end
  error(("%s: %d are too long, %d are not"):format(family, long, short))
end

local function start()
  return gateway.start { scripts = scripts(), workers = 2, patience = 120,
    constants = { metrics_tools = 1500, metrics_series = 2000, metrics_waiting = 10, load_ms = 60000 }, config = {
    admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } }, sessions = { per_principal = SESSIONS },
  } }
end

-- Asks for every page of every list.
local function check_pages(g)
  open_sessions(g)
  assert.equal(SESSIONS, g:status().gauges.sessions.http)
  local name = get(g, "/api/tools?page=20"):json().tools[1].name
  local paths = { "/status", "/metrics", "/api/overview", "/api/calls", "/api/jobs", "/api/reloads", "/api/certificates", "/api/config", "/api/records",
    "/api/history", "/api/history?span=day", "/api/prompts", "/api/resources", "/api/tool/" .. name, "/api/tools?search=tool49" }
  for page = 0, 25, 5 do
    paths[#paths + 1] = "/api/tools?page=" .. page
    paths[#paths + 1] = "/api/scripts?page=" .. page
  end
  for page = 0, 15 do paths[#paths + 1] = "/api/sessions?page=" .. page end
  for family, share in pairs { asked_turns = 0.02, admin_turns = 0.1 } do
    check_turns(g, family, share, function()
      for _ = 1, 3 do
        for _, path in ipairs(paths) do get(g, path) end
        assert.equal(404, client.request(g, { path = "/api/tool/tool", headers = { Authorization = "Bearer " .. token } }, { admin = true }).status)
      end
    end, 3)
  end
end

-- Reaches the limits of tools and of scripts' series, and reads what /metrics has then.
local function check_metrics(g)
  local c <close> = g:client "2026-07-28"
  local names = {}
  for page = 0, 7 do
    for _, tool in ipairs(get(g, "/api/tools?page=" .. page):json().tools) do names[#names + 1] = tool.name end
  end
  for _, name in ipairs(names) do
    if name ~= "fill" then c:result("tools/call", { name = name, arguments = { text = "x" } }) end
  end
  c:result("tools/call", { name = "fill", arguments = {} })
  wait.for_fact("a text with all series", 20, function()
    local text = get(g, "/metrics").body
    return text:find('gen_ai_tool_name="_other"', 1, true) and text:find('app_other_count{word="999"} 1', 1, true)
  end)
  check_turns(g, "admin_turns", 0.1, function()
    -- the first text of /metrics in this format, which no earlier request has made
    local size = #get(g, "/metrics", "application/openmetrics-text").body
    assert.truthy(size > 2 * 1024 * 1024 and size < 8 * 1024 * 1024, size)
  end)
  local before = turns(g, "asked_turns")
  local readers, seen, began, texts = {}, {}, uv.hrtime(), 0
  for i = 1, 10 do
    readers[i] = client.connect(g, { admin = true })
    readers[i]:send { method = "GET", path = "/metrics" }
  end
  for i = 1, 10 do seen[readers[i]:read_response().body] = true end
  for _ in pairs(seen) do texts = texts + 1 end
  -- The gateway makes a new text at most once a second. One may have existed before the ten requests, and on a slow
  -- machine these take seconds.
  assert.truthy(texts <= 2 + (uv.hrtime() - began) // 1e9, texts)
  wait.for_fact("a request above those that may wait to be refused", 60, function()
    for i = 1, 30 do
      readers[i] = client.connect(g, { admin = true })
      readers[i]:send { method = "GET", path = "/metrics" }
    end
    local refused = 0
    for i = 1, 30 do
      local response = readers[i]:read_response()
      refused = refused + (response.status == 503 and 1 or 0)
      assert.truthy(response.status == 200 or (response.status == 503 and response.headers["retry-after"] == "1"), response.status)
      readers[i]:close()
    end
    return refused > 0
  end)
  assert.truthy(g:status().counters.refused.metrics > 0)
  assert.equal(before, turns(g, "asked_turns"))
end

describe("the pages of the dashboard, with 5,000 tools, 2,000 sessions and all series that /metrics can have,", function()
  it("hold no worker and not the admin thread for more than a millisecond; ten readers of /metrics share texts below 8 MiB", function()
    local g <close> = start()
    check_pages(g)
    check_metrics(g)
  end)
end)

-- As many tools, upstreams and series of scripts as may be measured, with names and labels as long as they may be.
local function start_with_long_names()
  local files = { ["tools/fill.lua"] = [[
    local function long(word, i) return (word .. i):rep(128, "-"):sub(1, 128) end
    local labels <const> = { ("a"):rep(60), ("b"):rep(60), ("c"):rep(60), ("d"):rep(60) }
    local one <const> = metrics.histogram { ("one"):rep(18), "Fills the series", labels = labels, most = 1000 }
    local other <const> = metrics.histogram { ("other"):rep(11), "Fills the series, too", labels = labels, most = 1000 }
    return tool { "Makes all series.", function()
      for i = 0, 999 do
        local values = { [labels[1] ] = long("a", i), [labels[2] ] = long("b", i), [labels[3] ] = long("c", i), [labels[4] ] = long("d", i) }
        one:observe(1, values)
        other:observe(1, values)
      end
      return "filled"
    end }]] }
  for i = 1, 1600 do
    files[("tools/%s%04d.lua"):format(("t"):rep(100), i)] = 'return tool { "Does something.", function() return "done" end }'
  end
  local upstreams = {}
  for i = 1, 256 do upstreams[("%s%03d"):format(("u"):rep(20), i)] = { url = "http://127.0.0.1:1/mcp" } end
  return gateway.start { scripts = files, workers = 2, patience = 120, constants = { metrics_tools = 1500, metrics_series = 2000, load_ms = 60000 }, config = {
    admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } }, upstreams = upstreams,
    traces = { otlp = "http://127.0.0.1:1", sample = 1 },
  } }
end

describe("/metrics where all that may be measured has the longest names", function()
  it("is below 8 MiB, in slices: what does not fit is counted as _other", function()
    local g <close> = start_with_long_names()
    local c <close> = g:client "2026-07-28"
    c:result("tools/call", { name = "fill", arguments = {} })
    for i = 1, 1600 do c:result("tools/call", { name = ("%s%04d"):format(("t"):rep(100), i) }) end
    local asked = turns(g, "asked_turns")
    for _, format in ipairs { "text/plain", "application/openmetrics-text" } do
      local text
      -- the longest slices take almost a millisecond: on a machine that is 1.5 times slower some take more
      check_turns(g, "admin_turns", 0.3, function() text = get(g, "/metrics", format).body end)
      assert.truthy(#text > 4 * 1024 * 1024 and #text < 8 * 1024 * 1024, #text)
      for _, some in ipairs {
        'moonpool_tool_duration_seconds_count{gen_ai_tool_name="_other"} ', 'moonpool_tool_calls_total{gen_ai_tool_name="_other",outcome="ok"} ',
        'moonpool_tool_duration_seconds_count{gen_ai_tool_name="tt', "app_" .. ("one"):rep(18) .. "_count{" .. ("a"):rep(60) .. '="a0-a0',
        "app_" .. ("other"):rep(11) .. "_count{" .. ("a"):rep(60) .. '="_other"', 'mcp_server_operation_duration_seconds_count{mcp_method_name="tools/call"',
        'moonpool_upstream_calls_total{upstream="' .. ("u"):rep(20) .. '256"}', 'moonpool_upstream_seconds_count{upstream="' .. ("u"):rep(20) .. '001"}',
      } do assert.truthy(text:find("\n" .. some, 1, true), some) end
      local tools = 0
      for count in text:gmatch "\nmoonpool_tool_duration_seconds_count%b{} (%d+)" do tools = tools + count end
      assert.equal(1601, tools)
    end
    assert.truthy(g:status().counters.series_left_out.room > 0)
    assert.equal(asked, turns(g, "asked_turns"))
  end)
end)
