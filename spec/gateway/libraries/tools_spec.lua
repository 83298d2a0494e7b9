-- A tool as its clients see it: the results of its handler, its failures, its questions, and its entry in the list.
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

local OLD = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" }
local ALL = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" }

local function tool(body, head)
  return ("return tool { %q, %s\n function(args, call) %s end }"):format("It.", head or "", body)
end

local function leave(me)
  if me.delete then
    me:delete()
  end
  me:close()
end

-- Runs `story(me, revision)` with a client of each revision, against one gateway.
local function for_each(revisions, scripts, story, options)
  options = options or {}
  options.scripts = scripts
  local g <close> = gateway.start(options)
  for _, revision in ipairs(revisions) do
    local me = g:client(revision)
    story(me, revision, g)
    leave(me)
  end
  assert.has_nothing_left(g)
end

local function call(me, name, arguments)
  return me:result("tools/call", { name = name, arguments = arguments })
end

-- -- returning ---------------------------------------------------------------------------------------------------------

-- Each row: the code of the handler, and the text that the client gets.
local texts = {
  { 'return "hello"', "hello" }, { 'return ""', "" }, { 'return "ü\\n\\0"', "ü\n\0" },
  { "return 3", "3" }, { "return 3.0", "3" }, { "return 0.1", "0.1" }, { "return 9007199254740993", "9007199254740993" },
  { "return 1e300 * 10", "1e+301" }, { "return true", "true" }, { "return false", "false" }, { 'return text "said"', "said" },
}

local tables = {
  { "return { sum = 3, parts = { 1, 2 } }", '{"parts":[1,2],"sum":3}' },
  { "return { n = 1.0, i = 1, empty = {}, none = json.array {}, null = json.null }", '{"empty":{},"i":1,"n":1.0,"none":[],"null":null}' },
}

