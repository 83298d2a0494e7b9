-- Members `dev.moonpool/…` of `_meta` say something only if this gateway has written them: those of clients go to no
-- upstream, those of upstreams to no client. Others pass.
local cjson = require "cjson.safe"
local client = require "spec.helpers.client"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local OWN <const> = '"dev.moonpool/channel":"new","dev.moonpool/hops":"h","dev.moonpool/x":{"a":1},"other.example/y":2'
-- keys may be written with escapes
local ESCAPED <const> = '"\\u0064ev.moonpool/channel":"new","dev.moonpool\\/x":3,"io.modelcontextprotoco\\u006c/z":4,"other.example/y":2'

local function has_own(text) return text:find("moonpool[/\\]") or text:find("\\u0064ev", 1, true) or text:find("protoco\\u006c", 1, true) end

-- A call of the tool `echo` with these members of `_meta`, as bytes: the result.
local function call(c, members)
  local message = c:message("tools/call", { name = "one_echo", arguments = { n = 1 } })
  local whole = cjson.encode(message)
  local changed
  if whole:find('"_meta":{', 1, true) then
    changed = whole:gsub('"_meta":{', function() return '"_meta":{' .. members .. "," end, 1)
  else
    changed = whole:gsub('"params":{', function() return '"params":{"_meta":{' .. members .. "}," end, 1)
  end
  local headers = c:headers(message)
  headers["content-type"] = "application/json"
  return client.request(c.gateway, { method = "POST", path = "/mcp", headers = headers, body = changed })
end

for _, kind in ipairs(upstream.kinds()) do
  describe(("an upstream of %s over %s"):format(kind[1], kind[2]), function()
    it("gets none of the gateway's members from a client, in the first call and in quick ones", function()
      local u <close> = upstream.start { revision = kind[1], transport = kind[2] }
      local g <close> = upstream.gateway({ one = u }, { workers = 1 })
      for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
        local c <close> = g:client(revision)
        for round = 1, 3 do
          for _, members in ipairs { OWN, ESCAPED } do
            local before = #u:all { method = "tools/call" }
            local answer = call(c, members)
            assert.equal(200, answer.status)
            local got = u:wait({ method = "tools/call" }, before + 1)
            assert.is_falsy(has_own(got.text), round .. ": " .. got.text)
            assert.truthy(got.text:find('"other.example/y":2', 1, true), got.text)
          end
        end
      end
    end)

    it("cannot give them to a client in a result, a definition or a question", function()
      local u <close> = upstream.start { revision = kind[1], transport = kind[2] }
      local definition = '{"name":"marked","inputSchema":{"type":"object"},"_meta":{' .. OWN .. "}}"
      u:offer("tools", { "echo", definition })
      local g <close> = upstream.gateway({ one = u }, { workers = 1 })
      for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
        local c <close> = g:client(revision)
        for _ = 1, 3 do
          for _, members in ipairs { OWN, ESCAPED } do
            u:when("tools/call echo", function(x) x:result(x:complete('{"content":[],"_meta":{' .. members .. "}}")) end, 1)
            local meta = c:result("tools/call", { name = "one_echo", arguments = {} })._meta
            assert.equal(2, meta["other.example/y"])
            for name in pairs(meta) do assert.is_nil(name:find "^dev%.moonpool") end
          end
        end
        for _, tool in ipairs(c:result("tools/list").tools) do
          local meta = tool._meta or {}
          if tool.name == "one_marked" then assert.equal(2, meta["other.example/y"]) end
          for name in pairs(meta) do assert.is_nil(name:find "^dev%.moonpool") end
        end
      end
    end)
  end)
end

describe("a question of an upstream and its answer", function()
  it("have none of the gateway's members on the other side", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", { "ask" })
    local params = '{"message":"Name?","requestedSchema":{"type":"object","properties":{}},"_meta":{' .. OWN .. "}}"
    local answered
    u.handlers.ask = function(x, reply)
      x:ask("elicitation/create", params, function(_, text)
        answered = text
        reply(x:complete '{"content":[]}')
      end)
    end
    local g <close> = upstream.gateway({ one = u }, { workers = 1 })
    local c <close> = g:client("2025-11-25", { capabilities = { elicitation = { form = {} } } })
    local stream = c:open("tools/call", { name = "one_ask", arguments = {} })
    local form = stream:wait_event("elicitation/create").json
    assert.same({ ["other.example/y"] = 2 }, form.params._meta)
    c:post { jsonrpc = "2.0", id = form.id, result = { action = "accept", content = {}, _meta = { ["dev.moonpool/x"] = 1, ["other.example/y"] = 3 } } }
    assert.is_table(stream:answer(20).result)
    assert.is_falsy(has_own(answered), answered)
    assert.truthy(answered:find('"other.example/y":3', 1, true), answered)
    local modern <close> = g:client("2026-07-28", { capabilities = { elicitation = { form = {} } } })
    local result = modern:result("tools/call", { name = "one_ask", arguments = {} })
    local key, question = next(result.inputRequests)
    assert.same({ ["other.example/y"] = 2 }, question.params._meta)
    answered = nil
    modern:result("tools/call", { name = "one_ask", arguments = {}, requestState = result.requestState,
      inputResponses = { [key] = { action = "accept", content = {}, _meta = { ["dev.moonpool/x"] = 1 } } } })
    wait.for_fact("the answer", 20, function() return answered end)
    assert.is_falsy(has_own(answered), answered)
  end)
end)
