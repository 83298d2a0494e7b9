-- The library `metrics`: counters, gauges and histograms of scripts in /metrics.
local gateway = require "spec.helpers.gateway"
local scrape = require "spec.helpers.scrape"

local DECLARED <const> = [[
  local sold <const> = metrics.counter { "orders_sold", "Orders sold", labels = { "region", "paid" }, most = 3 }
  local plain <const> = metrics.counter { "visits", "Visits" }
  local stock <const> = metrics.gauge { "stock_bytes", "Bytes in stock" }
  local size <const> = metrics.histogram { "order_size", "Things of an order", buckets = { 1, 2.5, 10 } }
]]

local scripts = {
  ["tools/sell.lua"] = DECLARED .. [[
    return tool { "Sells.", input = { region = t.string, things = t.number }, function(args)
      sold:add(0.1, { region = args.region, paid = true })
      plain:add()
      stock:set(5e12)
      stock:add(-args.things)
      size:observe(args.things)
      return "sold"
    end }]],
  ["tools/wrong.lua"] = [[
    local count <const> = metrics.counter { "wrongs", "Wrongs", labels = { "kind" } }
    local plain <const> = metrics.gauge { "plain", "Plain" }
    return tool { "Is wrong.", function()
      local texts = {}
      local function try(...) texts[#texts + 1] = tostring(select(2, pcall(...))) end
      try(count.add, count, -1, { kind = "a" })
      try(count.add, count, "1", { kind = "a" })
      try(count.add, 1)
      try(count.add, count, 0 / 0, { kind = "a" })
      try(count.add, count, math.huge, { kind = "a" })
      try(count.add, count, 1)
      try(count.add, count, 1, { kind = {} })
      try(count.add, count, 1, { kind = "a", other = "b" })
      try(plain.set, plain, 1, { kind = "a" })
      try(function() count.add = 1 end)
      try(metrics.counter, { "late", "Late" })
      return table.concat(texts, "\n")
    end }]],
  ["tools/invents.lua"] = [[
    local invented <const> = metrics.counter { "invented", "By what a client says", labels = { "word" }, most = 5 }
    return tool { "Counts a word.", input = { word = t.string }, function(args)
      invented:add(1, { word = args.word })
      return "counted"
    end }]],
}

local function start(names, constants)
  local wanted = {}
  for _, name in ipairs(names) do wanted["tools/" .. name .. ".lua"] = scripts["tools/" .. name .. ".lua"] end
  return gateway.start { scripts = wanted, workers = 2, constants = constants }
end

local function save(g, path, text)
  local file <close> = assert(io.open(g.dir .. "/scripts/" .. path, "w"))
  file:write(text)
end

local function reload(g, status)
  local answer = g:admin("/reload", "POST")
  assert.equal(status or 200, answer.status, answer.body)
  return answer.body
end

local function call(g, name, arguments)
  local c <close> = g:client "2026-07-28"
  return c:result("tools/call", { name = name, arguments = arguments }).content[1].text
end

local function sell(g, region, things) call(g, "sell", { region = region, things = things }) end

describe("metrics of scripts", function()
  it("count over all workers, go on over reloads, and have _other above `most`", function()
    local g <close> = start { "sell" }
    for round = 1, 2 do
      for i = 1, 6 do sell(g, "eu", i) end
      for i = 1, 3 do sell(g, "region" .. i, 1) end
      if round == 1 then
        save(g, "tools/other.lua", 'return tool { "Other.", function() return "x" end }')
        reload(g)
      end
    end
    local samples = scrape.wait(g, { app_visits_total = 18 })
    assert.equal(1.2, samples['app_orders_sold_total{region="eu",paid="true"}'])
    assert.equal(0.2, samples['app_orders_sold_total{region="region2",paid="true"}'])
    assert.equal(0.2, samples['app_orders_sold_total{region="_other",paid="_other"}'])
    assert.is_nil(samples['app_orders_sold_total{region="region3",paid="true"}'])
    assert.equal(5e12 - 1, samples.app_stock_bytes)
    assert.equal(8, samples['app_order_size_bucket{le="1.0"}'])
    assert.equal(10, samples['app_order_size_bucket{le="2.5"}'])
    assert.equal(18, samples['app_order_size_bucket{le="+Inf"}'])
    assert.equal(18, samples.app_order_size_count)
    assert.equal(48, samples.app_order_size_sum)
    assert.truthy(scrape.text(g):find("# HELP app_orders_sold_total Orders sold\n# TYPE app_orders_sold_total counter\n", 1, true))
    assert.truthy(scrape.text(g, "application/openmetrics-text"):find("# TYPE app_orders_sold counter\n", 1, true))
    assert.truthy(scrape.text(g):find("# TYPE app_stock_bytes gauge\n", 1, true))
  end)

  it("show no label that is more than a text of the script, whatever clients send", function()
    local g <close> = start { "invents" }
    for _, word in ipairs { 'a"b\\c\nd', "nul\0nul", ("x"):rep(5000), "\u{10FFFF}", "_other" } do call(g, "invents", { word = word }) end
    for i = 1, 50 do call(g, "invents", { word = "word" .. i }) end
    local samples = scrape.wait(g, { ['app_invented_total{word="_other"}'] = 51 })
    assert.truthy(samples['moonpool_series_left_out_total{cause="most"}'] >= 46)
    assert.equal(samples['moonpool_series_left_out_total{cause="most"}'], g:status().counters.series_left_out.most)
    assert.equal(1, samples['app_invented_total{word="a\\"b\\\\c\\nd"}'])
    assert.equal(1, samples['app_invented_total{word="' .. ("x"):rep(128) .. '"}'])
    local count = 0
    for name in pairs(samples) do count = count + (name:find "^app_invented_total" and 1 or 0) end
    assert.equal(5, count)
  end)

  it("say where they are used wrongly", function()
    local g <close> = start { "wrong" }
    local said, at = call(g, "wrong"), 1
    for _, part in ipairs {
      "a counter only rises", "got a string", "needs its labels", "got %-?nan", "got inf", "needs its labels: kind", "the label 'kind' must be",
      "no other labels than kind", "has no labels", "cannot change a metric", "declared while its script loads",
    } do
      local place = said:find(part, at, part ~= "got %-?nan")
      assert.truthy(place, part .. " in " .. said)
      at = place
    end
  end)

  it("that are declared wrongly are load errors, with their line, and change nothing", function()
    local g <close> = start({ "sell" }, { metrics_series = 300 })
    sell(g, "eu", 1)
    for text, why in pairs {
      ['metrics.counter { "Bad name", "x" }'] = "a metric needs a name",
      ['metrics.counter { "a_total", "x" }'] = "may not end in _total",
      ['metrics.counter { "a" }'] = "needs a description",
      ['metrics.counter { "a", "two\\nlines" }'] = "needs a description",
      ['metrics.counter "a"'] = "needs a table",
      ['metrics.counter { "a", "x", label = {} }'] = "has no option 'label'",
      ['metrics.counter { "a", "x", buckets = { 1 } }'] = "has no option 'buckets'",
      ['metrics.counter { "a", "x", labels = { "le" } }'] = "no name of a label",
      ['metrics.counter { "a", "x", labels = { "a", "a" } }'] = "no name of a label",
      ['metrics.counter { "a", "x", labels = { a = "b" } }'] = "must be a list of names",
      ['metrics.counter { "a", "x", labels = { "a", "b", "c", "d", "e" } }'] = "at most 4 names",
      ['metrics.counter { "a", "x", most = 1001 }'] = "from 1 to 1000",
      ['metrics.histogram { "a", "x", buckets = { 2, 1 } }'] = "each above the one before it",
      ['metrics.histogram { "a", "x", buckets = { 0 / 0 } }'] = "each above the one before it",
      ['metrics.gauge { "a", "x" } metrics.counter { "a", "x" }'] = "'app_a' is declared in two forms",
      ['metrics.gauge { "visits", "x" }'] = "'app_visits' is declared in two forms",
      ['metrics.counter { "large", "x", labels = { "a" }, most = 296 }'] = "may have 300 series together: 'app_large' with 296 more is over that",
    } do
      save(g, "tools/zz.lua", "\n" .. text .. '\nreturn tool { "Bad.", function() return "x" end }')
      local said = reload(g, 422)
      assert.truthy(said:find("tools/zz.lua:2", 1, true), text .. ": " .. said)
      assert.truthy(said:find(why, 1, true), text .. ": " .. said)
    end
    save(g, "tools/zz.lua", 'metrics.counter { "large", "x", labels = { "a" }, most = 294 }\nreturn tool { "Fits.", function() return "x" end }')
    reload(g)
    sell(g, "eu", 1)
    local samples = scrape.wait(g, { app_visits_total = 2 })
    for name in pairs(samples) do assert.is_nil(name:find "^app_a") end
  end)

  it("vanish with the scripts that declared them, come back with their numbers, and begin at 0 in another form", function()
    local g <close> = start({ "sell", "invents" }, { metrics_series = 110 })
    call(g, "invents", { word = "one" })
    assert.equal(1, scrape.wait(g, { app_visits_total = 0 })['app_invented_total{word="one"}'])
    save(g, "tools/invents.lua", [[
      local n <const> = metrics.gauge { "n", "N", labels = { "a" } }
      return tool { "Other.", function() n:set(1, { a = 1 }) return "x" end }]])
    reload(g)
    assert.equal("x", call(g, "invents"))
    assert.is_nil(scrape.wait(g, { ['app_n{a="1"}'] = 1 })['app_invented_total{word="one"}'])
    save(g, "tools/invents.lua", scripts["tools/invents.lua"])
    reload(g)
    assert.is_nil(scrape.wait(g, { ['app_invented_total{word="one"}'] = 1 })['app_n{a="1"}'])
    save(g, "tools/invents.lua", (scripts["tools/invents.lua"]:gsub('"word"', '"term"'):gsub("word = args", "term = args")))
    reload(g)
    call(g, "invents", { word = "one" })
    assert.is_nil(scrape.wait(g, { ['app_invented_total{term="one"}'] = 1 })['app_invented_total{word="one"}'])
    for i = 1, 30 do                               -- renaming does not use up the series
      save(g, "tools/invents.lua", (scripts["tools/invents.lua"]:gsub('"invented"', '"invented' .. i .. '"'):gsub("most = 5", "most = 90")))
      reload(g)
    end
  end)
end)
