-- /api/streams of the admin listener: the open event streams of all workers, and their end.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local token, view = ("o"):rep(32), ("v"):rep(32)

local function api(g, method, path, bearer)
  return client.request(g, { method = method, path = path, headers = { Authorization = "Bearer " .. (bearer or token), ["moonpool-admin"] = "1" } },
    { admin = true })
end

local function start()
  return gateway.start { workers = 2, scripts = {
    ["tools/holds.lua"] = 'return tool { "Holds.", function(args, call) call:progress(1, 2, "one") sleep(300) end }',
  }, config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token }, view = { ann = view } } }, log = { audit = "audit.log" } } }
end

-- All open streams, once there are `count`.
local function streams(g, count)
  local found
  wait.for_fact(count .. " streams", 20, function()
    local answer = api(g, "GET", "/api/streams", view):json()
    found = answer.streams
    return answer.workers_without_answer == 0 and #found == count
  end)
  return found
end

describe("/api/streams", function()
  it("lists streams of each kind without whole session ids, and ends them", function()
    local g <close> = start()
    local me, old, new = g:client "2025-11-25", g:client "2024-11-05", g:client "2026-07-28"
    local stream = me:get_stream()
    stream:head()
    local listening = new:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
    listening.connection:wait_event "notifications/subscriptions/acknowledged"
    local calling = new:open("tools/call", { name = "holds", arguments = {}, _meta = { progressToken = 1 } })
    local by_kind = {}
    for _, one in ipairs(streams(g, 4)) do
      by_kind[one.kind] = one
      assert.matches("^%d+%-%d+$", one.stream)
      assert.equal("anonymous", one.principal)
      assert.is_true(one.age_ms >= 0 and one.queued_bytes >= 0)
      assert.equal(403, api(g, "DELETE", "/api/stream/" .. one.stream, view).status)
    end
    assert.is_nil(api(g, "GET", "/api/streams").body:find(me.session, 1, true))
    assert.matches("^%x%x%x%x%x%x%x%x$", by_kind.session.session)
    assert.equal("subscriptions/listen", by_kind.subscription.method)
    assert.equal("tools/call", by_kind.call.method)
    local function finish(kind)
      assert.equal(200, api(g, "DELETE", "/api/stream/" .. by_kind[kind].stream).status, kind)
      assert.equal(404, api(g, "DELETE", "/api/stream/" .. by_kind[kind].stream).status, kind)
    end
    finish "session"
    stream.connection:wait_end()
    streams(g, 3)
    local again = me:get_stream() -- the session lives on
    assert.equal(200, again:head().status)
    finish "HTTP+SSE"
    old.stream:wait_end()
    assert.equal(1, g:status().counters.sessions_closed.gone)
    finish "call"
    assert.equal("cancelled by an operator", calling:answer().error.message)
    finish "subscription"
    assert.is_table(listening:answer().error)
    streams(g, 1)
    for _, name in ipairs { "0-0", "x", "1", "99-1", "0-99999" } do assert.equal(404, api(g, "DELETE", "/api/stream/" .. name).status, name) end
    for _, query in ipairs { "page=50", "page=x", "pages=1" } do assert.equal(400, api(g, "GET", "/api/streams?" .. query).status, query) end
    wait.for_fact("the audit", 20, function() return g:file "audit.log":find '"event":"stream ended by operator"[^\n]*"caller":"token joe"' end)
    assert.equal(200, api(g, "DELETE", "/api/session/" .. by_kind.session.session).status)
    me:close()
    old:close()
    new:close()
    assert.has_nothing_left(g)
  end)

  it("has pages of 200 for each worker", function()
    local g <close> = start()
    local all = {}
    for i = 1, 410 do
      all[i] = g:client "2025-11-25"
      all[i].listening = all[i]:get_stream()
      all[i].listening:head()
    end
    local seen, count, page = {}, 0, 0
    repeat
      local answer = api(g, "GET", ("/api/streams?page=%d"):format(page)):json()
      assert.is_true(#answer.streams <= 400)
      for _, one in ipairs(answer.streams) do
        assert.is_nil(seen[one.stream])
        seen[one.stream], count = true, count + 1
      end
      page = answer.next
    until not page
    assert.equal(410, count)
    for _, me in ipairs(all) do me:close() end
  end)
end)
