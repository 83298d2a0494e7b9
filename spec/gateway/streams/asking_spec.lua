-- A handler that asks its user in the middle of a call: one script, every revision with questions. Rules S-8, V-1 to
-- V-10, EL-3.
-- proves: questions whose answers come to another worker or process 2026-07-28 http
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"
local client = require "spec.helpers.client"

local scripts = {
  ["tools/delete.lua"] = [[
return tool {
  "Delete orders.",
  input = { n = t.integer },
  function(args, call)
    call:once("mark", function() log.info "marked" return true end)
    local yes, why = call:elicit("sure", "Delete " .. args.n .. " orders?", { confirm = t.boolean })
    if not (yes and yes.confirm) then return nil, why or "left as it was" end
    return "deleted " .. args.n
  end,
}]],
  ["tools/think.lua"] = [[
return tool { "Ask the model.", function(_, call)
  local answer = try(call:sample("thought", "What now?"))
  return "it thinks: " .. answer.content.text
end }]],
}

local able = { elicitation = { form = { [" "] = 1 } }, sampling = { [" "] = 1 } }

local function text_of(answer)
  return answer.result.content[1].text, answer.result.isError or false
end

local function marked(g)
  local count = 0
  for _, line in ipairs(g:log_lines()) do
    if line.event == "marked" then count = count + 1 end
  end
  return count
end

-- Opens the call, waits for the question, answers it; returns the question and the call's answer.
local function converse(c, tool, arguments, method, result)
  local stream = c:open("tools/call", { name = tool, arguments = arguments })
  local question = stream:wait_event(method).json
  local reply = { jsonrpc = "2.0", id = question.id }
  for name, value in pairs(result) do reply[name] = value end
  assert.equal(202, c:post(reply).status)
  return question, stream:answer()
end

for _, revision in ipairs { "2025-06-18", "2025-11-25" } do
  describe("a handler that asks the client, in " .. revision, function()
    it("waits while the question travels on the call's own stream", function()
      local g <close> = gateway.start { scripts = scripts }
      local c <close> = g:client(revision, { capabilities = able })
      local question, answer = converse(c, "delete", { n = 3 }, "elicitation/create",
        { result = { action = "accept", content = { confirm = true } } })
      assert.equal("Delete 3 orders?", question.params.message)
      assert.equal("boolean", question.params.requestedSchema.properties.confirm.type)
      assert.equal("deleted 3", (text_of(answer)))
      c:delete()
      c:close()
      assert.has_nothing_left(g)
    end)

    it("gets distinct results for decline, cancel, an error and an invalid answer", function()
      local g <close> = gateway.start { scripts = scripts }
      local c <close> = g:client(revision, { capabilities = able })
      for _, case in ipairs {
        { { result = { action = "decline" } }, "declined" }, { { result = { action = "cancel" } }, "cancelled" },
        { { error = { code = -1, message = "not today" } }, "not today" },
        { { result = { action = "accept", content = { confirm = "perhaps" } } }, "invalid" },
        { { result = { action = "accept", content = { confirm = false } } }, "left as it was" },
      } do
        local _, answer = converse(c, "delete", { n = 1 }, "elicitation/create", case[1])
        local text, failed = text_of(answer)
        assert.equal(case[2], text)
        assert.is_true(failed)
      end
      c:delete()
      c:close()
      assert.has_nothing_left(g)
    end)
  end)
end

describe("a client that cannot be asked", function()
  it("gives the handler 'unsupported', for any reason", function()
    local g <close> = gateway.start { scripts = scripts }
    for _, revision in ipairs { "2025-03-26", "2025-11-25", "2026-07-28" } do
      local c <close> = g:client(revision, { capabilities = revision == "2025-03-26" and able or {} })
      assert.equal("unsupported", (text_of(c:call("tools/call", { name = "delete", arguments = { n = 1 } }))))
      if c.delete then c:delete() end
    end
    assert.has_nothing_left(g)
  end)
end)

