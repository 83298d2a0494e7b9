-- Clients whose roots change: the upstreams that have asked for them are told, each on the channel of that client.
-- pairs: roots that change; clients 2025-06-18..2025-11-25; upstreams 2024-11-05 sse
-- pairs: roots that change; clients 2025-06-18..2025-11-25; upstreams 2025-11-25 http
-- pairs: roots that change; clients 2025-06-18..2025-11-25; upstreams 2025-06-18 stdio
local upstream = require "spec.helpers.upstream"

local CHANGED <const> = "notifications/roots/list_changed"

-- Calls the tool `ask`, which asks for the roots, and answers the question.
local function ask_roots(c, name)
  local stream = c:open("tools/call", { name = name, arguments = { questions = { { "roots/list", {} } } } })
  local question = stream:wait_event("roots/list", 20).json
  c:post { jsonrpc = "2.0", id = question.id, result = { roots = { { uri = "file:///home" } } } }
  assert.is_truthy(upstream.text(stream:answer(20)):find("file:///home", 1, true))
end

-- What the upstream received before its tool `mark` was called.
local function changes_before_mark(u, c, name)
  local before = #u:all { tool = "mark" }
  upstream.text(c:call("tools/call", { name = name, arguments = {} }))
  u:wait({ tool = "mark" }, before + 1)
  return #u:all { method = CHANGED }
end

for _, row in ipairs(upstream.kinds()) do
  if row[1] == "2026-07-28" then goto continue end -- a stateless upstream gets no notification about roots
  describe(("roots that change, before an upstream of %s over %s"):format(row[1], row[2]), function()
    it("are told to an upstream that has asked for them, on the session's own channel", function()
      local one <close> = upstream.start { revision = row[1], transport = row[2] }
      local two <close> = upstream.start { revision = "2025-11-25" }
      for _, u in ipairs { one, two } do u:offer("tools", { "ask", "mark" }) end
      local g <close> = upstream.gateway({ one = one, two = two }, { workers = 2 })
      for i, revision in ipairs { "2025-06-18", "2025-11-25" } do
        local c <close> = g:client(revision, { capabilities = { roots = { listChanged = true } } })
        local other <close> = g:client(revision, { capabilities = { roots = {} } })
        ask_roots(c, "one_ask")
        upstream.text(c:call("tools/call", { name = "two_mark", arguments = {} }))
        ask_roots(other, "one_ask")
        local before = #one:all { method = CHANGED }
        for _ = 1, 3 do c:notify(CHANGED) end
        local told = one:wait({ method = CHANGED }, before + 1)
        local asked
        for _, entry in ipairs(one:all { tool = "ask" }) do
          if entry.session == told.session then asked = entry end
        end
        assert.is_table(asked, "the session that has asked")
        assert.same({ listChanged = true }, told.session.capabilities.roots)
        local count = changes_before_mark(one, c, "one_mark")
        -- notifications in quick succession may be merged into one
        assert.is_true(count >= i and count <= 3 * i, count .. " notifications")
        local declared = {}
        for _, entry in ipairs(one:all { method = "initialize" }) do
          local roots = entry.json.params.capabilities.roots
          if roots then declared[tostring(roots.listChanged)] = true end
        end
        assert.same({ ["true"] = true, ["nil"] = true }, declared)
      end
      assert.equal(0, #two:all { method = CHANGED })
    end)
  end)
  ::continue::
end

describe("roots that change", function()
  it("are told to no upstream that has not asked, and to none on a channel that was lost since", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", { "ask", "mark" })
    local g <close> = upstream.gateway({ one = u }, { workers = 1 })
    local c <close> = g:client("2025-11-25", { capabilities = { roots = { listChanged = true } } })
    upstream.text(c:call("tools/call", { name = "one_mark", arguments = {} }))
    c:notify(CHANGED)
    assert.equal(0, changes_before_mark(u, c, "one_mark"))
    ask_roots(c, "one_ask")
    u:lose_sessions "404"
    -- this call opens another session at the upstream
    upstream.text(c:call("tools/call", { name = "one_mark", arguments = {} }))
    c:notify(CHANGED)
    ask_roots(c, "one_ask")
    c:notify(CHANGED)
    u:wait { method = CHANGED }
    local sessions = {}
    for _, entry in ipairs(u:all { method = CHANGED }) do sessions[#sessions + 1] = entry.session end
    assert.equal(u:all({ tool = "ask" })[2].session, sessions[1])
    g:wait_status(function(status) return status.gauges.tasks == 0 end)
  end)
end)
