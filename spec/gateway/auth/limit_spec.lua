-- limit { … } and quota { … }: policies that count calls, for all workers together.
local gateway = require "spec.helpers.gateway"

local scripts = {
  ["tools/slow_fill.lua"] = [[return tool { "s", function() return "ran" end }]],
  ["tools/quick.lua"] = [[return tool { "q", function() return "ran" end }]],
  ["tools/each.lua"] = [[return tool { "e", input = { who = t.string }, function() return "ran" end }]],
  ["tools/daily.lua"] = [[return tool { "d", function() return "ran" end }]],
  ["prompts/often.lua"] = [[return prompt { "o", function() return "ran" end }]],
  ["policy/slow.lua"] = [[return limit { tools = { "slow_fill" }, rate = 5, per = 1 * hours }]],
  ["policy/quick.lua"] = [[return limit { tools = { "quick" }, rate = 20, per = 1 * seconds, burst = 1 }]],
  ["policy/each.lua"] = [[return limit { tools = { "each" }, rate = 1, per = 1 * hours, by = function(call) return call.args.who end }]],
  ["policy/often.lua"] = [[return limit { prompts = { "often" }, rate = 1, per = 90 * seconds }]],
  ["policy/daily.lua"] = [[return quota { tools = { "daily" }, most = 3, per = "day" }]],
}

describe("a limit", function()
  local g

  lazy_setup(function() g = gateway.start { scripts = scripts, workers = 2 } end)
  lazy_teardown(function() local _ <close> = g end) -- luacheck: ignore 211

  -- Enough clients that more than one worker serves them.
  local function results(name, count, arguments)
    local clients, texts = {}, {}
    for i = 1, count do clients[i] = g:client "2026-07-28" end
    for i = 1, count do texts[i] = clients[i]:result("tools/call", { name = name, arguments = arguments }).content[1].text end
    for i = 1, count do clients[i]:close() end
    return texts
  end

  local function count(texts, wanted)
    local n = 0
    for _, text in ipairs(texts) do n = n + (text == wanted and 1 or 0) end
    return n
  end

  it("admits its number of calls across all workers, and says when to come back", function()
    local texts = results("slow_fill", 12)
    assert.equal(5, count(texts, "ran"))
    assert.match("^too many calls of 'slow_fill': try again in 12 minutes$", texts[12])
  end)

  it("fills again", function()
    local c <close> = g:client "2026-07-28"
    local ran, refused, stop = 0, 0, os.time() + 10
    while (ran < 3 or refused < 1) and os.time() < stop do
      local text = c:result("tools/call", { name = "quick" }).content[1].text
      if text == "ran" then ran = ran + 1 else refused = refused + 1 end
    end
    assert.is_true(ran >= 3 and refused >= 1)
  end)

  it("counts by the key that it names", function()
    assert.equal(1, count(results("each", 3, { who = "a" }), "ran"))
    assert.equal(1, count(results("each", 3, { who = "b" }), "ran"))
  end)

  it("is an error that a program reads, where no model does", function()
    local c <close> = g:client "2026-07-28"
    assert.equal("ran", c:result("prompts/get", { name = "often" }).messages[1].content.text)
    local answer, response = c:call("prompts/get", { name = "often" })
    local err = answer.error
    assert.equal(429, response.status)
    assert.equal("90", response.headers["retry-after"])
    assert.equal("too many calls of 'often': try again in 90 seconds", err.message)
    assert.same({ reason = "rate_limited", retryAfter = 90 }, err.data)
  end)

  it("of a day is a quota", function()
    local texts = results("daily", 6)
    assert.equal(3, count(texts, "ran"))
    assert.match("^the quota of 3 calls of 'daily' in one day is used up: try again in ", texts[6])
  end)

  it("counts what it refuses", function() assert.is_true(g:status().counters.refused.rate >= 10) end)

  it("leaves nothing behind", function() assert.has_nothing_left(g) end)
end)
