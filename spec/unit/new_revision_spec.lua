-- A revision that does not exist, 2099-01-01: a new revision needs only one file of differences and one row of the
-- table in C.
local host = require "spec.helpers.host"
local json = host.json

local DATE, FILE = "2099-01-01", "moonpool.protocol.era.2099-01-01"

-- The file lua/moonpool/protocol/era/2099-01-01.lua, without `ttlMs` in the lists of tools.
local file = {
  from = "2026-07-28",
  convert_result = { ["tools/list"] = function(result) result.ttlMs = nil end },
}

local scripts = {
  ["tools/add.lua"] = [[return tool { "Adds.", input = { a = t.integer, b = t.integer }, function(a) return tostring(a.a + a.b) end }]],
  ["tools/greet.lua"] = [[return tool { "Greets.", function(_, call)
    local found, why = call:elicit("who", "Who are you?", { name = t.string })
    return found and "hello " .. found.name or why
  end }]],
}

describe("a new stateless revision", function()
  local vm

  before_each(function()
    local revisions = {}
    for i, row in ipairs(require("modules").revisions) do revisions[i] = row end
    revisions[#revisions + 1] = { date = DATE, stateless = true }
    package.preload[FILE] = function() return file end
    vm = host.start(scripts, { revisions = revisions })
    assert.equal(nil, vm.errors)
  end)
  after_each(function()
    package.preload[FILE] = nil
    host.stop()
  end)

  it("is named by server/discover beside the other stateless one, in all of them", function()
    for _, revision in ipairs { DATE, "2026-07-28" } do
      local found = assert(vm:call("server/discover", {}, { revision = revision }))
      assert.same({ DATE, "2026-07-28" }, found.supportedVersions)
    end
  end)

  it("lists tools with its difference, and the others are as they were", function()
    local function ttl(revision) return select(3, vm:list(revision)).ttlMs end
    assert.equal(nil, ttl(DATE))
    assert.is_number(ttl "2026-07-28")
    assert.equal(nil, ttl "2025-11-25")
  end)

  it("calls tools", function()
    for _, revision in ipairs { DATE, "2026-07-28", "2025-11-25" } do
      assert.equal("5", vm:tool("add", { a = 2, b = 3 }, { revision = revision }).content[1].text)
    end
  end)

  it("has no initialize, and is not negotiated by the one of the others", function()
    local params = { protocolVersion = DATE, capabilities = json.object {}, clientInfo = { name = "spec", version = "1" } }
    local _, err = vm:call("initialize", params, { revision = DATE })
    assert.equal("unknown method 'initialize'", err.message)
    local result = assert(vm:call("initialize", params, { revision = "none", initialized = false }))
    assert.equal("2025-11-25", result.protocolVersion)
  end)

  it("asks its client in the result, like all stateless revisions", function()
    for _, revision in ipairs { DATE, "2026-07-28" } do
      local able = { revision = revision, capabilities = { elicitation = { form = json.object {} } } }
      local asked = assert(vm:tool("greet", {}, able))
      assert.equal("input_required", asked.resultType)
      assert.equal("elicitation/create", asked.inputRequests.who.method)
      assert.equal(0, #vm.asked)
      able.revision = revision
      local result = assert(vm:call("tools/call", {
        name = "greet", arguments = {}, requestState = asked.requestState,
        inputResponses = { who = { action = "accept", content = { name = "Ann" } } },
      }, able))
      assert.equal("hello Ann", result.content[1].text)
    end
  end)
end)
