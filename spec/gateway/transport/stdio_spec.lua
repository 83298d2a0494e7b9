-- `moonpool stdio`: serves the same scripts to the client that started it, in every revision. Rules I-2, I-3, I-5, I-7,
-- I-10 to I-12, L-5, L-9, W-17, M-20, M-22, G-8, B-27.
local cjson = require "cjson"
local stdio = require "spec.helpers.stdio"

local scripts = {
  ["tools/add.lua"] = "--- Add two numbers.\n---@param a number\n---@param b number\nreturn function(a, b) return a + b end",
  ["tools/count.lua"] = [[return tool { "Count.", input = { to = t.integer }, function(args, call)
    for i = 1, args.to do call:progress(i, args.to) sleep(0.005) end
    return "counted"
  end }]],
  ["tools/patient.lua"] = [[return tool { "Waits long.", function(_, call)
    local gate <close> = closing(function() log.info "gate closed" end)
    call:progress(1)
    sleep(60)
    return "too late"
  end }]],
  ["tools/delete.lua"] = [[return tool { "Delete orders.", input = { n = t.integer }, function(args, call)
    local yes, why = call:elicit("sure", "Delete " .. args.n .. " orders?", { confirm = t.boolean })
    if not (yes and yes.confirm) then return nil, why or "left as it was" end
    return "deleted " .. args.n
  end }]],
  ["tools/far.lua"] = [[return tool { "Mirrored.", input = { region = t.string { header = "Region" } }, function(args) return args.region end }]],
  ["tools/loud.lua"] = [[print "printed while loading" return tool { "Prints.", function() print "printed" return "quiet" end }]],
}

local legacy = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" }
local all = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" }
local able = { elicitation = { form = { [" "] = 1 } } }
local told = { progressToken = "p" }

local function text_of(answer)
  return answer.result.content[1].text
end

local function request(id, method, params)
  return { jsonrpc = "2.0", id = id, method = method, params = params }
end

for _, revision in ipairs(all) do
  describe("a " .. revision .. " client over stdio", function()
    it("initializes, lists, calls, gets progress, and is answered in one line each", function()
      local s <close> = stdio.start { scripts = scripts, kind = "socket" }
      local c = s:client(revision)
      if revision ~= "2026-07-28" then
        assert.equal(revision, c.server.protocolVersion)
        assert.same({}, c:result "ping")
      else
        assert.same({ revision }, c:result("server/discover").supportedVersions)
      end
      assert.equal(6, #c:result("tools/list").tools)
      assert.equal("3", text_of(c:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } })))
      local call = c:open("tools/call", { name = "count", arguments = { to = 3 }, _meta = told })
      for i = 1, 3 do
        local progress = call:wait_event("notifications/progress").json.params
        assert.same({ "p", i }, { progress.progressToken, progress.progress })
      end
      assert.equal("counted", text_of(call:answer()))
      assert.equal(-32601, c:call("nothing/known").error.code)
      assert.equal(0, s:leave())
    end)

    it("cancels a call by a notification: no message about it follows, and its id is free", function()
      local s <close> = stdio.start { scripts = scripts }
      local c = s:client(revision)
      local call = c:open("tools/call", { name = "patient", _meta = told }):wait "notifications/progress"
      c:notify("notifications/cancelled", { requestId = 12345, reason = "nothing of ours" })
      c:notify("notifications/cancelled", { requestId = tostring(call.id) })
      c:notify("notifications/cancelled", { requestId = call.id, reason = "changed my mind" })
      s:wait_log "gate closed"
      s:wait_log("call cancelled", { why = "cancelled" })
      c.ids = call.id - 1
      assert.equal("3", text_of(c:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } })))
      assert.equal(0, s:leave())
    end)

    it("gets -32600 for an id that is being answered, and the first call goes on", function()
      local s <close> = stdio.start { scripts = scripts }
      local c = s:client(revision)
      local call = c:open("tools/call", { name = "count", arguments = { to = 10 }, _meta = told }):wait "notifications/progress"
      s:send(c:message "tools/list") -- the answer has another id
      local again = c:message "tools/list"
      again.id = call.id
      s:send(again)
      assert.equal(-32600, call:answer().error.code)
      for _ = 2, 10 do call:wait "notifications/progress" end
      assert.equal("counted", text_of(call:answer()))
      assert.is_table(s:expect(c.ids - 1).result)
      assert.equal(0, s:leave())
    end)
  end)
end

