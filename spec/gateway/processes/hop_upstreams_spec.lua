-- What calls over a hop need of the client's request and of what an earlier run has kept: tokens for upstreams, parked
-- questions, challenges.
local exchanging = require "spec.helpers.exchanging"
local processes = require "spec.helpers.processes"
local scoped = require "spec.helpers.scoped"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local two, move = processes.two, processes.move

local FORM <const> = { message = "Name?", requestedSchema = { type = "object", properties = { name = { type = "string" } } } }
local ANN <const> = { ["elicitation-1"] = { action = "accept", content = { name = "Ann" } } }

describe("an upstream with a token of each caller", function()
  it("gets it for calls that another process serves, and no process shows it", function()
    local state = {}
    local as <close> = exchanging.server(state)
    local u <close> = exchanging.guarded(state)
    local exchange = { token_url = as.url .. "/token", client = "moonpool", secret = exchanging.SECRET, audience = "https://crm.example.com" }
    local tokens = { ann = exchanging.token "ann", bob = exchanging.token "bob" }
    local _ <close>, old, new, kept = two {
      scripts = { ["auth/main.lua"] = exchanging.script },
      config = { log = { level = "debug" }, upstreams = upstream.entries({ crm = u }, { crm = { prefix = "crm_", auth = { exchange = exchange } } }) },
      before = function(g)
        local list = {}
        for i, revision in ipairs { "2025-11-25", "2024-11-05", "2026-07-28" } do
          list[i] = g:client(revision, { token = i == 1 and tokens.ann or tokens.bob })
        end
        return list
      end,
    }
    for i, sub in ipairs { "ann", "bob", "bob" } do
      -- the third client stays connected to the old process, which sends its calls on to the new one
      local c = i < 3 and move(kept[i], new) or kept[i]
      for _ = 1, 2 do assert.truthy(upstream.text(c:call("tools/call", { name = "crm_counter" }))) end
      assert.equal(sub, u:all({ kind = "request" })[#u:all { kind = "request" }].sub)
    end
    for _, g in ipairs { old, new } do
      local shown = g:log() .. g:admin("/metrics").body
      for _, secret in ipairs { tokens.ann, tokens.bob, exchanging.SECRET } do assert.is_nil(shown:find(secret, 1, true)) end
    end
    for _, c in ipairs(kept) do c:close() end
  end)
end)

describe("a question of an upstream in a stateless call", function()
  local function ask(c)
    local params = { name = "one_ask", arguments = { questions = { { "elicitation/create", FORM } } } }
    local result = c:result("tools/call", params)
    assert.equal("input_required", result.resultType)
    params.requestState, params.inputResponses = result.requestState, ANN
    return params
  end

  it("is answered by way of any process, in the one that asked", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", { "ask" })
    local function open(g) return g:client("2026-07-28", { capabilities = { elicitation = { form = {} } } }) end
    local p <close>, old, new, kept = two {
      config = { upstreams = upstream.entries { one = u } },
      before = function(g) return { c = open(g), ask(open(g)), ask(open(g)) } end,
    }
    assert.equal(2, old:status().gauges.upstream_pending)
    local third = p:start { config = { upstreams = upstream.entries { one = u } } }
    p:is_newest(third)
    local c = kept.c
    -- once through the newest process, and once on a connection to the process that has the exchange
    for i, at in ipairs { third, old } do
      local answer = move(c, at):result("tools/call", kept[i])
      assert.equal("complete", answer.resultType)
      assert.truthy(answer.content[1].text:find("Ann", 1, true), answer.content[1].text)
    end
    old:wait_status(function(status) return status.gauges.upstream_pending == 0 end)
    local params = ask(move(c, third))
    assert.equal(1, third:status().gauges.upstream_pending)
    -- the retry goes to an older process, which has not sent the question
    assert.equal("complete", move(c, new):result("tools/call", params).resultType)
    third:wait_status(function(status) return status.gauges.upstream_pending == 0 end)
    c:close()
  end)

  it("of a process that has ended is stale, and a forged id before a state leads nowhere", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", { "ask" })
    local p <close>, old, new, params = two {
      config = { upstreams = upstream.entries { one = u }, seal_keys = { ("k"):rep(40) } },
      before = function(g) return ask(g:client("2026-07-28", { capabilities = { elicitation = { form = {} } } })) end,
    }
    local c <close> = new:client("2026-07-28", { capabilities = { elicitation = { form = {} } } })
    local own = ask(c)
    local state = params.requestState
    for _, forged in ipairs {
      ("0"):rep(36) .. state:sub(37), own.requestState:sub(1, 37) .. state:sub(38), state:sub(38), state:sub(1, 36), state .. ".x", ".",
    } do
      params.requestState = forged
      local refused = c:call("tools/call", params).error
      assert.equal(-32602, refused.code, refused.message)
    end
    params.requestState = state
    old:stop()
    wait.for_fact("the old process to be forgotten", 20, function() return pcall(p.settle, p) end)
    local refused = c:call("tools/call", params).error
    assert.equal(-32602, refused.code, refused.message)
    assert.equal("complete", c:result("tools/call", own).resultType)
  end)
end)

describe("a challenge of the process that serves", function()
  it("reaches the client, and names the place as the client sees it", function()
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      local _ <close>, old, new, c = two { scripts = scoped.scripts, before = function(g) return g:client(revision, { token = "bob" }) end }
      local edge = revision == "2026-07-28" and old or new
      local answer, response = move(c, edge):call("tools/call", { name = "orders_write" })
      assert.equal(403, response.status)
      assert.equal(-32602, answer.error.code)
      local challenge = response.headers["www-authenticate"]
      assert.truthy(challenge:find('error="insufficient_scope"', 1, true), challenge)
      assert.truthy(challenge:find('scope="orders:write"', 1, true), challenge)
      assert.truthy(challenge:find(('"http://127.0.0.1:%d/.well-known/oauth-protected-resource/mcp"'):format(edge.port), 1, true), challenge)
      c:close()
    end
  end)
end)
