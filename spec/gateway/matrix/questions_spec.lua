-- Questions of upstreams in all cells of the matrix (spec/helpers/matrix.lua): each reaches the client whose call asks,
-- once, and its answer goes back. An upstream learns what its client can be asked, and asks nothing else.
-- pairs: questions; clients 2024-11-05..; upstreams 2024-11-05 sse http stdio
-- pairs: questions; clients 2024-11-05..; upstreams 2025-03-26.. http stdio
local cjson = require "cjson.safe"
local matrix = require "spec.helpers.matrix"
local raw = require "spec.helpers.upstream.raw"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local CAN <const> = "io.modelcontextprotocol/clientCapabilities"
local FORM <const> = { message = "Name?", requestedSchema = { type = "object", properties = { name = { type = "string" } }, required = { "name" } } }
local SAMPLE <const> = { messages = { { role = "user", content = { type = "text", text = "hi" } } }, maxTokens = 10 }
local SAID <const> = { role = "assistant", content = { type = "text", text = "of ann" }, model = "m" }

-- What an upstream has learned about the client of an exchange.
local function told(x)
  local can = x.modern and x.meta[CAN] or x.session.capabilities
  return type(can) == "table" and can or {}
end

local function text_result(x, text) return x:complete('{"content":[{"type":"text","text":' .. raw.quote(text) .. "}]}") end

-- The tool `again` asks what its arguments say, [method, params], as its revision does, and answers with the answer of the
-- client; "cannot" if the client has not said that it can be asked (`need`: the path of the capability).
local function again(x, reply)
  local at = told(x)
  for word in x.arguments.need:gmatch "%w+" do at = type(at) == "table" and at[word] or nil end
  if at == nil then return reply(text_result(x, "cannot")) end
  local method, params = x.arguments.method, raw.at(x.raw_arguments, "params")
  if x.modern then
    local given = raw.at(x.text, "params", "inputResponses", "q")
    if given then return reply(text_result(x, given)) end
    return reply(('{"resultType":"input_required","inputRequests":{"q":{"method":"%s","params":%s}},"requestState":"s"}'):format(method, params))
  end
  x.server.question = x:ask(method, params, function(json, text)
    reply(text_result(x, raw.at(text, json.error and "error" or "result")))
  end)
  x.server.asking = x
end

-- The tool `look` shows a page and waits until it is done; "cannot" if the client shows no pages.
local function look(x, reply)
  local can = told(x).elicitation
  if type(can) ~= "table" or not can.url then return reply(text_result(x, "cannot")) end
  if x.modern then
    if raw.at(x.text, "params", "inputResponses", "q") then return reply(text_result(x, "done")) end
    return reply('{"resultType":"input_required","requestState":"s","inputRequests":{"q":{"method":"elicitation/create","params":'
      .. '{"mode":"url","message":"Sign in","url":"https://example.com/in"}}}}')
  end
  x:ask("elicitation/create", '{"mode":"url","message":"Sign in","url":"https://example.com/in","elicitationId":"theirs"}', function()
    x:emit '{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"theirs"}}'
    reply(text_result(x, "done"))
  end)
end

-- The same for a prompt and a resource, whose result is the answer to a question for the client's model.
local function asking(result)
  return function(x)
    if told(x).sampling == nil then return x:error(-32603, "cannot") end
    local params = '{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":10}'
    local function done(text) x:result(x:complete(result:format(raw.at(text, "model")))) end
    local given = raw.at(x.text, "params", "inputResponses", "q")
    if given then return done(given) end
    if not x.modern then return x:ask("sampling/createMessage", params, function(_, text) done(raw.at(text, "result")) end) end
    x:result('{"resultType":"input_required","inputRequests":{"q":{"method":"sampling/createMessage","params":' .. params .. '}},"requestState":"s"}')
  end
end