describe("a handler that asks the client, over stdio,", function()
  for _, revision in ipairs { "2025-06-18", "2025-11-25" } do
    it("waits for the answer in " .. revision, function()
      local s <close> = stdio.start { scripts = scripts }
      local c = s:client(revision, { capabilities = able })
      for n, reply in ipairs { { action = "accept", content = { confirm = true } }, { action = "decline" } } do
        local call = c:open("tools/call", { name = "delete", arguments = { n = n } })
        local question = s:expect "elicitation/create"
        assert.equal("Delete " .. n .. " orders?", question.params.message)
        c:post { jsonrpc = "2.0", id = question.id, result = reply }
        assert.equal(n == 1 and "deleted 1" or "declined", text_of(call:answer()))
      end
      assert.equal(0, s:leave())
    end)
  end

  it("is told at once of an answer with too many values, and the client gets no error with an id that is not its own", function()
    local s <close> = stdio.start { scripts = scripts, constants = { values = 100 } }
    local c = s:client("2025-11-25", { capabilities = able })
    local call = c:open("tools/call", { name = "delete", arguments = { n = 1 } })
    local question = s:expect "elicitation/create"
    s:send_raw(('{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"confirm":true,"all":[%s0]}}}\n'):format(
      cjson.encode(question.id), ("0,"):rep(100)))
    local answer = call:answer()
    assert.is_true(answer.result.isError)
    assert.matches("too many values", text_of(answer), 1, true)
    for _, message in ipairs(s.messages) do assert.is_true(message.json.id ~= question.id or message.json.method ~= nil, message.line) end
    assert.equal(0, s:leave())
  end)

  it("notifies the client when the question is cancelled", function()
    local s <close> = stdio.start { scripts = scripts }
    local c = s:client("2025-11-25", { capabilities = able })
    local call = c:open("tools/call", { name = "delete", arguments = { n = 1 } })
    local question = s:expect "elicitation/create"
    c:notify("notifications/cancelled", { requestId = call.id })
    assert.equal(question.id, s:expect("notifications/cancelled").params.requestId)
    c:post { jsonrpc = "2.0", id = question.id, result = { action = "decline" } } -- too late: the question is cancelled
    assert.equal(0, s:leave())
  end)

  it("ends at once when the client has closed stdin", function()
    local s <close> = stdio.start { scripts = scripts }
    local c = s:client("2025-11-25", { capabilities = able })
    local call = c:open("tools/call", { name = "delete", arguments = { n = 1 } })
    s:expect "elicitation/create"
    s:finish()
    local answer = call:answer()
    assert.is_true(answer.result.isError)
    assert.matches("the client has left", text_of(answer), 1, true)
    assert.equal(0, s:leave())
  end)

  it("runs again with the answers in 2026-07-28", function()
    local s <close> = stdio.start { scripts = scripts }
    local c = s:client("2026-07-28", { capabilities = able })
    local first = c:result("tools/call", { name = "delete", arguments = { n = 7 } })
    assert.equal("input_required", first.resultType)
    local answer = c:call("tools/call", {
      name = "delete", arguments = { n = 7 }, requestState = first.requestState,
      inputResponses = { sure = { action = "accept", content = { confirm = true } } },
    })
    assert.equal("deleted 7", text_of(answer))
    assert.equal(0, s:leave())
  end)
end)

