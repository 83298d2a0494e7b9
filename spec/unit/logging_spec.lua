local host = require "spec.helpers.host"

local scripts = { ["tools/say.lua"] = [[
return tool { "Say.", input = { level = t.string }, function(args, call) call:log(args.level, { said = true }, "mouth") return "said" end }]] }
local key = "io.modelcontextprotocol/logLevel"

describe("call:log", function()
  local vm
  before_each(function() vm = host.start(scripts) end)
  after_each(host.stop)

  local function heard(level, meta, fields)
    vm:call("tools/call", { name = "say", arguments = { level = level }, _meta = meta }, fields)
    return #vm.last.sent
  end

  it("reaches a stateless client only if its request asks, at or above that level", function()
    assert.equal(0, heard("emergency"))
    assert.equal(0, heard("info", { [key] = "warning" }))
    assert.equal(1, heard("warning", { [key] = "warning" }))
    assert.equal(1, heard("error", { [key] = "debug" }))
    assert.same({ jsonrpc = "2.0", method = "notifications/message", params = { level = "error", logger = "mouth", data = { said = true } } }, vm.last.sent[1])
  end)

  it("reaches a session at or above the level it set", function()
    local fields = { revision = "2025-06-18", has_session = true }
    assert.same({}, vm:call("logging/setLevel", { level = "notice" }, fields))
    assert.equal(2, vm.levels.one)
    assert.equal(0, heard("info", nil, fields))
    assert.equal(1, heard("notice", nil, fields))
    assert.equal(1, heard("warn", nil, fields))
    assert.equal("warning", vm.last.sent[1].params.level)
  end)

  it("knows the levels, and refuses others with a hint", function()
    for _, level in ipairs { "verbose", "warn", 3, "INFO" } do
      assert.equal(-32602, select(2, vm:call("logging/setLevel", { level = level }, { revision = "2025-06-18" })).code)
      assert.equal(-32602, select(2, vm:call("tools/list", { _meta = { [key] = level } })).code)
    end
    assert.equal(-32602, select(2, vm:call("logging/setLevel", nil, { revision = "2025-06-18" })).code)
    heard "infp"
    assert.equal("scripts/tools/say.lua:1: there is no log level 'infp'", vm.logs[1].fields.why)
    assert.truthy(vm.logs[1].fields.hint:find("did you mean 'info'?", 1, true))
  end)
end)
