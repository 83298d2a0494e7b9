-- examples/monitoring against /metrics of a gateway with traffic of every kind: no query of the dashboard is empty, and
-- each alert can be evaluated.
local cjson = require "cjson"
local client = require "spec.helpers.client"
local scrape = require "spec.helpers.scrape"
local upstream = require "spec.helpers.upstream"

local FOLDER <const> = "examples/monitoring/"

local scripts = {
  ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.number, b = t.number }, function(args) return args.a + args.b end }',
  ["tools/fail.lua"] = 'return tool { "Fails.", function() return nil, "it failed" end }',
  ["tools/run.lua"] = 'return tool { "Runs.", function() return exec { "true" }.status end }',
  ["tools/ask.lua"] = 'return tool { "Asks.", input = { url = t.string }, function(args) return http.get(args.url).status end }',
  ["tools/keep.lua"] = [[
    return tool { "Keeps.", function()
      local db <const> = assert(sqlite.open "data/kept.db")
      db:exec "create table if not exists kept (text)"
      return "kept"
    end }]],
  ["tools/sell.lua"] = [[
    local sold <const> = metrics.counter { "orders_sold", "Orders sold", labels = { "region" }, most = 10 }
    return tool { "Sells.", function() sold:add(1, { region = "eu" }) return "sold" end }]],
  ["prompts/hello.lua"] = 'return prompt { "Says hello.", function() return "hello" end }',
  ["resources/text.lua"] = 'return resource { "A text.", uri = "text://fixed", function() return "fixed" end }',
  ["policy/first.lua"] = 'return policy { "Lets pass.", function(call, next) return next(call) end }',
}

local function read(name)
  local file <close> = assert(io.open(FOLDER .. name))
  return file:read "a"
end

