-- The topics of subscriptions have a bound in all, half of which one client may take: a template makes a resource of any
-- URI.
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"

local ROOM <const> = 400000

local scripts = {
  ["auth/known.lua"] = credentials.script,
  ["resources/any.lua"] = 'return resource { "Any.", uri = "any://{name}", function(v) return v.name end }',
}

local function uri(i) return ("any://%04d%s"):format(i, ("x"):rep(1900)) end

local function topics(g)
  local status = g:status()
  return status.gauges.topic_bytes, status.counters.refused.topics
end

-- Subscribes until it is refused; the number of subscriptions, and the refusal.
local function fill(c)
  for i = 1, 1000 do
    local answer = c:call("resources/subscribe", { uri = uri(i) })
    if answer.error then return i - 1, answer.error end
  end
  error "was never refused"
end

describe("the topics that clients subscribe to", function()
  it("take a bounded amount of memory, half of it for one client, and give it back", function()
    local g <close> = gateway.start { scripts = scripts, constants = { topic_bytes = ROOM } }
    local ann <close> = g:client("2025-11-25", { token = "ann-1" })
    local count, refusal = fill(ann)
    assert.is_true(count > 20)
    assert.equal("the URIs of all subscriptions, or those of yours, take too much memory: unsubscribe from some, or try again later", refusal.message)
    local held, refused = topics(g)
    assert.is_true(held > count * 2 * 1900 and held <= ROOM / 2, held)
    assert.equal(1, refused)

    -- a second session of the same principal, which shares its limit
    local again <close> = g:client("2025-11-25", { token = "ann-1" })
    assert.truthy(again:call("resources/subscribe", { uri = uri(1) }).error)
    local late <close> = g:client("2026-07-28", { token = "ann-1" })
    local answer = late:open("subscriptions/listen", { notifications = { resourceSubscriptions = { uri(1) } } }):answer()
    assert.equal(refusal.message, answer.error.message)

    local bob <close> = g:client("2026-07-28", { token = "bob-1" })
    local list = {}
    for i = 1, 20 do list[i] = uri(i) end
    local listening = bob:open("subscriptions/listen", { notifications = { resourceSubscriptions = list } })
    listening:wait "notifications/subscriptions/acknowledged"
    assert.is_true(topics(g) > held + 20 * 3 * 1900)
    local _, of_bob = fill(g:client("2025-11-25", { token = "bob-1" }))
    assert.truthy(of_bob)

    assert.same({}, ann:result("resources/unsubscribe", { uri = uri(1) }))
    assert.same({}, ann:result("resources/subscribe", { uri = uri(1) }))
    ann:delete()
    listening:close()
    bob:close()
    g:wait_status(function(status) return status.gauges.listeners == 0 and status.gauges.topic_bytes < ROOM / 2 end)
  end)

  it("are refused before the stream opens, if a stream does not take the list of them", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { stream_queue = "64KiB" } } }
    local c <close> = g:client("2026-07-28", { token = "ann-1" })
    local list = {}
    for i = 1, 40 do list[i] = uri(i) end
    local params = { notifications = { resourceSubscriptions = list } }
    local answer, response = c:call("subscriptions/listen", params)
    assert.equal(-32602, answer.error.code)
    assert.truthy(answer.error.message:find "^the list of your subscriptions is %d+ bytes of JSON, more than a stream takes")
    assert.equal("application/json", response.headers["content-type"])
    assert.equal(0, g:status().counters.dropped.slow)
    for _ = 1, 12 do list[#list] = nil end
    c:open("subscriptions/listen", params):wait "notifications/subscriptions/acknowledged"
  end)
end)
