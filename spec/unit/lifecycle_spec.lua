local host = require "spec.helpers.host"

local function initialize(vm, asked, fields)
  local call = { revision = "none", initialized = false }
  for name, value in pairs(fields or {}) do call[name] = value end
  return vm:call("initialize", { protocolVersion = asked, clientInfo = { name = "c", version = "1" }, capabilities = { sampling = {} } }, call)
end

describe("initialize", function()
  local vm
  before_each(function() vm = host.start({}, { server = { name = "pool", version = "1.2", instructions = "Be kind." } }) end)
  after_each(host.stop)

  it("answers the revision that was asked for", function()
    for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" } do
      assert.same({
        protocolVersion = revision, capabilities = { tools = { listChanged = true }, logging = {} },
        serverInfo = { name = "pool", version = "1.2" }, instructions = "Be kind.",
      }, initialize(vm, revision))
    end
  end)

  it("answers the newest legacy revision to a modern or unknown one", function()
    for _, asked in ipairs { "2026-07-28", "1999-01-01", "2099-12-31", "" } do
      assert.equal("2025-11-25", initialize(vm, asked).protocolVersion)
      assert.equal("2025-11-25", vm.sessions[#vm.sessions].revision)
    end
  end)

  it("opens the session with what the client said", function()
    initialize(vm, "2025-06-18")
    assert.equal('{"name":"c","version":"1"}', vm.sessions[1].client)
    assert.equal('{"sampling":{}}', vm.sessions[1].capabilities)
  end)

  it("is refused in a live session, which is not touched", function()
    local _, err = initialize(vm, "2025-06-18", { revision = "2025-06-18", initialized = true, has_session = true })
    assert.equal(-32600, err.code)
    assert.same({}, vm.sessions)
  end)

  it("is refused without a version, or with parts that are no objects", function()
    for _, params in ipairs { {}, { protocolVersion = 1 }, { protocolVersion = "2025-06-18", clientInfo = "x" },
      { protocolVersion = "2025-06-18", capabilities = host.json.array {} } } do
      assert.equal(-32602, select(2, vm:call("initialize", params, { revision = "none", initialized = false })).code)
    end
    assert.equal(-32602, select(2, vm:call("initialize", nil, { revision = "none", initialized = false })).code)
    assert.same({}, vm.sessions)
  end)
end)

describe("a session that has not initialized", function()
  after_each(host.stop)

  it("may ping, and gets an error that says what to do for everything else", function()
    local vm = host.start {}
    local fields = { revision = "none", initialized = false, has_session = true }
    assert.same({}, vm:call("ping", nil, fields))
    for _, method in ipairs { "tools/list", "tools/call", "logging/setLevel", "no/such" } do
      local result, err = vm:call(method, {}, fields)
      assert.is_nil(result)
      assert.equal(-32600, err.code)
      assert.same({ reason = "not_initialized" }, err.data)
    end
    assert.equal("2025-11-25", initialize(vm, "2025-11-25", fields).protocolVersion)
  end)
end)

describe("server/discover", function()
  after_each(host.stop)

  it("says versions, capabilities, instructions, and how long that keeps", function()
    local vm = host.start({}, { server = { name = "pool", version = "1.2", instructions = "Be kind." } })
    local result = vm:call("server/discover", {})
    assert.same({ "2026-07-28" }, result.supportedVersions)
    assert.same({ tools = { listChanged = true }, logging = {} }, result.capabilities)
    assert.equal("Be kind.", result.instructions)
    assert.equal("integer", math.type(result.ttlMs))
    assert.equal("public", result.cacheScope)
    assert.equal("complete", result.resultType)
    assert.equal('{"io.modelcontextprotocol/serverInfo":{"name":"pool","version":"1.2"}}', host.json.encode(result._meta))
  end)
end)

describe("tools/list", function()
  after_each(host.stop)

  it("has one page, so no cursor is known", function()
    local vm = host.start {}
    assert.equal('"tools":[]', host.json.bytes(vm:call("tools/list", nil)):match '"tools":%[%]')
    assert.same({ code = -32602, message = "unknown cursor" }, select(2, vm:call("tools/list", { cursor = "x" })))
    assert.same({ code = -32602, message = "unknown cursor" }, select(2, vm:call("tools/list", { cursor = "" })))
  end)
end)
