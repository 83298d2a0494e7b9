-- A redirect that keeps method and body (307, 308) is followed where it stays at the origin of the URL, as that of
-- /mcp to /mcp/. Any other is a failure, which says where the server is.
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"

-- An upstream whose URL answers with a redirect.
local function moved(revision, status, location)
  local u = upstream.start { revision = revision, path = "/mcp/" }
  u.redirected = 0
  u:answer_all(function(request, reply)
    if request.path == "/mcp/" then return false end
    u.redirected = u.redirected + 1
    reply:send(status, { location = location or u.web.url .. "/mcp/" }, "")
    return true
  end)
  u.entry.url = u.web.url .. "/mcp"
  return u
end

describe("an upstream whose URL is redirected", function()
  for _, revision in ipairs(upstream.revisions) do
    if revision ~= "2024-11-05" then
      for status, location in pairs { [307] = "/mcp/", [308] = false } do
        it(("is called by %d, in %s"):format(status, revision), function()
          local u <close> = moved(revision, status, location or nil)
          local g <close> = upstream.gateway { one = u }
          for _, asked in ipairs { "2025-06-18", "2026-07-28" } do
            local c <close> = g:client(asked)
            for n = 1, 3 do
              assert.equal(('{"n":%d}'):format(n), upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = n } })))
            end
          end
          assert.equal(6, u:ran "echo")
          assert.is_true(u.redirected >= 6)
        end)
      end
    end
  end

  for status, location in pairs { [307] = "/messages", [308] = false } do
    it(("is called by %d over HTTP+SSE, where the addresses of the stream and of the messages are"):format(status), function()
      local u <close> = upstream.start { revision = "2024-11-05", transport = "sse", endpoint = "/in/messages?session_id=%s" }
      local redirected = { GET = 0, POST = 0 }
      u:answer_all(function(request, reply)
        local at = request.method == "GET" and "/sse/" or "/in/messages"
        if request.path ~= at then return false end
        redirected[request.method] = redirected[request.method] + 1
        local to = request.method == "GET" and "/sse" or (location or u.web.url .. "/messages") .. "?" .. request.query
        reply:send(status, { location = to }, "")
        return true
      end)
      u.entry.url = u.web.url .. "/sse/"
      local g <close> = upstream.gateway { one = u }
      local c <close> = g:client "2025-11-25"
      for n = 1, 3 do
        assert.equal(('{"n":%d}'):format(n), upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = n } })))
      end
      assert.equal(3, u:ran "echo")
      assert.is_true(redirected.GET >= 1 and redirected.POST >= 3)
    end)
  end

  for what, row in pairs {
    ["elsewhere"] = { 307, "http://127.0.0.1:9/mcp?key=hunter2", "Location: http://127.0.0.1:9/mcp)" },
    ["with another method"] = { 302, "/mcp/", "Location: /mcp/)" }, ["in a circle"] = { 308, "/mcp", "Location: /mcp)" },
    ["to where a password is"] = { 308, "http://ann:hunter2@127.0.0.1/mcp", "HTTP status 308)" },
  } do
    it(what .. " is not followed, and doctor and log say where it leads", function()
      local u <close> = moved("2025-06-18", row[1], row[2])
      local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = {} }) })
      local line = g:wait_log("upstream lists cannot be read", { upstream = "one" }, 20)
      assert.matches(row[3], line.text, 1, true)
      local code, out, err = gateway.exec { "doctor", u.entry.url }
      assert.equal(1, code)
      assert.matches(row[3], out .. err, 1, true)
      assert.is_nil((g:log() .. out .. err):find("hunter2", 1, true))
    end)
  end
end)
