-- GET /metrics of the admin listener: what it counts, its format, and what clients cannot put into it.
local cjson = require "cjson"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.number, b = t.number }, function(args) return args.a + args.b end }',
  ["tools/fail.lua"] = 'return tool { "Fails.", function() return nil, "it failed" end }',
  ["tools/wait.lua"] = 'return tool { "Waits.", timeout = 0.05, function() sleep(60) end }',
  ["resources/text.lua"] = 'return resource { "A text.", uri = "text://fixed", function() return "fixed" end }',
}

local OPEN <const> = "application/openmetrics-text"

local function scrape(g, accept)
  local response = client.request(g, { method = "GET", path = "/metrics", headers = { accept = accept } }, { admin = true })
  assert.equal(200, response.status)
  return response
end

-- The samples of a text: "name{labels}" -> value; and the families in their order. Fails where the text is not as
-- Prometheus's format wants it: HELP and TYPE once for each family, before its samples, which are together.
local function parse(text)
  local samples, families, current, ended = {}, {}, nil, {}
  for line in text:gmatch "([^\n]*)\n" do
    local kind, name, rest = line:match "^# (%u+) ([%w_]+) ?(.*)$"
    if kind == "HELP" then
      assert.is_nil(ended[name], "two blocks of " .. name)
      ended[name], current = true, name
      families[#families + 1] = name
      assert.truthy(#rest > 0, name .. " has no help")
    elseif kind == "TYPE" then
      assert.equal(current, name)
      families[name] = rest
    elseif line ~= "# EOF" then
      local sample, value = line:match "^(%S.*) (%-?[%d.e+]+)$"
      assert.truthy(sample, "not a sample: " .. line)
      assert.equal(current, sample:sub(1, #current), line)
      assert.is_nil(samples[sample], "twice: " .. sample)
      samples[sample] = tonumber(value)
    end
  end
  return samples, families
end

local function operation(method, version, err, network)
  return ('mcp_server_operation_duration_seconds_count{mcp_method_name="%s",mcp_protocol_version="%s",network_transport="%s",error_type="%s"}')
    :format(method, version, network or "tcp", err or "")
end

-- The samples, once a text was made after all that was done: a text is up to a second old.
local function fresh(g, key, value)
  local samples
  wait.for_fact("the sample " .. key .. " to be " .. value, 10, function()
    samples = parse(scrape(g).body)
    return samples[key] == value
  end)
  return samples
end

local function save(g, path, text)
  local file <close> = assert(io.open(g.dir .. "/scripts/" .. path, "w"))
  file:write(text)
end

-- What promtool says about the text; nil where it is not installed.
local function judged(g, text)
  if not os.execute "command -v promtool >/dev/null" then return nil end
  local path = g.dir .. "/metrics.txt"
  local file <close> = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  local pipe <close> = assert(io.popen("promtool check metrics < '" .. path .. "' 2>&1"))
  return pipe:read "a"
end

describe("/metrics", function()
  it("is Prometheus's text format, and OpenMetrics where the request asks for it", function()
    local g <close> = gateway.start { scripts = scripts }
    local plain, open = scrape(g), scrape(g, OPEN .. "; version=1.0.0, text/plain;q=0.5")
    assert.equal("text/plain; version=0.0.4; charset=utf-8", plain.headers["content-type"])
    assert.equal(OPEN .. "; version=1.0.0; charset=utf-8", open.headers["content-type"])
    assert.equal("# EOF\n", open.body:sub(-6))
    assert.is_nil(plain.body:find("# EOF", 1, true))
    local _, families = parse(plain.body)
    assert.equal("counter", families.moonpool_calls_total)
    assert.equal("gauge", families.process_resident_memory_bytes)
    _, families = parse(open.body)
    assert.equal("counter", families.moonpool_calls)
    assert.equal("histogram", families.mcp_server_operation_duration_seconds)
    assert.equal("", judged(g, plain.body) or "")
  end)

  it("counts requests by method, revision and outcome over all workers, and goes on over a reload", function()
    local g <close> = gateway.start { scripts = scripts, workers = 3 }
    for round = 1, 2 do
      for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
        for _ = 1, 5 do
          local c <close> = g:client(revision)
          c:result("tools/call", { name = "add", arguments = { a = 1, b = 2 } })
          c:result("tools/call", { name = "fail" })
          assert.equal(-32602, c:call("tools/call", { name = "none" }).error.code)
          c:result("tools/list")
          c:result("resources/read", { uri = "text://fixed" })
        end
      end
      local n = 5 * round
      local samples = fresh(g, operation("resources/read", "2026-07-28"), n)
      for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
        assert.equal(n, samples[operation("tools/call", revision)])
        assert.equal(n, samples[operation("tools/call", revision, "tool_error")])
        assert.equal(n, samples[operation("tools/call", revision, "-32602")])
        assert.equal(n, samples[operation("tools/list", revision)])
      end
      assert.equal(2 * n, samples['moonpool_tool_calls_total{gen_ai_tool_name="add",outcome="ok"}'])
      assert.equal(2 * n, samples['moonpool_tool_calls_total{gen_ai_tool_name="fail",outcome="failed"}'])
      assert.equal(2 * n, samples['moonpool_tool_duration_seconds_count{gen_ai_tool_name="add"}'])
      assert.equal(2 * n, samples['moonpool_tool_duration_seconds_bucket{gen_ai_tool_name="add",le="+Inf"}'])
      assert.equal(round, samples.moonpool_generation)
      if round == 1 then
        save(g, "tools/new.lua", 'return tool { "New.", function() return "new" end }')
        assert.equal(200, g:admin("/reload", "POST").status)
      end
    end
  end)

  it("names a time limit and a client that disconnects", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client "2026-07-28"
    assert.truthy(c:call("tools/call", { name = "wait" }).error)
    fresh(g, operation("tools/call", "2026-07-28", "timeout"), 1)
  end)

  it("has no series that clients name", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1 }
    local c <close> = g:client "2026-07-28"
    for i = 1, 300 do
      c:call("tools/call", { name = "tool" .. i })
      c:call("method/" .. i, {})
    end
    local samples = fresh(g, operation("_other", "2026-07-28", "-32601"), 300)
    assert.equal(300, samples[operation("tools/call", "2026-07-28", "-32602")])
    local text = scrape(g).body
    assert.is_nil(text:find("tool1", 1, true))
    assert.is_nil(text:find("method/", 1, true))
  end)

  it("has _other for the tools above 500, and no histograms with metrics: off", function()
    local many = {}
    for i = 1, 5 do many[("tools/t%d.lua"):format(i)] = ('return tool { "T%d.", function() return "t" end }'):format(i) end
    do
      local g <close> = gateway.start { scripts = many, workers = 1, constants = { metrics_tools = 3 } }
      local c <close> = g:client "2026-07-28"
      for i = 1, 5 do c:result("tools/call", { name = "t" .. i }) end
      local all = fresh(g, operation("tools/call", "2026-07-28"), 5)
      local named = 0
      for i = 1, 5 do named = named + (all[('moonpool_tool_calls_total{gen_ai_tool_name="t%d",outcome="ok"}'):format(i)] or 0) end
      assert.equal(3, named)
      assert.equal(2, all['moonpool_tool_calls_total{gen_ai_tool_name="_other",outcome="ok"}'])
      assert.truthy(all['moonpool_series_left_out_total{cause="most"}'] >= 2)
      assert.equal(0, all['moonpool_series_left_out_total{cause="room"}'])
    end
    local g <close> = gateway.start { scripts = many, config = { metrics = "off" } }
    local c <close> = g:client "2026-07-28"
    c:result("tools/call", { name = "t1" })
    local samples = fresh(g, "moonpool_calls_total", 1)
    assert.is_nil(samples[operation("tools/call", "2026-07-28")])
  end)

  it("shows the generation, refused files, and how much of each limit is used", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { calls_in_flight = 4 } } }
    local c <close> = g:client "2025-11-25"
    local samples = parse(scrape(g).body)
    assert.equal(1, samples.moonpool_config_ok)
    assert.equal(1, samples.moonpool_ready)
    assert.truthy(samples['moonpool_saturation_ratio{resource="sessions"}'] >= 0)
    assert.equal(0, samples['moonpool_saturation_ratio{resource="calls"}'])
    save(g, "tools/new.lua", "return tool {")
    assert.equal(422, g:admin("/reload", "POST").status)
    fresh(g, "moonpool_config_ok", 0)
    assert.equal(1, parse(scrape(g).body)['moonpool_reloads_total{outcome="refused"}'])
    c:delete()
  end)
end)

describe("/readyz", function()
  it("answers 200 while the gateway accepts requests", function()
    local g <close> = gateway.start { scripts = scripts }
    local response = g:admin("/readyz")
    assert.same({ 200, "ready\n" }, { response.status, response.body })
  end)
end)

describe("examples/monitoring", function()
  it("uses metrics and labels that exist", function()
    local g <close> = gateway.start { scripts = scripts, tls = true, config = { upstreams = { gone = "http://127.0.0.1:1/mcp" } } }
    local c <close> = g:client "2026-07-28"
    c:result("tools/call", { name = "add", arguments = { a = 1, b = 2 } })
    fresh(g, operation("tools/call", "2026-07-28"), 1)
    local text = scrape(g).body
    local used = 0
    for _, name in ipairs { "moonpool.rules.yml", "grafana.json" } do
      local file <close> = assert(io.open("examples/monitoring/" .. name))
      for line in file:lines() do
        for metric in line:gmatch "%f[%w_]([mp][%w_]+_[%w_]+)" do
          if metric:find "^moonpool_" or metric:find "^mcp_server" or metric:find "^process_" then
            used = used + 1
            local exists = text:find("\n" .. metric .. "[{ ]") or metric:find "^mcp_method_name" or metric:find "^mcp_protocol"
            assert.truthy(exists, name .. " uses " .. metric)
          end
        end
      end
    end
    assert.truthy(used > 30, used)
  end)

  -- The classic model, as Grafana's page "Dashboard JSON model" describes it.
  it("has a dashboard in the shape that Grafana documents", function()
    local file <close> = assert(io.open "examples/monitoring/grafana.json")
    local board = cjson.decode(file:read "a")
    assert.truthy(#board.uid >= 8 and #board.uid <= 40 and #board.title > 0)
    assert.truthy(math.type(board.schemaVersion) and math.type(board.version) and type(board.tags) == "table")
    assert.truthy(board.timezone == "browser" or board.timezone == "utc" or board.timezone == "")
    assert.truthy(board.time.from and board.time.to)
    local variables, ids, taken = { __rate_interval = true, __interval = true, __range = true }, {}, {}
    for _, variable in ipairs(board.templating.list) do
      assert.truthy(variable.type == "datasource" or variable.type == "query" and variable.datasource and variable.query, variable.name)
      variables[variable.name] = true
    end
    for _, panel in ipairs(board.panels) do
      local at, refs = panel.gridPos, {}
      assert.truthy(math.type(panel.id) and not ids[panel.id], panel.title)
      ids[panel.id] = true
      assert.truthy(#panel.title > 0 and panel.type == "timeseries", panel.title)
      assert.truthy(type(panel.fieldConfig.defaults) == "table" and type(panel.options) == "table", panel.title)
      assert.truthy(at.x >= 0 and at.y >= 0 and at.w > 0 and at.h > 0 and at.x + at.w <= 24, panel.title)
      for x = at.x, at.x + at.w - 1 do
        for y = at.y, at.y + at.h - 1 do
          assert.is_nil(taken[x .. "," .. y], panel.title)
          taken[x .. "," .. y] = true
        end
      end
      assert.truthy(#panel.targets > 0, panel.title)
      for _, target in ipairs(panel.targets) do
        assert.truthy(target.refId and not refs[target.refId] and #target.expr > 0, panel.title)
        refs[target.refId] = true
        for name in (target.expr .. panel.datasource.uid):gmatch "%${?([%w_]+)" do assert.truthy(variables[name], panel.title .. " uses $" .. name) end
      end
    end
    assert.truthy(#board.panels >= 12)
  end)

  it("is accepted by promtool, where that is installed", function()
    if not os.execute "command -v promtool >/dev/null" then return pending "promtool is not installed" end
    for _, command in ipairs { "check rules examples/monitoring/moonpool.rules.yml", "check config examples/monitoring/prometheus.yml" } do
      assert.truthy(os.execute("promtool " .. command .. " >/dev/null"), command)
    end
  end)
end)

describe("what /metrics says of upstreams", function()
  it("counts what is asked of upstreams, by their names, and nothing by their tools", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { retry = "read_only" } }) })
    local c <close> = g:client "2026-07-28"
    for _ = 1, 3 do c:call("tools/call", { name = "echo", arguments = { n = 1 } }) end
    u:lose_sessions "404"
    c:call("tools/call", { name = "echo", arguments = { n = 1 } })
    u:when("tools/call echo", upstream.faults.status(500), 1)
    c:call("tools/call", { name = "echo", arguments = { n = 1 } })
    local samples = fresh(g, 'moonpool_upstream_errors_total{upstream="one",outcome="unknown"}', 2)
    assert.equal(1, samples['moonpool_upstream_up{upstream="one"}'])
    assert.equal(0, samples['moonpool_upstream_withheld{upstream="one"}'])
    assert.equal(0, samples['moonpool_upstream_processes{upstream="one"}'])
    assert.is_true(samples['moonpool_upstream_channels{upstream="one"}'] >= 1)
    assert.equal(1, samples['moonpool_upstream_retries_total{upstream="one"}'])
    assert.is_true(samples['moonpool_upstream_calls_total{upstream="one"}'] >= 6)
    assert.is_true(samples['moonpool_upstream_seconds_count{upstream="one"}'] >= 4)
    for name in pairs(samples) do
      if name:find "^moonpool_upstream_%w+{" then assert.is_nil(name:find "echo", name) end
    end
    parse(scrape(g, OPEN).body)
  end)

  it("agrees with what the system says: descriptors, and processes of upstreams", function()
    local u <close> = upstream.start { transport = "stdio", revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, {}) })
    local c <close> = g:client "2025-11-25"
    c:call("tools/call", { name = "echo", arguments = { n = 1 } })
    local pid = g.pid
    local function entries(path)
      local count, list = 0, assert(uv.fs_scandir(path))
      while uv.fs_scandir_next(list) do count = count + 1 end
      return count
    end
    wait.for_fact("the descriptors of /metrics to be those of the system", 15, function()
      local before = entries("/proc/" .. pid .. "/fd")
      local said = parse(scrape(g).body).process_open_fds
      local left = entries("/proc/" .. pid .. "/fd")
      -- Either count may include the connection of the scrape, or the descriptor of the folder that is read.
      return math.abs(said - before) <= 1 or math.abs(said - left) <= 1
    end)
    local keepers, threads = 0, assert(uv.fs_scandir("/proc/" .. pid .. "/task"))
    for thread in uv.fs_scandir_next, threads do
      local file <close> = assert(io.open(("/proc/%d/task/%s/children"):format(pid, thread)))
      for _ in file:read "a":gmatch "%d+" do keepers = keepers + 1 end
    end
    local status = g:status()
    assert.equal(keepers, status.upstreams.one.processes)
    assert.equal(keepers, parse(scrape(g).body)['moonpool_upstream_processes{upstream="one"}'] or keepers)
  end)
end)
