-- A client's answer to the gateway's question resolves only that question, in the session that it was sent to. A
-- hundred sessions are asked at once and answer in reverse order; an answer to another session's question is dropped
-- and counted (B-31).
local gateway = require "spec.helpers.gateway"

local SESSIONS = 100

local scripts = { ["tools/ask.lua"] = [[return tool { "Asks its client.", function(_, call)
  local answer = try(call:sample("q", "Who are you?"))
  return answer.content.text
end }]] }

local able = { sampling = { context = {} } }

local function reply(id, text)
  return { jsonrpc = "2.0", id = id, result = { role = "assistant", model = "m", content = { type = "text", text = text } } }
end

local function unmatched(g)
  return g:status().counters.dropped.unmatched
end

for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" } do
  describe("100 sessions of " .. revision .. " whose clients are asked at once", function()
    it("each answer their own question, and no question of another session", function()
      local g <close> = gateway.start { scripts = scripts, workers = 4, config = { sessions = { per_principal = 1000 } } }
      local clients, streams, ids, seen = {}, {}, {}, {}
      for i = 1, SESSIONS do
        clients[i] = g:client(revision, { capabilities = able })
        streams[i] = clients[i]:open("tools/call", { name = "ask" })
      end
      for i = 1, SESSIONS do
        ids[i] = streams[i]:wait_event("sampling/createMessage").json.id
        assert.is_nil(seen[ids[i]])
        seen[ids[i]] = true
      end
      -- ids that are not theirs: a neighbour's id, invented ids, and the ids of their own requests
      for i = 1, SESSIONS, 10 do
        local before = unmatched(g)
        local strange = { ids[i % SESSIONS + 1], ids[i]:upper(), ids[i] .. "0", "ask-0-0", 1, "1", streams[i].id }
        for _, id in ipairs(strange) do
          assert.equal(202, clients[i]:post(reply(id, "not me")).status)
        end
        assert.equal(before + #strange, unmatched(g))
      end
      local before = unmatched(g)
      for i = SESSIONS, 1, -1 do
        assert.equal(202, clients[i]:post(reply(ids[i], "client " .. i)).status)
      end
      for i = 1, SESSIONS do
        assert.equal("client " .. i, streams[i]:answer().result.content[1].text)
      end
      assert.equal(before, unmatched(g))
      for i = 1, SESSIONS, 10 do -- a question is answered once
        assert.equal(202, clients[i]:post(reply(ids[i], "too late")).status)
      end
      assert.equal(before + SESSIONS / 10, unmatched(g))
      for _, me in ipairs(clients) do
        if me.delete then me:delete() end
        me:close()
      end
      assert.has_nothing_left(g)
    end)
  end)
end