-- Opens a request that asks, and returns its stream, and the question that came or nil, with its key in 2026-07-28.
local function open_asking(cell, method, call)
  local stream = cell.ann:open(method, call)
  if cell.kind.revision == "2026-07-28" then
    local answer = stream:answer()
    if not answer.result or answer.result.resultType ~= "input_required" then return answer end
    local key, question = next(answer.result.inputRequests)
    assert.is_nil(next(answer.result.inputRequests, key))
    call.inputResponses, call.requestState = { [key] = false }, answer.result.requestState
    return { method = method, key = key, call = call }, question
  end
  local found = wait.for_fact("the question or the answer", 10, function()
    local answer = cell.ann:answer_to(stream.id)
    if not answer and cell.kind.transport == "http" and stream:has_begun() and not stream.connection.responses[1].sse then answer = stream:answer() end
    return answer or cell.ann:notes()[1]
  end)
  if not found.method then return found end
  return stream, found
end

-- The same for a call of the tool `again`.
local function ask(cell, need, method, params)
  return open_asking(cell, "tools/call", { name = cell:named "again", arguments = { need = need, method = method, params = params } })
end

-- Answers the question, and returns the answer of the request.
local function give(cell, stream, question, result, fault)
  if not stream.call then
    cell.ann:answer(question, result, fault)
    return stream:answer()
  end
  if fault then return nil end
  stream.call.inputResponses[stream.key] = result
  return cell.ann:call(stream.method, stream.call)
end

-- Asks and answers; returns the params that the client got and the answer that the upstream got. Where it is refused, the
-- upstream has learned so.
local function exchange(cell, need, method, params, result)
  local stream, question = ask(cell, need, method, params)
  if cell.expected ~= "whole" then
    assert.is_nil(question, cjson.encode(question))
    return nil, assert.equal("cannot", upstream.text(stream))
  end
  assert.is_table(question, cjson.encode(stream))
  assert.equal(method, question.method)
  local answer = give(cell, stream, question, result)
  cell:fence()
  -- an upstream of 2026-07-28 that has shown a page is done when it answers
  local is_done = question.params.mode == "url" and cell.kind.revision == "2025-11-25" and cell.form.revision == "2026-07-28" and cell.form.name ~= "dual"
  assert.same(cell.kind.revision == "2026-07-28" and {} or { method, is_done and "notifications/elicitation/complete" or nil }, cell:methods())
  return question.params, cjson.decode(upstream.text(answer))
end

-- Nobody can be asked by an upstream that keeps nothing for its clients, and it has learned so.
local function asks_nothing(cell)
  local answer, question = ask(cell, "sampling", "sampling/createMessage", SAMPLE)
  assert.is_nil(question)
  assert.equal("cannot", upstream.text(answer))
  assert.same({}, cell.ann:notes())
end

local function prepare(u, form)
  u.handlers.again, u.handlers.look = again, look
  u:when("prompts/get", asking '{"messages":[{"role":"user","content":{"type":"text","text":%s}}]}')
  u:when("resources/read", asking('{"contents":[{"uri":"' .. form.name .. '://text","text":%s}]}'))
end