describe("what a handler returns", function()
  it("is text when it is a string, a number or a boolean", function()
    local scripts = {}
    for i, row in ipairs(texts) do
      scripts["tools/t" .. i .. ".lua"] = tool(row[1])
    end
    for_each(ALL, scripts, function(me)
      for i, row in ipairs(texts) do
        local result = call(me, "t" .. i)
        assert.same({ { type = "text", text = row[2] } }, result.content, row[1])
        assert.is_nil(result.isError)
        assert.is_nil(result.structuredContent)
      end
    end)
  end)

  it("is structured when it is a table, with the same JSON as text; older eras get the text", function()
    local scripts = { ["tools/list.lua"] = tool "return { 1, 2 }" }
    for i, row in ipairs(tables) do
      scripts["tools/t" .. i .. ".lua"] = tool(row[1])
    end
    for_each(ALL, scripts, function(me, revision)
      for i, row in ipairs(tables) do
        local answer, response = me:call("tools/call", { name = "t" .. i })
        assert.same({ { type = "text", text = row[2] } }, answer.result.content)
        if revision >= "2025-06-18" then
          assert.truthy(response.body:find('"structuredContent":' .. row[2], 1, true), response.body)
        else
          assert.is_nil(answer.result.structuredContent)
        end
      end
      local result = call(me, "list") -- only the newest revision allows structured content that is not an object
      assert.same({ { type = "text", text = "[1,2]" } }, result.content)
      assert.same(revision == "2026-07-28" and { 1, 2 } or nil, result.structuredContent)
    end)
  end)

  it("is content as written, sent to each era in the form that it defines", function()
    local scripts = { ["tools/rich.lua"] = tool [[return {
      text("see", { priority = 0.5 }), image("\1\2", "image/png"), audio("abc", "audio/wav"),
      link("file:///a/b.txt", { title = "B" }), embed("x:y", "z", "text/plain"), 7,
    }]] }
    for_each(ALL, scripts, function(me, revision)
      local content = call(me, "rich").content
      assert.equal(6, #content)
      assert.same({ type = "text", text = "see", annotations = { priority = 0.5 } }, content[1])
      assert.same({ type = "image", data = "AQI=", mimeType = "image/png" }, content[2])
      assert.equal(revision == "2024-11-05" and "resource" or "audio", content[3].type)
      if revision >= "2025-06-18" then
        assert.same({ type = "resource_link", uri = "file:///a/b.txt", name = "b.txt", title = "B" }, content[4])
      else
        assert.same({ type = "text", text = "B: file:///a/b.txt" }, content[4])
      end
      assert.same({ type = "resource", resource = { uri = "x:y", text = "z", mimeType = "text/plain" } }, content[5])
      assert.same({ type = "text", text = "7" }, content[6])
    end)
  end)

  it("may be nothing", function()
    for_each(ALL, { ["tools/nothing.lua"] = tool "" }, function(me)
      local _, response = me:call("tools/call", { name = "nothing" })
      if me.stream then
        response = me.stream.events[#me.stream.events].data
      else
        response = response.body
      end
      assert.truthy(response:find('"content":[]', 1, true), response)
    end)
  end)
end)

-- -- failing -----------------------------------------------------------------------------------------------------------

describe("a tool that fails", function()
  it("with an expected error sends its text to the model, and logs no fault", function()
    local scripts = {
      ["tools/a.lua"] = tool 'return nil, "no such order"',
      ["tools/b.lua"] = tool 'fail "no such order"',
      ["tools/c.lua"] = tool 'local value = try(nil, "no such order") return value',
      ["tools/d.lua"] = tool 'pcall(error, "x") local ok, why = pcall(fail, "no such order") return nil, why',
      ["tools/e.lua"] = tool 'local function deep() fail "no such order" end coroutine.wrap(deep)()',
    }
    for_each(ALL, scripts, function(me, _, g)
      for _, name in ipairs { "a", "b", "c", "d", "e" } do
        local result = call(me, name)
        assert.is_true(result.isError, name)
        assert.same({ { type = "text", text = "no such order" } }, result.content, name)
      end
      assert.is_nil(g:log():find("tool failed", 1, true))
      assert.equal(0, g:status().counters.tool_faults)
    end)
  end)

  it("by an error says a short id, under which the log says all", function()
    local scripts = {
      ["tools/boom.lua"] = "return tool { \"Goes wrong.\",\n  function()\n    error \"the secret is 1234\"\n  end }",
      ["tools/index.lua"] = tool "local none return none.x",
      ["tools/table.lua"] = tool "error { code = 42 }",
      ["tools/lib.lua"] = tool 'return require("deep").go()',
      ["lib/deep.lua"] = 'return { go = function() error "the secret is 1234" end }',
      ["tools/value.lua"] = tool "return print",
      ["tools/output.lua"] = tool('return { a = "x" }', "output = { a = t.number },"),
      ["tools/cycle.lua"] = tool "local a = {} a.a = a return a",
      ["tools/nan.lua"] = tool "return { n = 0/0 }",
      ["tools/bytes.lua"] = tool 'return "\\xff"',
      ["tools/fine.lua"] = tool 'return "fine"',
    }
    local where = {
      boom = "scripts/tools/boom.lua:3", index = "scripts/tools/index.lua:2", lib = "scripts/lib/deep.lua:1", table = "42",
      output = "output", value = "function", cycle = "JSON", nan = "JSON", bytes = "UTF-8",
    }
    for_each({ "2024-11-05", "2026-07-28" }, scripts, function(me, _, g)
      local faults = g:status().counters.tool_faults
      for name, told in pairs(where) do
        local result = call(me, name)
        assert.is_true(result.isError, name)
        assert.equal(1, #result.content)
        local id = result.content[1].text:match "^internal error (%x%x%x%x)$"
        assert.truthy(id, result.content[1].text)
        local line = g:wait_log("tool failed", { id = id, name = name })
        assert.equal("error", line.level)
        assert.truthy(line.text:find(told, 1, true), line.text)
        faults = faults + 1
      end
      assert.equal(faults, g:status().counters.tool_faults)
      assert.equal("fine", call(me, "fine").content[1].text)
    end)
  end)
end)

-- -- asking ------------------------------------------------------------------------------------------------------------

local strict = { ["tools/order.lua"] = [[return tool { "Order.",
  input = {
    name = t.string { min = 1, max = 5 }, count = t.integer { min = 1, default = 1 }, size = t.optional(t.one_of { "small", "large" }),
    lines = t.optional(t.list(t.object { id = t.integer }, { max = 2 })),
  },
  function(args) return args.name .. args.count .. tostring(args.size) end }]] }

-- Each row: the arguments as JSON, and the error text.
local wrong = {
  { "{}", "argument 'name' is missing" },
  { '{"name":1}', "argument 'name' must be a string, got a number (1)" },
  { '{"name":""}', "argument 'name' must" },
  { '{"name":"abcdef"}', "argument 'name' must" },
  { '{"name":null}', "argument 'name' must be a string, got null" },
  { '{"name":"a","count":"2"}', "argument 'count' must be" },
  { '{"name":"a","count":1.5}', "argument 'count' must be" },
  { '{"name":"a","count":0}', "argument 'count' must be" },
  { '{"name":"a","size":"medium"}', "argument 'size' must be" },
  { '{"name":"a","lines":{}}', "argument 'lines' must be" },
  { '{"name":"a","lines":[{"id":1},{"id":"x"}]}', "argument 'lines[1].id' must be" },
  { '{"name":"a","lines":[{"id":1},{"id":2},{"id":3}]}', "argument 'lines' must" },
  { '{"nmae":"a","name":"a"}', "there is no argument 'nmae': did you mean 'name'?" },
  { '{"name":"a","zzz":1}', "there is no argument 'zzz'" },
}

local function send_call(g, me, name, arguments)
  local message = me:message("tools/call", { name = name, arguments = "ARGUMENTS" })
  local body = require "cjson".encode(message):gsub('"ARGUMENTS"', (arguments:gsub("%%", "%%%%")))
  local headers = me:headers(message)
  headers["Content-Type"] = "application/json"
  local response = wire.post(g, body, headers, me.endpoint)
  if me.stream then
    return me.stream:wait_event(message.id).json, response
  end
  return response:json(), response
end

describe("arguments", function()
  it("that fit are the handler's, defaults filled in", function()
    for_each(ALL, strict, function(me)
      assert.equal("a1nil", call(me, "order", { name = "a" }).content[1].text)
      assert.equal("a2large", call(me, "order", { name = "a", count = 2, size = "large" }).content[1].text)
      assert.equal("äöüäö3nil", call(me, "order", { name = "äöüäö", count = 3.0 }).content[1].text)
    end)
  end)

  it("that do not fit are named: to the model since 2025-11-25, in a protocol error before", function()
    for_each(ALL, strict, function(me, revision, g)
      for _, row in ipairs(wrong) do
        local answer, response = send_call(g, me, "order", row[1])
        local told
        if revision >= "2025-11-25" then
          assert.equal(200, response.status)
          assert.is_true(answer.result.isError)
          told = answer.result.content[1].text
        else
          assert.equal(-32602, answer.error.code)
          told = answer.error.message
        end
        assert.equal(row[2], told:sub(1, #row[2]), row[1] .. ": " .. told)
      end
    end)
  end)

  it("that are no object are an error in every era", function()
    for_each(ALL, strict, function(me, _, g)
      for _, arguments in ipairs { "[]", '["a"]', '"a"', "1", "true" } do
        assert.equal(-32602, send_call(g, me, "order", arguments).error.code, arguments)
      end
    end)
  end)

  it("may be left out, or null, where none is needed", function()
    for_each(ALL, { ["tools/free.lua"] = tool 'return "free"' }, function(me, _, g)
      assert.equal("free", call(me, "free").content[1].text)
      assert.equal("free", send_call(g, me, "free", "null").result.content[1].text)
      assert.equal("free", send_call(g, me, "free", "{}").result.content[1].text)
    end)
  end)
end)

describe("a name that no tool has", function()
  it("is an error that names the nearest tool", function()
    for_each(ALL, strict, function(me, revision)
      for _, case in ipairs {
        { "ordr", "unknown tool 'ordr': did you mean 'order'?" }, { "Order", "did you mean 'order'?" }, { "zzz", "unknown tool 'zzz'" },
      } do
        local answer, response = me:call("tools/call", { name = case[1] })
        assert.equal(-32602, answer.error.code)
        assert.truthy(answer.error.message:find(case[2], 1, true), answer.error.message)
        assert.equal(({ ["2024-11-05"] = 202, ["2026-07-28"] = 400 })[revision] or 200, response.status)
      end
      if revision ~= "2026-07-28" then -- the headers would differ from the arguments
        for _, params in ipairs { {}, { name = 7 }, { name = { "order" } }, { name = "" } } do
          assert.equal(-32602, me:call("tools/call", params).error.code)
        end
      end
    end)
  end)
end)

-- -- listing -----------------------------------------------------------------------------------------------------------

local listed = {
  ["tools/zeta.lua"] = tool 'return "z"',
  ["tools/add.lua"] = "--- Add two numbers.\n---@param a number\n---@param b? number  The other\nreturn function(a, b) return a + (b or 0) end",
  ["tools/orders/refund.lua"] = tool 'return "r"',
  ["tools/tools.lua"] = 'return { one = tool { "One.", function() return 1 end }, two = tool { "Two.", function() return 2 end } }',
  ["tools/convert.lua"] = [[return tool {
    "Convert.", title = "Converter", read_only = true, idempotent = true,
    input = { degrees = t.number { "As read", min = -460 }, to = t.one_of { "celsius", "fahrenheit", default = "celsius" } },
    output = { degrees = t.number }, icons = { { src = "https://x.example/i.png" } },
    function(args) return { degrees = args.degrees } end }]],
}

-- tools/list exactly as the client receives it.
local function raw_list(g, me)
  local message = me:message "tools/list"
  message.id = 5
  local response = wire.post(g, message, me:headers(message), me.endpoint)
  if me.stream then
    me.stream:wait_event(5)
    return me.stream.events[#me.stream.events].data
  end
  return response.body
end

describe("tools/list", function()
  it("is in one order, and the same bytes from every worker and after a restart", function()
    local seen = {}
    for _ = 1, 2 do
      for_each(ALL, listed, function(me, revision, g)
        for _ = 1, 8 do -- separate connections: the kernel picks the worker
          local bytes = raw_list(g, me)
          assert.equal(seen[revision] or bytes, bytes)
          seen[revision] = bytes
        end
        local names = {}
        for _, entry in ipairs(me:result("tools/list").tools) do
          names[#names + 1] = entry.name
        end
        assert.same({ "add", "convert", "one", "orders_refund", "two", "zeta" }, names)
      end, { workers = 4 })
    end
  end)

  it("shows the annotated form and the full form as schemas, in the order they were written", function()
    for_each(ALL, listed, function(me, _, g)
      local bytes = raw_list(g, me)
      assert.truthy(bytes:find([["description":"Add two numbers.","inputSchema":{"type":"object","properties":{"a":{"type":"number"},]] ..
        [["b":{"type":"number","description":"The other"}},"required":["a"],"additionalProperties":false}]], 1, true), bytes)
      assert.truthy(bytes:find([["properties":{"degrees":{"type":"number","description":"As read","minimum":-460},]] ..
        [["to":{"type":"string","enum":["celsius","fahrenheit"],"default":"celsius"}},"required":["degrees"]], 1, true), bytes)
      assert.truthy(bytes:find([["name":"zeta","description":"It.","inputSchema":{"type":"object","additionalProperties":false}]], 1, true), bytes)
    end)
  end)

  it("sends each era the fields that it defines: annotations, titles, output schemas, icons", function()
    for_each(ALL, listed, function(me, revision)
      local result = me:result "tools/list"
      local convert = result.tools[2]
      assert.equal(revision >= "2025-06-18" and "Converter" or nil, convert.title)
      assert.equal(revision >= "2025-03-26", convert.annotations ~= nil)
      if convert.annotations then
        assert.is_true(convert.annotations.readOnlyHint)
        assert.equal(revision == "2025-03-26" and "Converter" or nil, convert.annotations.title)
      end
      assert.equal(revision >= "2025-06-18", convert.outputSchema ~= nil)
      assert.equal(revision >= "2025-11-25", convert.icons ~= nil)
      assert.equal(revision == "2026-07-28" and "complete" or nil, result.resultType)
      assert.equal(revision == "2026-07-28" and "public" or nil, result.cacheScope)
      assert.is_nil(result.nextCursor)
      assert.equal('{"degrees":3}', call(me, "convert", { degrees = 3 }).content[1].text)
      assert.equal("5", call(me, "add", { a = 2, b = 3 }).content[1].text)
      assert.equal("2", call(me, "two").content[1].text)
    end)
  end)

  it("knows no cursor, and is empty without tools", function()
    for_each(ALL, {}, function(me)
      assert.equal(-32602, me:call("tools/list", { cursor = "x" }).error.code)
      assert.equal(-32602, me:call("tools/list", { cursor = "" }).error.code)
      assert.same({}, me:result("tools/list").tools)
    end)
  end)
end)

-- -- time --------------------------------------------------------------------------------------------------------------

local slow = {
  ["tools/slow.lua"] = [[return tool { "Waits.", function(_, call)
    local gate <close> = closing(function() log.info "gate closed" end)
    call:progress(1) sleep(60) log.info "went on" end }]],
  ["tools/short.lua"] = [[return tool { "Waits, but not for long.", timeout = 0.3 * seconds, function()
    local gate <close> = closing(function() log.info "gate closed" end)
    sleep(60) log.info "went on" end }]],
  ["tools/quick.lua"] = tool('sleep(0.05) return "in time"', "timeout = 30,"),
}

describe("a call that takes too long", function()
  it("is cancelled at limits.call.time with an error, in every era", function()
    for_each(ALL, slow, function(me, _, g)
      for _, meta in ipairs { { progressToken = 1 }, {} } do
        local before = g:status().counters.tool_aborted.time
        local stream = me:open("tools/call", { name = "slow", _meta = meta })
        local answer = stream:answer(10)
        assert.equal(-32603, answer.error.code)
        assert.truthy(answer.error.message:find "too long")
        assert.equal(before + 1, g:status().counters.tool_aborted.time)
        if meta.progressToken and not me.stream then
          stream.connection:wait_end() -- an event stream, which ends after its answer
        end
      end
      assert.equal("in time", call(me, "quick").content[1].text)
      g:wait_log "gate closed"
      assert.is_nil(g:log():find("went on", 1, true))
    end, { config = { limits = { call = { time = "300ms" } } } })
  end)

  it("is cancelled at the tool's own timeout, when that is shorter", function()
    for_each({ "2024-11-05", "2025-11-25", "2026-07-28" }, slow, function(me, _, g)
      local answer = me:call("tools/call", { name = "short" }, 10)
      assert.equal(-32603, answer.error.code)
      assert.truthy(answer.error.message:find "too long")
      g:wait_log "gate closed"
      assert.equal("in time", call(me, "quick").content[1].text)
    end)
  end)
end)

describe("a method that is unknown", function()
  it("is -32601 in every era, and the nearest one is named", function()
    for_each(ALL, {}, function(me, revision)
      local answer, response = me:call "tools/lits"
      assert.equal(-32601, answer.error.code)
      assert.truthy(answer.error.message:find("did you mean 'tools/list'?", 1, true))
      assert.equal(({ ["2024-11-05"] = 202, ["2026-07-28"] = 404 })[revision] or 200, response.status)
    end)
    for_each(OLD, {}, function(me)
      assert.equal(-32602, me:call("logging/setLevel", { level = "loud" }).error.code)
      assert.same({}, me:result("logging/setLevel", { level = "emergency" }))
    end)
  end)
end)
