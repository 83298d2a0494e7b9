-- What an upstream asks beside the stream of a call, on the GET stream of its session, as the Python SDK does in a tool that
-- pings its client or asks for its roots. A ping is answered, whatever the client can be asked; a question that the client
-- cannot be asked is refused at once. Nothing waits for a limit of time.
local upstream = require "spec.helpers.upstream"

local PARAMS <const> = {
  ping = "{}", ["roots/list"] = "{}",
  ["elicitation/create"] = '{"message":"?","requestedSchema":{"type":"object","properties":{}}}',
  ["sampling/createMessage"] = '{"messages":[{"role":"user","content":{"type":"text","text":"?"}}],"maxTokens":1}',
}
-- per: what the configuration says; for each, clients of other kinds share a session or have their own.
local PER <const> = { "auto", "principal", "session", "call", "gateway" }
local CLIENTS <const> = { "2024-11-05", "2025-11-25", "2026-07-28" }

-- An upstream whose tool `beside` asks what its argument says, beside the call, and answers with the message that it gets.
local function start(transport, options)
  local u = upstream.start { transport = transport, revision = "2025-11-25" }
  u:offer("tools", { "beside", "hold" })
  u.handlers.beside = function(x, reply)
    local session, method = x.session, x.arguments.method
    u.asked = u.asked + 1
    local id = '"beside' .. u.asked .. '"'
    session.questions = session.questions or {}
    session.questions[id] = function(_, text) reply(('{"content":[{"type":"text","text":%s}]}'):format(upstream.raw.quote(text))) end
    u:push(('{"jsonrpc":"2.0","id":%s,"method":"%s","params":%s}'):format(id, method, PARAMS[method]), session)
  end
  return u, { entries = { one = options } }
end

local function ask(c, method) return upstream.text(c:call("tools/call", { name = "one_beside", arguments = { method = method } })) end

for _, transport in ipairs { "http", "stdio" } do
  describe("what an upstream asks beside a call over " .. transport, function()
    for _, per in ipairs(PER) do
      it("is answered or refused at once for clients that cannot be asked (per: " .. per .. ")", function()
        local one, options = start(transport, { per = per, timeout = "60s" })
        local u <close> = one
        local g <close> = upstream.gateway({ one = u }, options)
        for _, revision in ipairs(CLIENTS) do
          local c <close> = g:client(revision, { capabilities = {} })
          for method in pairs(PARAMS) do
            local text = ask(c, method)
            if method == "ping" then
              assert.matches('"result":{}', text, 1, true)
            else
              assert.matches('"error":', text, 1, true)
              assert.matches("declared no capability", text, 1, true)
            end
          end
        end
      end)
    end

    it("is answered while many calls run", function()
      local one, options = start(transport, { timeout = "60s" })
      local u <close> = one
      local g <close> = upstream.gateway({ one = u }, options)
      local c <close> = g:client("2025-11-25", { capabilities = {} })
      for _ = 1, 3 do c:open("tools/call", { name = "one_hold", arguments = {} }) end
      u:wait_held(3)
      assert.matches('"result":{}', ask(c, "ping"), 1, true)
      assert.matches('"error":', ask(c, "roots/list"), 1, true)
      u:release()
    end)
  end)
end
