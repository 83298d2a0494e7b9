-- Upstreams that speak 2026-07-28 and an older revision. They ask in the middle of a call in the older one alone, as the
-- official SDKs do, so a client with a session that can be asked gets a session there, and every other client 2026-07-28.
local cjson = require "cjson"
local upstream = require "spec.helpers.upstream"

local FORM <const> = { "elicitation/create", { message = "Name?", requestedSchema = { type = "object", properties = { name = { type = "string" } } } } }
local NEWEST <const>, MIDDLE <const> = "2026-07-28", "2025-11-25"
local ARGUMENTS <const> = { questions = { FORM } }
local ASKABLE <const> = { { elicitation = { form = {} } }, { sampling = {} }, { roots = {} } }

-- The stub as the SDKs are: no question in the middle of a call of 2026-07-28.
local function start(transport, revision, more)
  local options = { transport = transport, revision = revision }
  for name, value in pairs(more or {}) do options[name] = value end
  local u = upstream.start(options)
  u:offer("tools", { "ask", "echo" })
  u:when("tools/call ask", function(x)
    if x.modern then return x:error(-32603, "there is no back-channel in this revision") end
    x:serve()
  end)
  return u
end

local function serve(u, entry) return upstream.gateway({ one = u }, { workers = 2, entries = { one = entry } }) end

local function call(c) return c:call("tools/call", { name = "one_echo", arguments = { n = 1 } }) end

-- The revisions in which the upstream got the calls of a tool, in order.
local function revisions(u, tool)
  local list = {}
  for i, entry in ipairs(u:all { method = "tools/call", tool = tool }) do list[i] = entry.revision end
  return list
end

local function is_asked(c)
  local stream = c:open("tools/call", { name = "one_ask", arguments = ARGUMENTS })
  local form = stream:wait_event("elicitation/create").json
  c:post { jsonrpc = "2.0", id = form.id, result = { action = "accept", content = { name = "Ann" } } }
  assert.same({ { action = "accept", content = { name = "Ann" } } }, cjson.decode(upstream.text(stream:answer(20))))
end

for _, transport in ipairs { "http", "stdio" } do
  describe("an upstream of two eras over " .. transport, function()
    it("asks a client with a session in the middle of a call", function()
      local u <close> = start(transport, { NEWEST, MIDDLE })
      local g <close> = serve(u)
      for _, revision in ipairs { "2025-06-18", MIDDLE } do
        local c <close> = g:client(revision, { capabilities = { elicitation = { form = {} } } })
        for _ = 1, 2 do is_asked(c) end
        upstream.text(call(c))
      end
      assert.same({ MIDDLE, MIDDLE, MIDDLE, MIDDLE }, revisions(u, "ask"))
      assert.same({ MIDDLE, MIDDLE }, revisions(u, "echo"))
    end)

    it("is spoken to in 2026-07-28 for every client that cannot be asked, or asked in the middle of a call", function()
      local u <close> = start(transport, { NEWEST, MIDDLE })
      local g <close> = serve(u)
      for _, one in ipairs { { MIDDLE, {} }, { "2025-03-26", {} }, { NEWEST, { elicitation = { form = {} } } } } do
        local c <close> = g:client(one[1], { capabilities = one[2] })
        upstream.text(call(c))
      end
      assert.same({ NEWEST, NEWEST, NEWEST }, revisions(u, "echo"))
      assert.equal(0, #u:all { method = "initialize" })
    end)

    it("gets a session for each kind of question, and the capabilities of its client alone", function()
      local u <close> = start(transport, { NEWEST, MIDDLE })
      local g <close> = serve(u)
      for _, capabilities in ipairs(ASKABLE) do
        local c <close> = g:client(MIDDLE, { capabilities = capabilities })
        upstream.text(call(c))
      end
      assert.same({ MIDDLE, MIDDLE, MIDDLE }, revisions(u, "echo"))
      for i, entry in ipairs(u:all { method = "initialize" }) do
        local name = next(entry.json.params.capabilities)
        assert.equal(next(ASKABLE[i]), name)
        assert.is_nil(next(entry.json.params.capabilities, name))
      end
    end)

    it("is spoken to as the configuration says, and without a session where it shares what clients have", function()
      for _, entry in ipairs { { revision = "modern" }, { per = "gateway" }, { asks = "none" } } do
        local u <close> = start(transport, { NEWEST, MIDDLE })
        local g <close> = serve(u, entry)
        local c <close> = g:client(MIDDLE, { capabilities = ASKABLE[1] })
        upstream.text(call(c))
        assert.same({ NEWEST }, revisions(u, "echo"))
      end
    end)
  end)

  describe("an upstream of 2026-07-28 alone over " .. transport, function()
    it("is asked once whether it opens sessions", function()
      local u <close> = start(transport, NEWEST)
      local g <close> = serve(u)
      for _ = 1, 3 do
        local c <close> = g:client(MIDDLE, { capabilities = ASKABLE[1] })
        for _ = 1, 2 do upstream.text(call(c)) end
      end
      assert.equal(1, #u:all { method = "initialize" })
      assert.same({ NEWEST, NEWEST, NEWEST, NEWEST, NEWEST, NEWEST }, revisions(u, "echo"))
    end)
  end)
end

describe("an upstream of two eras", function()
  it("is spoken to in 2026-07-28 where it opens sessions without an id", function()
    local u <close> = start("http", { NEWEST, MIDDLE }, { sessions = false })
    local g <close> = serve(u)
    for _ = 1, 2 do
      local c <close> = g:client(MIDDLE, { capabilities = ASKABLE[1] })
      upstream.text(call(c))
    end
    assert.same({ NEWEST, NEWEST }, revisions(u, "echo"))
    assert.equal(1, #u:all { method = "initialize" })
  end)

  it("that answers `initialize` with 500 is spoken to in 2026-07-28", function()
    local u <close> = start("http", { NEWEST, MIDDLE })
    local g <close> = serve(u)
    u:when("initialize", function(x) x:http(500, {}, "") end)
    local c <close> = g:client(MIDDLE, { capabilities = ASKABLE[1] })
    upstream.text(call(c))
    assert.same({ NEWEST }, revisions(u, "echo"))
  end)
end)