-- The samples of the text as a list of { name, labels, value }.
local function samples_of(text)
  local list = {}
  for line in text:gmatch "[^\n]+" do
    local name, labels, value = line:match "^([%w_:]+){(.*)} (%S+)$"
    if not name then name, value = line:match "^([%w_:]+) (%S+)$" end
    if name then
      local sample = { name = name, labels = {}, value = tonumber(value) }
      for label, text_of in (labels or ""):gmatch '([%w_]+)="([^"]*)"' do sample.labels[label] = text_of end
      list[#list + 1] = sample
    end
  end
  return list
end

-- True if the value is one of the alternatives of a regular expression of plain words.
local function is_one_of(value, pattern)
  for word in (pattern .. "|"):gmatch "(.-)|" do
    if value == word then return true end
  end
  return false
end

local operators = {
  ["="] = function(value, wanted) return value == wanted end,
  ["!="] = function(value, wanted) return value ~= wanted end,
  ["=~"] = is_one_of,
  ["!~"] = function(value, pattern) return not is_one_of(value, pattern) end,
}

-- The samples that a selector `name{matchers}` finds. The labels `instance` and `job` are Prometheus's own.
local function select(samples, name, matchers)
  local found = {}
  for _, sample in ipairs(samples) do
    local fits = sample.name == name
    for label, operator, value in matchers:gmatch '([%w_]+)(=?!?[=~]?~?)"([^"]*)"' do
      if label ~= "instance" and label ~= "job" then fits = fits and operators[operator](sample.labels[label] or "", value) end
    end
    if fits then found[#found + 1] = sample end
  end
  return found
end

-- The selectors of a PromQL expression: { name, matchers, is_rate }.
local function selectors_of(expression)
  local list = {}
  for at, name, rest in expression:gmatch "()%f[%w_]([mpa][%w]+_[%w_]+)()" do
    if name:find "^moonpool_" or name:find "^mcp_" or name:find "^process_" then
      local before, matchers = expression:sub(1, at - 1), expression:match("^{([^}]*)}", rest) or ""
      local is_label = before:find "by %([^)]*$" or before:find "{[^}]*$"
      if not is_label then list[#list + 1] = { name = name, matchers = matchers, is_rate = before:find "rate%($" ~= nil } end
    end
  end
  return list
end

-- The labels by which an expression groups.
local function groups_of(expression)
  local groups = {}
  for list in expression:gmatch "by %(([^)]*)%)" do
    for label in list:gmatch "[%w_]+" do groups[label] = true end
  end
  return groups
end

-- Checks that each selector finds series with the labels by which the expression groups; with `has_traffic`, that what
-- it counts has happened.
local function check(what, expression, samples, has_traffic)
  local selectors = selectors_of(expression)
  assert.truthy(#selectors > 0, what .. " has no selector: " .. expression)
  for _, selector in ipairs(selectors) do
    local shown = ("%s: %s{%s}"):format(what, selector.name, selector.matchers)
    local found = select(samples, selector.name, has_traffic and selector.matchers or "")
    assert.truthy(#found > 0, shown .. " finds nothing")
    for label in selector.matchers:gmatch "([%w_]+)=?!?[=~]" do
      assert.truthy(label == "instance" or label == "job" or found[1].labels[label], shown .. " has no label " .. label)
    end
    for label in pairs(groups_of(expression)) do
      assert.truthy(label == "instance" or found[1].labels[label], shown .. " has no label " .. label)
    end
    local has_counted = not (has_traffic and selector.is_rate)
    for _, sample in ipairs(found) do has_counted = has_counted or sample.value > 0 end
    assert.truthy(has_counted, shown .. " is 0 after the traffic")
  end
end

-- Iterates over the alerts: name, expression.
local function rules()
  return coroutine.wrap(function()
    local text <const> = read "moonpool.rules.yml"
    for name, at in text:gmatch "%- alert: (%w+)\n()" do
      local expression = text:match("^%s*expr: |\n(.-)\n        %l+:", at) or text:match("^%s*expr: ([^\n]*)", at)
      coroutine.yield(name, assert(expression, name))
    end
  end)
end

-- Makes every kind of traffic, and returns the text that says so.
local function traffic(g)
  for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
    local c <close> = g:client(revision)
    c:result("tools/list")
    for _, name in ipairs { "fail", "run", "keep", "sell" } do c:call("tools/call", { name = name, arguments = {} }) end
    c:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } })
    c:call("tools/call", { name = "none", arguments = {} })
    c:call("tools/call", { name = "ask", arguments = { url = "http://127.0.0.1:" .. g.admin_port .. "/healthz" } })
    c:call("tools/call", { name = "one_echo", arguments = { n = 1 } })
    c:result("prompts/get", { name = "hello" })
    c:result("resources/read", { uri = "text://fixed" })
  end
  assert.equal(403, client.request(g, { method = "POST", path = "/mcp", body = "{}", headers = { host = "elsewhere.example" } }).status)
  scrape.wait(g, { ['moonpool_resource_reads_total{resource="text",outcome="ok"}'] = 2, ['app_orders_sold_total{region="eu"}'] = 2 })
  return scrape.text(g)
end

local function start(u)
  local entries = upstream.plain({ one = u }, {})
  return upstream.gateway({ one = u }, { entries = entries, scripts = scripts, tls = true, files = { ["data/.keep"] = "" }, config = {
    scripts = { grants = { ["tools/"] = { run = { "true" }, net = { "127.0.0.1:*" }, write = { "data" } } } },
  } })
end

describe("examples/monitoring", function()
  it("has no query that is empty after traffic of every kind, and alerts of what exists; promtool accepts the text", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = start(u)
    local text = traffic(g)
    local samples = samples_of(text)
    for _, panel in ipairs(cjson.decode(read "grafana.json").panels) do
      for _, target in ipairs(panel.targets) do
        check(panel.title, target.expr, samples, true)
        local groups, found = groups_of(target.expr), selectors_of(target.expr)[1]
        for label in (target.legendFormat or ""):gmatch "{{([%w_]+)}}" do
          local series = select(samples, found.name, found.matchers)[1]
          local has = label == "instance" and (next(groups) == nil or groups.instance) or groups[label] or (next(groups) == nil and series.labels[label])
          assert.truthy(has, ("%s: the legend's %s is no label of %s"):format(panel.title, label, target.expr))
        end
      end
    end
    for name, expression in rules() do
      if not expression:find "^up{" then check(name, expression, samples, false) end
    end
    if os.execute "command -v promtool >/dev/null" then
      local path = g.dir .. "/metrics.txt"
      local file <close> = assert(io.open(path, "w"))
      assert(file:write(text))
      file:close()
      local pipe <close> = assert(io.popen("promtool check metrics < '" .. path .. "' 2>&1"))
      assert.equal("", pipe:read "a")
    end
  end)
end)
