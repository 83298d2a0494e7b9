-- Calls of tools, prompts, resources and completion, in all cells of the matrix (spec/helpers/matrix.lua): the results are
-- those of a direct connection of the older of both revisions, or the conversions below.
-- pairs: tools, prompts, resources and completion; clients 2024-11-05..; upstreams 2024-11-05 sse http stdio
-- pairs: tools, prompts, resources and completion; clients 2024-11-05..; upstreams 2025-03-26.. http stdio
local cjson = require "cjson.safe"
local matrix = require "spec.helpers.matrix"
local raw = require "spec.helpers.upstream.raw"

local NEWEST <const> = "2026-07-28"

-- The text of an error may name things by the gateway's names for them; its code and data are compared.
local function comparable(cell, answer)
  if answer.error then return { error = { code = answer.error.code, data = cell:unnamed(answer.error.data) } } end
  return { result = matrix.plain(cell:unnamed(answer.result)) }
end

-- Params with the plain stub's names.
local function mine(cell, params)
  local made = {}
  for name, value in pairs(params) do made[name] = value end
  if made.name then made.name = cell:named(made.name) end
  if made.uri then made.uri = cell:uri(made.uri:match "^stub://(.*)$") end
  if made.ref then
    made.ref = { type = made.ref.type, name = made.ref.name and cell:named(made.ref.name), uri = made.ref.uri and cell:uri(made.ref.uri:match "^stub://(.*)$") }
  end
  return made
end

-- The answer is that of a direct connection.
local function same(method, params)
  return function(cell)
    local got = comparable(cell, cell.ann:call(method, mine(cell, params)))
    local direct = cell:direct():call(method, params)
    assert.same({ error = direct.error and { code = direct.error.code, data = direct.error.data }, result = matrix.plain(direct.result) }, got)
    return got
  end
end

local function tool(name, arguments) return same("tools/call", { name = name, arguments = arguments }) end

-- The n-th block of the tool `kinds`, as an upstream of the form sends it; nil where its revision has none.
local function block(n)
  return function(cell) return cell:unnamed(cell:call("kinds").result.content)[n] end
end

local function prepare(u)
  function u.handlers.again(x, reply)
    reply(x:complete(('{"content":[{"type":"text","text":%s}],"_meta":{"example.com/answer":"of %s"}}'):format(
      raw.quote(raw.at(x.text, "params", "_meta", "example.com/question") or "none"), x.server.scheme)))
  end
  function u.handlers.look(x, reply)
    reply(x:complete(('{"content":[{"type":"text","text":%s}]}'):format(raw.quote(raw.at(x.text, "params", "x-other") or "none"))))
  end
end

describe("calls:", function()
  local m = matrix.group("calls", { prepare = prepare })
  lazy_setup(function() m:begin() end)
  lazy_teardown(function() m:finish() end)

  m:feature("arguments and text", function(cell)
    tool("echo", { text = "ann's", number = 1.5, list = { 1, { deep = true } }, nothing = cjson.null })(cell)
    local before = cell.u:all { tool = "echo" }
    assert.equal("ann's", before[#before].json.params.arguments.text)
  end)

  m:feature("structured content", function(cell)
    local got = tool("sum", { a = 1, b = 2.5 })(cell)
    assert.same(cell.expected == "whole" and { sum = 3.5 } or nil, got.result.structuredContent)
    assert.same({ { type = "text", text = '{"sum":3.5}' } }, got.result.content)
  end)

  m:feature("a result with isError", tool("complain", { a = 1 }))

  m:feature("an error with data", function(cell)
    local answer = cell:call("fail", { a = 1 })
    assert.same({ code = -32123, message = "The stub fails", data = { why = "a test", number = 1 } }, answer.error)
  end)

  m:feature("an unknown tool", tool("nothing", { a = 1 }))

  m:feature("_meta of a request and of a result", function(cell)
    local answer = cell:call("again", { a = 1 }, { ["example.com/question"] = { of = "ann" } })
    assert.same({ of = "ann" }, cjson.decode(answer.result.content[1].text))
    assert.equal("of " .. cell.form.name, answer.result._meta["example.com/answer"])
  end)

  m:feature("members of params that no revision has", function(cell)
    local answer = cell.ann:call("tools/call", { name = cell:named "look", arguments = { a = 1 }, ["x-other"] = { 1, "b" } })
    assert.same({ 1, "b" }, cjson.decode(answer.result.content[1].text))
  end)

  m:feature("text with annotations", function(cell)
    assert.same({ type = "text", text = "café", annotations = { audience = { "user" }, priority = 1 } }, block(1)(cell))
  end)

  m:feature("an image", function(cell) assert.same({ type = "image", data = "AAEC", mimeType = "image/png" }, block(2)(cell)) end)

  m:feature("an embedded resource", function(cell)
    assert.same({ type = "resource", resource = { uri = "stub://text", mimeType = "text/plain", text = "hello" } }, block(3)(cell))
  end)

  m:feature("audio", function(cell)
    local got = block(4)(cell)
    if cell.form.revision < "2025-03-26" then return assert.is_nil(got) end
    if cell.expected == "whole" then return assert.same({ type = "audio", data = "AAEC", mimeType = "audio/wav" }, got) end
    assert.is_true(got.type == "resource" and got.resource.blob == "AAEC" and got.resource.mimeType == "audio/wav", cjson.encode(got))
  end)

  m:feature("a link to a resource", function(cell)
    local got = block(5)(cell)
    if cell.form.revision < "2025-06-18" then return assert.is_nil(got) end
    if cell.expected == "whole" then return assert.same({ type = "resource_link", uri = "stub://text", name = "text", mimeType = "text/plain" }, got) end
    assert.equal("text", got.type)
    assert.is_truthy(got.text:find("stub://text", 1, true))
  end)

  m:feature("a prompt with arguments", same("prompts/get", { name = "greet", arguments = { who = "you", style = "Hi" } }))
  m:feature("a prompt that lacks an argument", same("prompts/get", { name = "greet" }))
  m:feature("an unknown prompt", same("prompts/get", { name = "nothing" }))
  m:feature("a resource of text", same("resources/read", { uri = "stub://text" }))
  m:feature("a resource of bytes", same("resources/read", { uri = "stub://bytes" }))
  m:feature("a resource of a template", same("resources/read", { uri = "stub://item/7" }))

  m:feature("a resource that is missing", function(cell)
    local err = cell.ann:call("resources/read", { uri = cell:uri "missing" }).error
    assert.equal(cell.kind.revision == NEWEST and -32602 or -32002, err.code)
    assert.same({ uri = cell:uri "missing" }, err.data)
  end)

  m:feature("completion of an argument of a prompt", same("completion/complete", {
    ref = { type = "ref/prompt", name = "greet" }, argument = { name = "who", value = "x" },
  }))
  m:feature("completion of a part of a URI", same("completion/complete", {
    ref = { type = "ref/resource", uri = "stub://item/{id}" }, argument = { name = "id", value = "7" },
  }))

  m:feature("completion with a context", function(cell)
    local got = cell.ann:result("completion/complete", mine(cell, {
      ref = { type = "ref/prompt", name = "greet" }, argument = { name = "style", value = "x" }, context = { arguments = { who = "you" } },
    }))
    assert.same({ "greet-x", "style-x", cell.expected == "whole" and "after-you-x" or nil }, got.completion.values)
  end)

  m:specs(it)
end)
