-- lane: first
-- Servers on the official Python SDK that ask their client in the middle of a call. Version 2.3.0 speaks 2026-07-28, too, and
-- cannot ask so there.
local real = require "spec.helpers.real"
local upstream = require "spec.helpers.upstream"

local PATIENCE <const> = 60 -- seconds; Python starts slowly on a busy machine
local SLOW <const> = { list_wait = "60s", timeout = "60s", open = "60s", prefix = "" }

local function open(c, tool) return c:open("tools/call", { name = tool, arguments = {} }) end

for _, version in ipairs { "1.30.0", "2.3.0" } do
  for _, kind in ipairs { "stdio", "streamable-http" } do
    local name = ("python-sdk %s %s"):format(version, kind)
    describe("a server on python-sdk " .. version .. " over " .. kind, function()
      local lacks = real.lacks(name)
      if lacks then return pending(lacks) end

      -- version 2.3.0 sends nothing beside a call in 2026-07-28, which it speaks with clients that cannot be asked
      it("asks a client of 2025-11-25 for a form, and gets an answer at once to what it asks beside a call", function()
        local u <close> = real.start(name)
        local g <close> = upstream.gateway({ one = u }, { entries = { one = SLOW } })
        local c <close> = g:client("2025-11-25", { capabilities = { elicitation = { form = {} } } })
        local plain <close> = g:client("2025-11-25", { capabilities = {} })
        local stream = open(c, "ask")
        local form = stream:wait_event("elicitation/create", PATIENCE).json
        assert.equal("Who are you?", form.params.message)
        c:post { jsonrpc = "2.0", id = form.id, result = { action = "accept", content = { name = "Ada" } } }
        assert.equal("Hello, Ada", upstream.text(stream:answer(PATIENCE)))
        for _, client in ipairs(version == "1.30.0" and { c, plain } or { c }) do
          assert.equal("pong", upstream.text(open(client, "ping"):answer(PATIENCE)))
          local refused = open(client, "roots"):answer(PATIENCE) -- an error of the tool, or, of version 2.3.0, of the protocol
          assert.matches("this client declared no capability for", refused.error and refused.error.message or upstream.text(refused), 1, true)
        end
      end)
    end)
  end
end
