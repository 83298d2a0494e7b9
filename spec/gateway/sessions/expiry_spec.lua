-- When credentials expire, the event streams that they opened end; the client reconnects with new credentials. A
-- running call goes on (A-14).
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"
local resume = require "spec.helpers.resume"

local PATIENCE <const> = 20 -- seconds

local scripts = {
  ["auth/main.lua"] = credentials.script, ["tools/who.lua"] = credentials.who,
  ["tools/slow.lua"] = [[return tool { "Slow.", function(_, call)
    call:progress(1)
    while not store.get("go") do sleep(0.005) end
    call:progress(2)
    return call.principal.id
  end }]],
  ["tools/go.lua"] = [[return tool { "Go.", function() store.set("go", true) return "gone" end }]],
}

local function start(config)
  return gateway.start { scripts = scripts, config = config }
end

-- A token of `name` that is valid for five seconds at least: longer than a busy machine stands still while a spec uses
-- it.
local function short(name, serial)
  return ("%s-%d-%d"):format(name, serial or 1, os.time() + 6)
end

local function has_expired(token)
  wait.for_fact("the token to expire", PATIENCE, function() return os.time() >= tonumber(token:match "%d+$") end)
end

describe("after credentials have expired", function()
  it("every stream opened with them ends; calls continue, and so do sessions with new credentials", function()
    local g <close> = start()
    local token, all = short "ann", {}
    for i, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25" } do
      local ann = g:client(revision, { token = token })
      local own = ann:get_stream()
      assert.equal(200, own:head().status)
      all[i] = { ann = ann, own = own, slow = ann:open("tools/call", { name = "slow", _meta = { progressToken = 1 } }):wait "notifications/progress" }
    end
    -- The stream of a call that the client has resumed by GET.
    local last = all[3]
    local at = last.slow.last.id
    last.slow:hang_up()
    local resumed = resume.after(last.ann, at)
    assert.equal(200, resumed:head().status)
    -- Two other kinds of streams: that of subscriptions/listen ends with a result, that of HTTP+SSE with its session.
    local modern, legacy = g:client("2026-07-28", { token = token }), g:client("2024-11-05", { token = token })
    local listen = modern:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
    listen:wait_event "notifications/subscriptions/acknowledged"

    assert.is_table(listen:wait_event(listen.id, PATIENCE).json.result)
    listen.connection:wait_end()
    legacy.stream:wait_end(PATIENCE)
    resumed.connection:wait_end(PATIENCE)
    has_expired(token)
    for _, one in ipairs(all) do
      one.own.connection:wait_end(PATIENCE)
      assert.equal(401, select(2, credentials.ask(one.ann)))
      one.ann.token = "ann-2"
      assert.equal("user:ann", (credentials.ask(one.ann)))
      one.own = one.ann:get_stream()
      assert.equal(200, one.own:head().status)
    end
    legacy.token = "ann-2"
    assert.equal(404, legacy:post({ jsonrpc = "2.0", id = 1, method = "ping" }).status)
    local status = g:status()
    assert.same({ 6, 1, 3, 0, 0 }, { status.counters.streams_ended.expired, status.counters.sessions_closed.expired, status.gauges.sessions.http,
      status.gauges.sessions.sse, status.gauges.listeners })
    resumed = resume.after(last.ann, at)
    last.ann:result("tools/call", { name = "go" })
    assert.equal("user:ann", resumed:wait_event(last.slow.id).json.result.content[1].text)
    for i, one in ipairs(all) do
      if i < 3 then assert.equal("user:ann", one.slow:answer().result.content[1].text) end
      one.slow:close()
      one.ann:delete()
      one.ann:close()
    end
    modern:close()
    legacy:close()
    assert.has_nothing_left(g)
  end)

  it("an HTTP+SSE session ends once the answers of its calls are sent", function()
    local g <close> = start()
    local ann, bob = g:client("2024-11-05", { token = short "ann" }), g:client("2024-11-05", { token = "bob-1" })
    local slow = ann:open("tools/call", { name = "slow", _meta = { progressToken = 1 } }):wait "notifications/progress"
    has_expired(ann.token)
    assert.equal(2, g:status().gauges.sessions.sse)
    bob:result("tools/call", { name = "go" })
    assert.equal("user:ann", slow:answer().result.content[1].text)
    ann.stream:wait_end(PATIENCE)
    g:wait_status(function(status) return status.counters.sessions_closed.expired == 1 and status.gauges.sessions.sse == 1 end)
    bob:close()
    ann:close()
    assert.has_nothing_left(g)
  end)

  it("streams stay open where the configuration says keep", function()
    local g <close> = start { auth = { expired_streams = "keep" } }
    local token = short "ann"
    local legacy, ann = g:client("2024-11-05", { token = token }), g:client("2025-11-25", { token = token })
    local own = ann:get_stream()
    assert.equal(200, own:head().status)
    has_expired(token)
    wait.quietly(0.2, function()
      local status = own.connection:is_closed_by_peer() or legacy.stream:is_closed_by_peer()
      return status and "a stream ended"
    end)
    assert.same({ sse = 1, http = 1 }, g:status().gauges.sessions)
    ann.token = "ann-2"
    ann:delete()
    ann:close()
    legacy:close()
    assert.has_nothing_left(g)
  end)

  it("streams stay open when the time of expiry is far in the future", function()
    local g <close> = start()
    for _, expires in ipairs { os.time() + 86400 * 400, 9999999999999, 99999999999999999 } do
      local ann = g:client("2025-11-25", { token = ("ann-1-%d"):format(expires) })
      local own = ann:get_stream()
      assert.equal(200, own:head().status)
      assert.is_false(own.connection:is_closed_by_peer())
      ann:delete()
      ann:close()
    end
    assert.equal(0, g:status().counters.streams_ended.expired)
    assert.has_nothing_left(g)
  end)
end)
