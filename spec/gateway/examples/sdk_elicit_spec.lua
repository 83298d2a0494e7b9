-- One handler that asks its user twice, with the official TypeScript SDKs: whichever worker or process gets a round, it
-- continues with the earlier answers, and a `once` block runs once. Rules V-1 to V-10.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local talk = require "spec.helpers.talk"
local wait = require "spec.helpers.wait"

-- A worker's name is the address of a table in its own Lua state, which lives as long as the worker.
local scripts = {
  ["lib/here.lua"] = [[
local here = {}
here.name = tostring(here)
return here]],
  ["tools/where.lua"] = [[return tool { "Whose connection this is.", function() return require("here").name end }]],
  ["tools/order.lua"] = [[
local here = require "here"

local counts = { reserved = 0, paid = 0 }
local function count(what)
  counts[what] = counts[what] + 1
  log.info(what, { worker = here.name })
  return { worker = here.name, count = counts[what] }
end

return tool {
  "Order a shirt.",
  function(_, call)
    log.info("run", { worker = here.name })
    local reserved = call:once("reserve", function() return count "reserved" end)
    local size = try(call:elicit("size", "What size?", { size = t.one_of { "S", "M", "L" } }))
    local paid = call:once("pay", function() return count "paid" end)
    local colour = try(call:elicit("colour", "And " .. size.size .. " in which colour?", { colour = t.string }))
    return { size = size.size, colour = colour.colour, reserved = reserved, paid = paid, worker = here.name }
  end,
}]],
}

-- The workers that logged this event, in the order of the lines, once there are `count` lines.
local function workers(g, event, count)
  return wait.for_fact(("%d lines '%s' in the log"):format(count, event), 20, function()
    local list = {}
    for _, line in ipairs(g:log_lines()) do
      if line.event == event then list[#list + 1] = line.fields.worker end
    end
    return #list >= count and list
  end)
end

local function messages(user)
  local list = {}
  for i, fact in ipairs(user:all "asked") do list[i] = fact.message end
  return list
end

-- The placed order, without the fields that depend on the worker.
local function ordered(user)
  local fact = user:wait_fact "ordered"
  assert.is_false(fact.isError, fact.text)
  local result = cjson.decode(fact.text)
  assert.same({ "What size?", "And M in which colour?" }, messages(user))
  assert.same({ "M", "teal", 1, 1 }, { result.size, result.colour, result.reserved.count, result.paid.count })
  return result
end

-- The workers of each call and answer: two workers, in turn.
local function sent(user, whats)
  local list = {}
  for i, fact in ipairs(user:all "sent") do
    assert.same({ whats[i], true }, { fact.what, fact.reused })
    list[i] = fact.worker
  end
  assert.equal(#whats, #list)
  assert.not_equal(list[1], list[2])
  assert.equal(list[1], list[3])
  return list
end

describe("a handler that asks twice", function()
  for _, how in ipairs { { "Streamable HTTP", "http" }, { "HTTP+SSE", "sse" } } do
    it("waits for the answers of SDK 1.x over " .. how[1] .. ", whichever worker they come to", function()
      local g <close> = gateway.start { scripts = scripts, workers = 2 }
      local user <close> = talk.start("elicit1.mjs", { how[2], how[2] == "sse" and g.sse_url or g.url })
      local result = ordered(user)
      user:finish()
      assert.equal(how[2] == "http", user:wait_fact("connected").session)
      local went = sent(user, { "tools/call", "answer", "answer" })
      assert.same({ result.worker }, workers(g, "run", 1))
      -- the two answers reached different workers, and one of them ran the handler
      assert(result.worker == went[1] or result.worker == went[2])
      assert.same({ result.worker }, workers(g, "reserved", 1))
      assert.same({ result.worker }, workers(g, "paid", 1))
      assert.has_nothing_left(g)
    end)
  end

  it("runs again on the other worker for each answer of SDK 2.x", function()
    local g <close> = gateway.start { scripts = scripts, workers = 2 }
    local user <close> = talk.start("elicit2.mjs", { g.url })
    local result = ordered(user)
    user:finish()
    assert.equal("2026-07-28", user:wait_fact("connected").revision)
    local went = sent(user, { "tools/call", "tools/call", "tools/call" })
    assert.same(went, workers(g, "run", #went))
    assert.same({ went[1] }, workers(g, "reserved", 1))
    assert.same({ went[2] }, workers(g, "paid", 1))
    assert.same({ went[1], went[2], went[3] }, { result.reserved.worker, result.paid.worker, result.worker })
    assert.has_nothing_left(g)
  end)

  it("runs again in a new process for each answer of SDK 2.x, the gateway having been restarted in between", function()
    local function start(listen)
      return gateway.start { scripts = scripts, config = { listen = listen, seal_keys = { "a secret that outlives the process" } } }
    end
    local first <close> = start "127.0.0.1:0"
    local address = "127.0.0.1:" .. first.port
    local user <close> = talk.start("elicit2.mjs", { first.url, "--wait" })
    user:wait_fact "asked"
    first:stop()
    local second <close> = start(address)
    user:say "go"
    user:wait_fact("asked", 2)
    second:stop()
    local third <close> = start(address)
    user:say "go"
    ordered(user)
    user:finish()
    local wanted = { { 1, 1, 0 }, { 1, 0, 1 }, { 1, 0, 0 } }
    for i, g in ipairs { first, second, third } do
      local counts = {}
      for k, event in ipairs { "run", "reserved", "paid" } do counts[k] = #workers(g, event, wanted[i][k]) end
      assert.same(wanted[i], counts)
    end
    assert.has_nothing_left(third)
  end)
end)