describe("one process", function()
  it("serves stateful and stateless revisions side by side, each message by its own _meta", function()
    local s <close> = stdio.start { scripts = scripts }
    local modern = s:client "2026-07-28"
    modern.ids = 1000
    assert.equal("3", text_of(modern:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } })))
    local old = s:client "2024-11-05"
    assert.is_nil(old:result("tools/list").resultType)
    assert.equal("complete", modern:result("tools/list").resultType)
    assert.equal("3", text_of(old:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } })))
    local theirs = modern:open("tools/call", { name = "patient", _meta = told }):wait "notifications/progress"
    local both = old:message "tools/list"
    both.id = theirs.id -- one output for both calls: only the id distinguishes their answers, in every revision
    s:send(both)
    assert.equal(-32600, theirs:answer().error.code)
    old:notify("notifications/cancelled", { requestId = theirs.id })
    s:wait_log "gate closed"
    assert.equal(0, s:leave())
  end)

  it("has one session: a request before `initialize` and a second `initialize` are refused, and harm nothing", function()
    local s <close> = stdio.start { scripts = scripts }
    local c = s:client("2025-06-18", { initialize = false })
    local early = c:call "tools/list"
    assert.same({ -32600, "not_initialized" }, { early.error.code, early.error.data.reason })
    assert.same({}, c:result "ping")
    c:notify "notifications/initialized"
    local hello = { protocolVersion = "2025-06-18", capabilities = cjson.decode "{}", clientInfo = { name = "spec", version = "1" } }
    assert.equal("2025-06-18", c:result("initialize", hello).protocolVersion)
    hello.protocolVersion = "2024-11-05"
    assert.equal(-32600, c:call("initialize", hello).error.code)
    assert.equal("Count.", c:result("tools/list").tools[2].description)
    assert.equal(0, s:leave())
  end)

  it("applies the negotiated revision to messages right behind `initialize`", function()
    for _, revision in ipairs(legacy) do
      local s <close> = stdio.start { scripts = scripts }
      local hello = { protocolVersion = revision, capabilities = cjson.decode "{}", clientInfo = { name = "spec", version = "1" } }
      local call = request(2, "tools/call", { name = "far", arguments = { region = 5 } })
      s:send_raw(cjson.encode(request(1, "initialize", hello)) .. "\n" .. cjson.encode(call) .. "\n")
      assert.equal(revision, s:expect(1).result.protocolVersion)
      local refused = s:expect(2) -- the revisions report invalid arguments differently (T-5)
      assert.equal(revision == "2025-11-25", refused.result ~= nil)
      assert.equal(0, s:leave())
    end
  end)

  it("checks requests of 2026-07-28 in the order of HTTP, without the header checks", function()
    local s <close> = stdio.start { scripts = scripts }
    local c = s:client "2026-07-28"
    assert.equal("moon", text_of(c:call("tools/call", { name = "far", arguments = { region = "moon" } }))) -- I-11
    local meta = c:message("tools/list").params._meta
    local function changed(name, value)
      local copy = {}
      for key, its in pairs(meta) do copy[key] = its end
      copy["io.modelcontextprotocol/" .. name] = value
      return { _meta = copy }
    end
    s:send(request("a", "tools/list", changed("clientCapabilities", nil)))
    assert.equal(-32602, s:expect("a").error.code)
    s:send(request("b", "tools/list", changed("protocolVersion", 5)))
    assert.same({ "2026-07-28" }, s:expect("b").error.data.supported)
    for id, version in pairs { c = "2025-11-25", d = "2031-01-01" } do
      s:send(request(id, "tools/list", changed("protocolVersion", version)))
      local refused = s:expect(id).error
      assert.same({ -32022, version, { "2026-07-28" } }, { refused.code, refused.data.requested, refused.data.supported })
    end
    s:send(request("e", "initialize", changed("protocolVersion", "2026-07-28")))
    assert.equal(-32601, s:expect("e").error.code)
    s:send { jsonrpc = "2.0", method = "notifications/whatever", params = changed("clientInfo", nil) }
    assert.equal(0, s:leave())
  end)

  it("keeps what scripts print away from stdout", function()
    for _, trust in ipairs { "strict", "full" } do
      local more = { ["tools/loud.lua"] = scripts["tools/loud.lua"] }
      if trust == "full" then
        more["tools/raw.lua"] = [[return tool { "Writes.", function() io.write "written\n" io.stdout:flush() return tostring(io.read "l") end }]]
      end
      local s <close> = stdio.start { scripts = more, config = { scripts = { trust = trust } } }
      local c = s:client "2025-11-25"
      assert.equal("quiet", text_of(c:call("tools/call", { name = "loud" })))
      s:wait_log "printed"
      if trust == "full" then
        assert.equal("nil", text_of(c:call("tools/call", { name = "raw" })))
        assert.matches("written\n", s:log(), 1, true)
      end
      assert.equal(0, s:leave())
    end
  end)
end)

describe("a batch over stdio", function()
  local note = { jsonrpc = "2.0", method = "notifications/roots/list_changed" }
  local function is_array(json)
    return #json > 0
  end

  it("is answered by one array where 2025-03-26 was negotiated", function()
    local s <close> = stdio.start { scripts = scripts }
    local c = s:client "2025-03-26"
    s:send {
      request(11, "tools/call", { name = "count", arguments = { to = 2 }, _meta = told }), note, request("two", "ping"), 5,
      request(13, "initialize", {}), request("two", "ping"), { jsonrpc = "2.0", id = 99, result = {} },
    }
    for _ = 1, 2 do s:expect "notifications/progress" end
    local by_id = {}
    for _, answer in ipairs(s:expect(is_array)) do
      local id = answer.id or "none"
      by_id[id] = by_id[id] or {}
      table.insert(by_id[id], answer)
    end
    assert.equal("counted", text_of(by_id[11][1]))
    assert.equal(2, #by_id.two)
    assert.equal(-32600, by_id[13][1].error.code)
    assert.equal(-32600, by_id.none[1].error.code)
    s:send { note, note } -- this tool sends no messages
    s:send { request(21, "tools/call", { name = "patient", _meta = told }), request(22, "ping") }
    s:expect "notifications/progress"
    c:notify("notifications/cancelled", { requestId = 21 })
    assert.equal(22, s:expect(is_array)[1].id)
    local many = {}
    for i = 1, 65 do many[i] = request(i, "ping") end
    s:send(many)
    assert.equal(-32600, s:expect_error().code)
    s:send "[]"
    assert.equal(-32600, s:expect_error().code)
    assert.equal(0, s:leave())
  end)

  it("is refused in other revisions", function()
    for _, revision in ipairs { "2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28" } do
      local s <close> = stdio.start { scripts = scripts }
      local c = s:client(revision)
      s:send { c:message "tools/list" }
      assert.equal(-32600, s:expect_error().code)
      assert.is_table(c:result "tools/list")
      assert.equal(0, s:leave())
    end
  end)
end)