describe("a 2024-11-05 client", function()
  it("gets a sampling request on its stream, and answers by a POST", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client("2024-11-05", { capabilities = able })
    local _, answer = converse(c, "think", {}, "sampling/createMessage",
      { result = { role = "assistant", model = "m", content = { type = "text", text = "tea" } } })
    assert.equal("it thinks: tea", (text_of(answer)))
    c:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a question to one client", function()
  it("can be answered by no other client, and only once", function()
    local g <close> = gateway.start { scripts = scripts }
    local mine <close> = g:client("2025-11-25", { capabilities = able })
    local other <close> = g:client("2025-11-25", { capabilities = able })
    local stream = mine:open("tools/call", { name = "delete", arguments = { n = 1 } })
    local id = stream:wait_event("elicitation/create").json.id
    local yes = { jsonrpc = "2.0", id = id, result = { action = "accept", content = { confirm = true } } }
    assert.equal(202, other:post(yes).status)
    g:wait_status(function(status) return status.counters.dropped.unmatched == 1 end)
    assert.equal(202, mine:post({ jsonrpc = "2.0", id = id, result = { action = "decline" } }).status)
    assert.equal("declined", (text_of(stream:answer())))
    assert.equal(202, mine:post(yes).status)
    g:wait_status(function(status) return status.counters.dropped.unmatched == 2 end)
    for _, c in ipairs { mine, other } do
      c:delete()
      c:close()
    end
    assert.has_nothing_left(g)
  end)

  it("need not be answered once the call is cancelled, and the client is notified", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client("2025-11-25", { capabilities = able })
    local stream = c:open("tools/call", { name = "delete", arguments = { n = 1 } })
    local id = stream:wait_event("elicitation/create").json.id
    c:notify("notifications/cancelled", { requestId = stream.id })
    assert.equal(id, stream:wait_event("notifications/cancelled").json.params.requestId)
    c:delete()
    c:close()
    assert.has_nothing_left(g)
  end)

  it("is dropped when the session ends", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client("2025-11-25", { capabilities = able })
    c:open("tools/call", { name = "delete", arguments = { n = 1 } }):wait_event "elicitation/create"
    c:delete()
    c:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a handler that asks the client, in 2026-07-28", function()
  local config = { seal_keys = { "a secret that both processes know" } }

  -- Sends one POST on a connection of its own: the kernel chooses the worker.
  local function post(g, c, params)
    local message = c:message("tools/call", params)
    local headers = c:headers(message)
    return client.request(g, { method = "POST", path = "/mcp", headers = headers, body = message }):json()
  end

  local function ask(g, c, arguments)
    local result = post(g, c, { name = "delete", arguments = arguments }).result
    assert.equal("input_required", result.resultType)
    assert.equal("elicitation/create", result.inputRequests.sure.method)
    return result.requestState
  end

  local accepted = { sure = { action = "accept", content = { confirm = true } } }

  it("unwinds and runs again on any worker, but runs the functions of call:once only once", function()
    local g <close> = gateway.start { scripts = scripts, config = config, workers = 4 }
    local c <close> = g:client("2026-07-28", { capabilities = able })
    for n = 1, 20 do
      local state = ask(g, c, { n = n })
      local answer = post(g, c, { name = "delete", arguments = { n = n }, requestState = state, inputResponses = accepted })
      assert.equal("complete", answer.result.resultType)
      assert.equal("deleted " .. n, (text_of(answer)))
    end
    wait.for_fact("the marks to be in the log", 20, function() return marked(g) >= 20 end)
    assert.equal(20, marked(g))
    assert.has_nothing_left(g)
  end)

  it("continues in another process that has the same secret", function()
    local first <close> = gateway.start { scripts = scripts, config = config }
    local second <close> = gateway.start { scripts = scripts, config = config }
    local c <close> = first:client("2026-07-28", { capabilities = able })
    local state = ask(first, c, { n = 7 })
    local d <close> = second:client("2026-07-28", { capabilities = able })
    local answer = post(second, d, { name = "delete", arguments = { n = 7 }, requestState = state, inputResponses = accepted })
    assert.equal("deleted 7", (text_of(answer)))
    assert.equal(0, marked(second))
    assert.has_nothing_left(first)
    assert.has_nothing_left(second)
  end)

  it("refuses a requestState that was changed, invented, or made for another request", function()
    local g <close> = gateway.start { scripts = scripts, config = config }
    local c <close> = g:client("2026-07-28", { capabilities = able })
    local state = ask(g, c, { n = 1 })
    for what, params in pairs {
      changed = { name = "delete", arguments = { n = 1 }, requestState = state .. "A" },
      ["cut short"] = { name = "delete", arguments = { n = 1 }, requestState = state:sub(1, -3) },
      ["made up"] = { name = "delete", arguments = { n = 1 }, requestState = "AAAA" },
      ["not a text"] = { name = "delete", arguments = { n = 1 }, requestState = 5 },
      ["for other arguments"] = { name = "delete", arguments = { n = 2 }, requestState = state },
      ["for another tool"] = { name = "think", arguments = cjson.decode "{}", requestState = state },
    } do
      params.inputResponses = accepted
      local answer = post(g, c, params)
      assert.equal(-32602, answer.error and answer.error.code, what)
    end
    assert.has_nothing_left(g)
  end)

  it("asks again if an answer is missing or invalid, and accepts an answer without requestState", function()
    local g <close> = gateway.start { scripts = scripts, config = config }
    local c <close> = g:client("2026-07-28", { capabilities = able })
    for _, responses in ipairs { { other = accepted.sure }, { sure = 12345 }, { sure = { action = "accept", content = { confirm = 1 } } } } do
      local answer = post(g, c, { name = "delete", arguments = { n = 1 }, inputResponses = responses })
      assert.equal("input_required", answer.result.resultType)
    end
    assert.equal("deleted 1", (text_of(post(g, c, { name = "delete", arguments = { n = 1 }, inputResponses = accepted }))))
    assert.has_nothing_left(g)
  end)

  it("asks once more after an answer that does not fit, says why, then gives the handler 'invalid'", function()
    local g <close> = gateway.start { scripts = scripts, config = config }
    local c <close> = g:client("2026-07-28", { capabilities = able })
    local state, wrong = ask(g, c, { n = 1 }), { sure = { action = "accept", content = { confirm = 1 } } }
    local function answered(given)
      return post(g, c, { name = "delete", arguments = { n = 1 }, requestState = state, inputResponses = given })
    end
    local again = answered(wrong).result
    assert.equal("input_required", again.resultType)
    assert.matches("^Delete 1 orders%? %(the last answer does not fit: .*confirm.*%)$", again.inputRequests.sure.params.message)
    state = again.requestState
    assert.equal("deleted 1", (text_of(answered(accepted))))
    local text, failed = text_of(answered(wrong))
    assert.equal("invalid", text)
    assert.is_true(failed)
    assert.has_nothing_left(g)
  end)
end)

describe("a form's defaults", function()
  it("fill in what the client leaves out, in every revision", function()
    local g <close> = gateway.start { scripts = { ["tools/form.lua"] = [[return tool { "Asks.", function(_, call)
      local got, why = call:elicit("form", "Which?", { size = t.integer { default = 3 }, name = t.string })
      return got and got.name .. " " .. got.size or why end }]] } }
    for _, revision in ipairs { "2025-06-18", "2025-11-25", "2026-07-28" } do
      local c <close> = g:client(revision, { capabilities = able })
      local accept = { action = "accept", content = { name = "tea" } }
      local answer
      if revision == "2026-07-28" then
        answer = c:call("tools/call", { name = "form", arguments = cjson.decode "{}", inputResponses = { form = accept } })
      else
        answer = select(2, converse(c, "form", {}, "elicitation/create", { result = accept }))
        c:delete()
      end
      assert.equal("tea 3", (text_of(answer)))
    end
    assert.has_nothing_left(g)
  end)
end)
