-- What a schema calls secret is in no record and in no redacted line of the audit, wherever in the schema it is said;
-- and no text makes hiding it slow.
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local token = ("o"):rep(32)
local MARK <const> = "mark-7f31c2"

local many = [[
local pw = t.string { format = "password" }
return tool { "Takes secrets of all shapes.", input = {
  list = t.optional(t.list(pw)),
  lists = t.optional(t.list(t.list(t.object { x = pw }))),
  tuple = t.optional(t.tuple { t.string, pw }),
  rest = t.optional(t.tuple({ t.string }, { rest = pw })),
  map = t.optional(t.map(pw)),
  any = t.optional(t.any_of { pw, t.integer }),
  nullable = t.optional(t.nullable(pw)),
  one = t.optional(t.one_of { t.object { a = pw }, t.object { b = t.integer } }),
  tree = t.optional(t.define("tree", function(tree) return t.object { word = pw, leaves = t.optional(t.list(tree)) } end)),
  whole = t.optional(t.object({ x = t.string }, { write_only = true })),
  plain = t.optional(pw),
}, function(args) return json.encode(args) end }]]

local given = {
  list = { MARK }, lists = { { { x = MARK } } }, tuple = { "a", MARK }, rest = { "a", "b" .. MARK, MARK }, map = { k = MARK }, any = MARK, nullable = MARK,
  one = { a = MARK }, tree = { word = "b", leaves = { { word = "c", leaves = { { word = MARK } } } } }, whole = { x = MARK }, plain = MARK,
}

local scripts = {
  ["tools/many.lua"] = many,
  ["tools/pin.lua"] = [[return tool { "Has a number.", input = { code = t.integer { write_only = true }, n = t.integer },
    output = { code = t.integer, n = t.integer, words = t.list(t.string { format = "password" }) },
    function(args) return { code = args.code, n = args.n, words = { "word-" .. 9 * args.code } } end }]],
  ["tools/echo.lua"] = 'return tool { "Echoes.", input = { password = t.optional(t.string), text = t.optional(t.string), rest = t.optional(t.map(t.string)) }, '
    .. 'function(args) return "ok" end }',
  ["prompts/greet.lua"] = 'return prompt { "Greets.", args = { pin = t.string { format = "password" } }, function() return "hello" end }',
}

local function start(more)
  return gateway.start { scripts = scripts, constants = { record_call = 4 << 20, record_bytes = 64 << 20 }, config = {
    admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } }, record = { tools = { "*" } },
    limits = more, log = not more and { audit = "audit.jsonl", audit_arguments = "redacted" } or nil,
  } }
end

local function records(g, n)
  wait.for_fact(n .. " records", 30, function()
    local counts = g:status().counters.records
    return counts.kept + counts.skipped == n
  end)
  local list = {}
  local body = client.request(g, { path = "/api/records", headers = { Authorization = "Bearer " .. token } }, { admin = true }).body
  for line in body:gsub("^[^\n]*\n", ""):gmatch "[^\n]+" do list[#list + 1] = line end
  return list
end

describe("a value that its schema calls secret", function()
  it("is hidden in records and in the audit, in lists, tuples, maps, alternatives, references and prompts", function()
    local g <close> = start()
    local peer <close> = g:client "2026-07-28"
    local n = 0
    for name, value in pairs(given) do
      local answer = peer:call("tools/call", { name = "many", arguments = { [name] = value } })
      assert.truthy(answer.result and not answer.result.isError, name .. ": " .. cjson.encode(answer))
      n = n + 1
    end
    assert.truthy(peer:call("prompts/get", { name = "greet", arguments = { pin = MARK } }).result)
    for _, line in ipairs(records(g, n)) do assert.is_nil(line:find(MARK, 1, true), line) end
    wait.for_fact("the lines of the audit", 20, function() return select(2, g:file "audit.jsonl":gsub('"event":"call"', "")) >= n + 1 end)
    for line in g:file "audit.jsonl":gmatch "[^\n]+" do assert.is_nil(line:find(MARK, 1, true), line) end
    assert.matches('"arguments":{"list":["***"]}', g:file "audit.jsonl", 1, true)
    assert.matches('"arguments":{"tuple":["a","***"]}', g:file "audit.jsonl", 1, true)
  end)

  it("is hidden in the result of a record: where it is a number, and where the schema of the output says so", function()
    local g <close> = start()
    local peer <close> = g:client "2026-07-28"
    assert.equal(4711, peer:result("tools/call", { name = "pin", arguments = { code = 4711, n = 7 } }).structuredContent.code)
    local line = records(g, 1)[1]
    assert.is_nil(line:gsub('"values".*$', ""):find("4711", 1, true), line)
    assert.is_nil(line:find("word-42399", 1, true), line)
    assert.equal(7, cjson.decode(line).result.structuredContent.n)
  end)
end)

describe("a recorded call", function()
  it("with long words is kept, in a time that grows with their length alone", function()
    local g <close> = start { body = "16MiB", call = { memory = "256MiB" } }
    local peer <close> = g:client "2026-07-28"
    assert.equal("ok", peer:result("tools/call", { name = "echo", arguments = { text = ("x"):rep(300000) } }).content[1].text)
    local before = g:cpu()
    local arguments = { password = ("a"):rep(1000000) .. "b", text = ("a"):rep(2000000) }
    assert.equal("ok", peer:result("tools/call", { name = "echo", arguments = arguments }).content[1].text)
    g:wait_status(function(status) return status.counters.records.kept == 2 end)
    -- a search that compares the whole password at each position would take a minute
    assert.truthy(g:cpu() - before < 10, g:cpu() - before)
  end)

  it("has the pairs of a query that are behind another '='", function()
    local g <close> = start()
    local peer <close> = g:client "2026-07-28"
    for _, text in ipairs { "x=password=" .. MARK, "filter=a=b;token=" .. MARK .. "&c=d", "http://u:" .. MARK .. "@h/?a=b" } do
      peer:result("tools/call", { name = "echo", arguments = { text = text } })
    end
    for _, line in ipairs(records(g, 3)) do assert.is_nil(line:find(MARK, 1, true), line) end
  end)

  it("with more secrets than can be looked for is not kept, and its line says so", function()
    local g <close> = start()
    local peer <close> = g:client "2026-07-28"
    local rest = {}
    for i = 1, 300 do rest["token" .. i] = "a secret of some length " .. i end
    peer:result("tools/call", { name = "echo", arguments = { rest = rest, text = MARK } })
    local line = records(g, 1)[1]
    assert.is_nil(line:find(MARK, 1, true))
    assert.equal("it has more secrets than can be looked for in its texts", cjson.decode(line).skipped)
    assert.equal(1, g:status().counters.records.skipped)
  end)
end)
