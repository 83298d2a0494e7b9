-- `concurrency` of a tool: no more calls of it run at once in a worker; a turn ends with its call, however that ends.
local gateway = require "spec.helpers.gateway"

local scripts = {
  ["tools/one.lua"] = [[
    local running, most = 0, 0
    return tool { "One at a time.", concurrency = 1, timeout = 20, input = { how = t.string, n = t.integer { default = 0 } }, function(args)
      running = running + 1
      most = math.max(most, running)
      local _ <close> = closing(function() running = running - 1 end)
      log.info("runs", { n = args.n })
      if args.how == "hold" then sleep(60) end
      if args.how == "fail" then fail "no" end
      if args.how == "break" then error "broken" end
      if args.how == "spin" then while true do end end
      sleep(0.01)
      return "most " .. most
    end }]],
  ["tools/short.lua"] = [[return tool { "Short.", concurrency = 1, timeout = 0.3, function() sleep(60) end }]],
  ["tools/ok.lua"] = [[return tool { "Ok.", function() return "ok" end }]],
}

describe("concurrency", function()
  local g

  lazy_setup(function() g = gateway.start { scripts = scripts, workers = 1, config = { limits = { call = { cpu = "200ms" } } } } end)
  lazy_teardown(function() local _ <close> = g end) -- luacheck: ignore 211

  local function one(c, how, n) return c:open("tools/call", { name = "one", arguments = { how = how, n = n } }) end

  it("lets the others wait, in order, and lets other tools run", function()
    local c <close> = g:client "2026-07-28"
    local holder = one(c, "hold", 100)
    g:wait_log("runs", { n = "100" })
    local streams = {}
    for i = 1, 20 do
      streams[i] = one(c, "run", i)
      g:wait_status(function(status) return status.gauges.requests_in_flight == i + 1 end)
    end
    assert.equal("ok", c:result("tools/call", { name = "ok" }).content[1].text)
    holder:hang_up()
    local place = 1
    for i = 1, 20 do
      assert.equal("most 1", streams[i]:answer().result.content[1].text)
      place = assert(g:log():find(" n=" .. i .. "%f[%D]", place), "call " .. i .. " ran out of order")
    end
  end)

  for _, how in ipairs { "fail", "break", "spin" } do
    it("has the turn back after one that ends by " .. how, function()
      local c <close> = g:client "2026-07-28"
      for _ = 1, 3 do
        local answer = one(c, how):answer()
        assert.truthy(answer.error or answer.result.isError)
      end
      assert.equal("most 1", one(c, "run"):answer().result.content[1].text)
    end)
  end

  it("has the turn back after one that was called off, while it ran or while it waited", function()
    local c <close> = g:client "2026-07-28"
    local streams = {}
    for i = 1, 6 do streams[i] = one(c, "hold") end
    g:wait_status(function(status) return status.gauges.requests_in_flight == 6 end)
    for _, i in ipairs { 4, 1, 2, 6, 5, 3 } do streams[i]:hang_up() end
    assert.equal("most 1", one(c, "run"):answer().result.content[1].text)
  end)

  it("counts the wait as the call's time", function()
    local c <close> = g:client "2026-07-28"
    local streams = {}
    for i = 1, 3 do streams[i] = c:open("tools/call", { name = "short" }) end
    for i = 1, 3 do assert.equal("the call took too long", streams[i]:answer().error.message) end
  end)

  it("leaves nothing behind", function() assert.is_empty_house(g) end)
end)
