-- Lists by class: an upstream that lists more for clients that it can ask shows each client the list of its class. A
-- class is read once for all its clients.
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local META <const> = "io.modelcontextprotocol/"
local KINDS <const> = { { "2025-11-25", "http" }, { "2025-06-18", "stdio" }, { "2024-11-05", "sse" }, { "2026-07-28", "http" } }

local function tool(name, description)
  return ('{"name":"%s","description":"%s","inputSchema":{"type":"object"}}'):format(name, description or name)
end

-- An upstream that lists `echo` to all, `roots` and `sample` to those that it can ask for them, and another `look` to
-- those with sampling; `shy` only to those that it can ask nothing.
local function choosy(options)
  local u = upstream.start(options)
  u:when("tools/list", function(x)
    local can = x.modern and x.meta[META .. "clientCapabilities"] or x.session.capabilities or {}
    local list = { tool "echo", tool("look", can.sampling and "samples" or "plain") }
    if can.roots then list[#list + 1] = tool "roots" end
    if can.sampling then list[#list + 1] = tool "sample" end
    if next(can) == nil then list[#list + 1] = tool "shy" end
    x:result(x:complete('{"tools":[' .. table.concat(list, ",") .. "]}", true))
  end)
  for _, name in ipairs { "roots", "sample", "shy" } do
    u.handlers[name] = function(x, reply) reply(x:complete('{"content":[{"type":"text","text":"' .. name .. '"}]}')) end
  end
  return u
end

local function listed(c)
  local names, descriptions = {}, {}
  for i, one in ipairs(c:result("tools/list").tools) do names[i], descriptions[one.name] = one.name, one.description end
  return table.concat(names, " "), descriptions
end

describe("the tools of an upstream that lists more to clients that it can ask", function()
  for _, kind in ipairs(KINDS) do
    it("are those of each client's class (" .. kind[1] .. " " .. kind[2] .. ")", function()
      local u <close> = choosy { revision = kind[1], transport = kind[2] }
      local g <close> = upstream.gateway({ one = u }, { workers = 2, entries = { one = { prefix = "" } } })
      local revisions = kind[1] == "2026-07-28" and { "2025-11-25", "2026-07-28" } or { "2025-11-25", "2024-11-05" }
      for _, revision in ipairs(revisions) do
        local none <close> = g:client(revision, { capabilities = {} })
        local some <close> = g:client(revision, { capabilities = { roots = {} } })
        local all <close> = g:client(revision, { capabilities = { roots = {}, sampling = {} } })
        for _ = 1, 2 do
          local names, descriptions = listed(none)
          assert.equal("echo look shy", names)
          assert.equal("plain", descriptions.look)
          assert.equal("echo look roots", (listed(some)))
          names, descriptions = listed(all)
          assert.equal("echo look roots sample", names)
          assert.equal("samples", descriptions.look)
        end
        assert.equal("sample", upstream.text(all:call("tools/call", { name = "sample", arguments = {} })))
        assert.equal("shy", upstream.text(none:call("tools/call", { name = "shy", arguments = {} })))
        assert.equal(-32602, some:call("tools/call", { name = "sample", arguments = {} }).error.code)
        assert.equal(-32602, all:call("tools/call", { name = "shy", arguments = {} }).error.code)
      end
      local capabilities = {}
      for _, entry in ipairs(u:all { method = "tools/list" }) do
        local can = kind[1] == "2026-07-28" and entry.json.params._meta[META .. "clientCapabilities"] or entry.session.capabilities or {}
        local key = (can.roots and "roots " or "") .. (can.sampling and "sampling" or "")
        capabilities[key] = (capabilities[key] or 0) + 1
      end
      assert.same({ [""] = 1, ["roots "] = 1, ["roots sampling"] = 1 }, capabilities)
    end)
  end

  it("can be called by a client that has not listed them", function()
    local u <close> = choosy { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { prefix = "" } } })
    local c <close> = g:client("2025-11-25", { capabilities = { roots = {} } })
    assert.equal("roots", upstream.text(c:call("tools/call", { name = "roots", arguments = {} })))
  end)

  it("are limited by `asks`, and are one list where all clients share a session", function()
    for _, entry in ipairs { { asks = "none" }, { per = "gateway" } } do
      entry.prefix = ""
      local u <close> = choosy { revision = "2025-11-25" }
      local g <close> = upstream.gateway({ one = u }, { entries = { one = entry } })
      local c <close> = g:client("2025-11-25", { capabilities = { roots = {}, sampling = {} } })
      assert.equal("echo look shy", (listed(c)))
      assert.equal(1, #u:all { method = "tools/list" })
    end
  end)

  it("use the session of the client that listed first, which ends with it", function()
    local u <close> = choosy { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { prefix = "" } } })
    local c <close> = g:client("2025-11-25", { capabilities = { roots = {} } })
    listed(c)
    upstream.text(c:call("tools/call", { name = "echo", arguments = {} }))
    assert.equal(2, u:count_sessions())
    c:delete()
    wait.for_fact("the session to end", 20, function() return u:count_sessions() == 1 end)
  end)

  it("do not keep a client waiting beyond `list_wait`: it gets the list that is known", function()
    local u <close> = choosy { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { prefix = "", list_wait = "3s" } } })
    local none <close> = g:client("2025-11-25", { capabilities = {} })
    assert.equal("echo look shy", (listed(none)))
    u:behave()
    u:when("tools/list", function() end)
    local c <close> = g:client("2025-11-25", { capabilities = { roots = {} } })
    assert.equal("echo look shy", (listed(c)))
  end)
end)