describe("questions:", function()
  local m = matrix.group("questions", { prepare = prepare })
  lazy_setup(function() m:begin() end)
  lazy_teardown(function() m:finish() end)

  m:feature("a form", function(cell)
    local params, got = exchange(cell, "elicitation", "elicitation/create", FORM, { action = "accept", content = { name = "Ann" } })
    if not params then return end
    assert.equal(cell.form.name .. " asks: Name?", params.message)
    assert.same(FORM.requestedSchema, params.requestedSchema)
    assert.same({ action = "accept", content = { name = "Ann" } }, got)
  end)

  m:feature("a form that is declined", function(cell)
    local params, got = exchange(cell, "elicitation", "elicitation/create", FORM, { action = "decline" })
    if params then assert.same({ action = "decline" }, got) end
  end)

  m:feature("a page to open", function(cell)
    local params, got = exchange(cell, "elicitation url", "elicitation/create", {
      mode = "url", message = "Sign in", url = "https://example.com/in", elicitationId = cell.form.revision < "2026-07-28" and "theirs" or nil,
    }, { action = "accept" })
    if not params then return end
    assert.equal("https://example.com/in", params.url)
    assert.same({ action = "accept" }, got)
  end)

  m:feature("sampling", function(cell)
    local params, got = exchange(cell, "sampling", "sampling/createMessage", SAMPLE, SAID)
    if not params then return end
    assert.same(SAMPLE.messages, params.messages)
    assert.equal(10, params.maxTokens)
    assert.same(SAID, got)
  end)

  m:feature("roots", function(cell)
    local roots = { roots = { { uri = "file:///home/ann", name = "ann's" } } }
    local params, got = exchange(cell, "roots", "roots/list", cjson.decode "{}", roots)
    if params or cell.expected == "whole" then assert.same(roots, got) end
  end)

  -- The other principal knows the id of the question, or has the state of the request.
  m:feature("a question that another principal answers", function(cell)
    if cell.form.keeps_nothing then return asks_nothing(cell) end
    local stream, question = ask(cell, "sampling", "sampling/createMessage", SAMPLE)
    local of_bob = { role = "assistant", content = { type = "text", text = "of bob" }, model = "m" }
    if stream.call then
      stream.call.inputResponses[stream.key] = of_bob
      local answer = cell.bob:call(stream.method, stream.call)
      assert.is_nil(cjson.encode(answer):find("of bob", 1, true))
    else
      cell.bob:answer(question, of_bob)
      cell.bob:call("tools/call", { name = cell:named "echo", arguments = {} })
    end
    assert.same(SAID, cjson.decode(upstream.text(give(cell, stream, question, SAID))))
    cell:fence()
    assert.same(cell.kind.revision == "2026-07-28" and {} or { "sampling/createMessage" }, cell:methods())
  end)

  for what, row in pairs { prompt = { "prompts/get", "messages" }, resource = { "resources/read", "contents" } } do
    m:feature(("a %s that asks"):format(what), function(cell)
      local stream, question = open_asking(cell, row[1], what == "prompt" and { name = cell:named "plain" } or { uri = cell:uri "text" })
      if cell.expected ~= "whole" then
        assert.is_nil(question)
        return assert.equal(-32603, stream.error.code)
      end
      assert.equal("sampling/createMessage", question.method)
      local entry = give(cell, stream, question, SAID).result[row[2]][1]
      assert.equal("m", what == "prompt" and entry.content.text or entry.text)
      cell:fence()
      assert.same(cell.kind.revision == "2026-07-28" and {} or { "sampling/createMessage" }, cell:methods())
    end)
  end

  m:feature("sampling with tools", function(cell)
    local tools = { { name = "add", inputSchema = { type = "object" } } }
    local use = { role = "assistant", content = { { type = "tool_use", id = "u", name = "add", input = { a = 1 } } }, model = "m", stopReason = "toolUse" }
    local params, got = exchange(cell, "sampling tools", "sampling/createMessage", {
      messages = SAMPLE.messages, maxTokens = 10, tools = tools, toolChoice = { mode = "auto" },
    }, use)
    if not params then return end
    assert.same(tools, params.tools)
    assert.same({ mode = "auto" }, params.toolChoice)
    if cell.form.revision < "2025-11-25" then use.content = use.content[1] end -- its content is one block, not a list
    assert.same(use, got)
  end)

  m:feature("sampling that fails", function(cell)
    local stream, question = ask(cell, "sampling", "sampling/createMessage", SAMPLE)
    if cell.expected ~= "whole" then return assert.equal("cannot", upstream.text(stream)) end
    local answer = give(cell, stream, question, nil, { code = -1, message = "User rejected" })
    if not answer then return assert.same({}, cell.ann:notes()) end -- a client of 2026-07-28 does not repeat the call
    cell:fence()
    assert.same({ "sampling/createMessage" }, cell:methods())
    assert.is_truthy(cjson.encode(answer.result):find("User rejected", 1, true))
  end)

  -- The client says so once, when all upstreams have asked it; each is told in the session that belongs to the client.
  m:feature("roots that change", function(cell)
    if cell.form.keeps_nothing then return asks_nothing(cell) end
    local stream, question = ask(cell, "roots", "roots/list", cjson.decode "{}")
    give(cell, stream, question, { roots = { { uri = "file:///home/ann" } } })
    local asked = cell.u:all { tool = "again" }
    local x = asked[#asked].exchange
    if cell.kind.revision <= "2025-11-25" and not cell.ann.has_told then cell.ann.c:notify "notifications/roots/list_changed" end
    cell.ann.has_told = true
    local note = { method = "notifications/roots/list_changed", session = x.session }
    local is_told = cell.expected == "whole" and not x.modern
    if is_told then cell.u:wait(note) end
    cell:fence()
    assert.equal(is_told and 1 or 0, #cell.u:all(note))
  end)

  m:feature("a question that is taken back", function(cell)
    if cell.form.keeps_nothing then return asks_nothing(cell) end
    local stream, question = ask(cell, "sampling", "sampling/createMessage", SAMPLE)
    if cell.expected ~= "whole" then
      -- a question in a result is not taken back: the client may answer it or leave it
      assert.equal("sampling/createMessage", question.method)
      assert.same(SAID, cjson.decode(upstream.text(give(cell, stream, question, SAID))))
      return
    end
    local x = cell.u.asking
    x:emit('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":' .. cell.u.question .. "}}")
    x:result(text_result(x, "never mind"))
    assert.equal("never mind", upstream.text(stream:answer()))
    cell:fence()
    assert.same({ "sampling/createMessage", "notifications/cancelled" }, cell:methods())
    assert.equal(question.id, cell.ann:notes()[2].params.requestId)
  end)

  -- A question that wants to be told how far its answer is comes without its token, so that the client tells nothing.
  m:feature("progress of the client", function(cell)
    if cell.form.keeps_nothing then return asks_nothing(cell) end
    local params = { messages = SAMPLE.messages, maxTokens = 10, _meta = { progressToken = "theirs", ["example.com/kept"] = true } }
    local stream, question = ask(cell, "sampling", "sampling/createMessage", params)
    assert.same({ ["example.com/kept"] = true }, question.params._meta)
    assert.same(SAID, cjson.decode(upstream.text(give(cell, stream, question, SAID))))
    assert.equal(0, #cell.u:all { method = "notifications/progress" })
  end)

  m:feature("tasks of the client", function(cell)
    local stream, x = cell:hold()
    if not x.modern and not cell.form.keeps_nothing then
      for _, method in ipairs { "tasks/get", "tasks/result", "tasks/cancel", "tasks/list" } do
        local got
        x:ask(method, method == "tasks/list" and "{}" or '{"taskId":"t"}', function(json) got = json end)
        assert.equal(-32601, wait.for_fact("the answer to " .. method, 5, function() return got end).error.code)
      end
      assert.is_nil(told(x).tasks)
    end
    if cell.kind.revision == "2025-11-25" then
      cell.ann.c:notify("notifications/tasks/status", { taskId = "t", status = "working", createdAt = "2026-01-01T00:00:00Z", ttl = 1000 })
    end
    cell:release(stream)
    assert.same({}, cell:methods())
    assert.equal(0, #cell.u:all { method = "notifications/tasks/status" })
  end)

  -- The tool `look` shows a page, and says when its user is done.
  m:feature("that a page is done", function(cell)
    local stream = cell.ann:open("tools/call", { name = cell:named "look", arguments = {} })
    if cell.kind.revision == "2026-07-28" and not cell.form.keeps_nothing then -- it learns that by its own request
      local first = stream:answer().result
      assert.equal("input_required", first.resultType)
      local answer = cell.ann:call("tools/call", {
        name = cell:named "look", arguments = {}, inputResponses = { [next(first.inputRequests)] = { action = "accept" } }, requestState = first.requestState,
      })
      assert.equal("done", upstream.text(answer))
      cell:fence()
      return assert.same({}, cell:methods())
    elseif cell.kind.revision ~= "2025-11-25" or cell.form.keeps_nothing then -- a client that shows no pages
      assert.equal("cannot", upstream.text(stream:answer()))
      return assert.same({}, cell:methods())
    end
    local page = cell:wait_notes(1)[1]
    assert.equal("elicitation/create", page.method)
    cell.ann:answer(page, { action = "accept" })
    local done = cell:wait_notes(2)[2]
    assert.equal("done", upstream.text(stream:answer()))
    assert.equal("notifications/elicitation/complete", done.method)
    assert.equal(page.params.elicitationId, done.params.elicitationId)
    cell:fence()
    assert.equal(2, #cell:methods())
  end)

  m:specs(it)
end)
