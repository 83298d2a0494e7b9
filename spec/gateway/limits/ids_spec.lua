-- What a request's sender chooses and what outlives the request's bytes has a cap: its id, and the token of progress.
local gateway = require "spec.helpers.gateway"
local json = require "spec.helpers.json"
local stdio = require "spec.helpers.stdio"
local wire = require "spec.helpers.wire"

local MOST <const> = 4096

local scripts = { ["tools/add.lua"] = 'return tool { "Add.", input = { a = t.number }, function(a) return tostring(a.a) end }' }

local KINDS = { "tools/call", "server/discover", "subscriptions/listen" }

-- A request of 2026-07-28 with an id of `size` bytes of JSON, or a token of `size` bytes.
local function request(method, size, is_token)
  local text = ("x"):rep(size - 2)
  local meta = wire.meta "2026-07-28"
  if is_token then meta.progressToken = text end
  return wire.message(is_token and "short" or text, method,
    { name = method == "tools/call" and "add" or nil, arguments = method == "tools/call" and { a = 1 } or nil, notifications = {}, _meta = meta })
end

local function refused(g) return g:status().counters.refused.ids or 0 end

describe("the id of a request and its token of progress", function()
  it("have at most 4 KiB, with each reader of messages", function()
    local g <close> = gateway.start { scripts = scripts }
    for i, method in ipairs(KINDS) do
      for _, is_token in ipairs { false, true } do
        local message = request(method, MOST, is_token)
        if method ~= "subscriptions/listen" then
          assert.truthy(wire.post(g, message, wire.mirrored(message)):json().result, method)
        end
        local before = refused(g)
        message = request(method, MOST + 1, is_token)
        local response = wire.post(g, message, wire.mirrored(message))
        assert.equal(400, response.status)
        local answer = response:json()
        assert.same(is_token and { "short", -32602 } or { nil, -32600 }, { answer.id, answer.error.code }, i)
        assert.equal(is_token and '"_meta.progressToken" must have at most 4096 bytes' or '"id" must have at most 4096 bytes', answer.error.message)
        assert.equal(before + 1, refused(g))
      end
    end
    assert.has_nothing_left(g)
  end)

  it("have the same cap in a batch, and over stdio", function()
    local s <close> = stdio.start { scripts = scripts }
    local me = s:client "2025-03-26"
    s:send { wire.message(("x"):rep(MOST), "ping"), wire.message(7, "ping") }
    local answers = s:expect(function(message) return message[1] end)
    local by_id = {}
    for _, answer in ipairs(answers) do by_id[answer.id or "none"] = answer end
    assert.equal(-32600, by_id.none.error.code)
    assert.truthy(by_id[7].result)
    s:send(json.encode(wire.message(8, "ping", { _meta = { progressToken = ("9"):rep(MOST + 1) } })))
    assert.equal(-32602, s:expect(8).error.code)
    assert.same({}, me:result "ping")
  end)
end)
