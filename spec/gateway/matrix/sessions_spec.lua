-- What belongs to one client, in all cells of the matrix (spec/helpers/matrix.lua): what an upstream keeps in a session, the
-- lists of a session, and the stream of a call, which its client can resume.
-- pairs: sessions of single clients; clients 2024-11-05..; upstreams 2024-11-05 sse http stdio
-- pairs: sessions of single clients; clients 2024-11-05..; upstreams 2025-03-26..2025-11-25 http stdio
local cjson = require "cjson.safe"
local client = require "spec.helpers.client"
local forms = require "spec.helpers.matrix.forms"
local matrix = require "spec.helpers.matrix"
local peers = require "spec.helpers.matrix.peers"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local CHANGED <const> = "notifications/tools/list_changed"

-- The tool `again` adds the tool `secret` in the session in which it is called.
local function prepare(u)
  u:when("tools/list", function(x)
    local list = {}
    for i, one in ipairs(u:offered("tools", x.revision)) do list[i] = one.bytes end
    if x.session.is_in then list[#list + 1] = '{"name":"secret","inputSchema":{"type":"object"}}' end
    x:result(x:complete('{"tools":[' .. table.concat(list, ",") .. "]}", true))
  end)
  function u.handlers.again(x, reply)
    x.session.is_in = true
    if not x.modern then u:push('{"jsonrpc":"2.0","method":"' .. CHANGED .. '"}', x.session) end
    reply(x:complete '{"content":[{"type":"text","text":"done"}]}')
  end
  function u.handlers.secret(x, reply) reply(x:complete('{"content":[{"type":"text","text":"of ann"}],"isError":' .. tostring(not x.session.is_in) .. "}")) end
end

local function has_secret(cell, peer)
  local cursor
  repeat
    local page = peer:result("tools/list", { cursor = cursor })
    for _, tool in ipairs(page.tools) do
      if tool.name == cell:named "secret" then return true end
    end
    cursor = page.nextCursor
  until not cursor
  return false
end

local function call(cell, peer, name) return peer:call("tools/call", { name = cell:named(name), arguments = {} }) end

local function session_of(cell, tool)
  local entries = cell.u:all { tool = tool }
  return entries[#entries].session
end

describe("sessions:", function()
  local m = matrix.group("sessions", { prepare = prepare, listen = { toolsListChanged = true }, shared_notes = true, entry = { refresh = "1h" } })
  lazy_setup(function() m:begin() end)
  lazy_teardown(function() m:finish() end)

  m:feature("what an upstream keeps in a session", function(cell)
    local first = tonumber(upstream.text(call(cell, cell.ann, "counter")))
    local of_ann = session_of(cell, "counter")
    call(cell, cell.bob, "counter")
    local of_bob = session_of(cell, "counter")
    local second = tonumber(upstream.text(call(cell, cell.ann, "counter")))
    if cell.expected ~= "whole" then return assert.is_number(second) end -- it keeps nothing for a client
    assert.equal(first + 1, second)
    assert.are_not.equal(of_ann, of_bob)
  end)

  m:feature("a list of a session", function(cell)
    if cell.expected ~= "whole" then return assert.is_false(has_secret(cell, cell.bob)) end
    local function count(peer)
      local n = 0
      for _, note in ipairs(peer:notes()) do n = n + (note.method == CHANGED and 1 or 0) end
      return n
    end
    assert.equal("done", upstream.text(call(cell, cell.ann, "again")))
    wait.for_fact("the notification", 20, function() return count(cell.ann) > 0 end)
    assert.is_true(has_secret(cell, cell.ann))
    assert.equal("of ann", upstream.text(call(cell, cell.ann, "secret")))
    assert.is_false(has_secret(cell, cell.bob))
    assert.equal(-32602, call(cell, cell.bob, "secret").error.code)
    cell:fence()
    assert.equal(1, count(cell.ann))
    assert.equal(0, count(cell.bob))
  end)

  m:feature("the stream of a call is resumed", function(cell)
    local stream, x = cell:hold { progressToken = "t" }
    x:report(1)
    local first = stream:wait_event "notifications/progress"
    if cell.kind.transport ~= "http" then -- there is one stream, which cannot be lost without its session
      cell:release(stream)
      assert.is_nil(first.id)
      return
    elseif cell.kind.revision == "2026-07-28" then
      local headers = cell.ann.c:headers(cell.ann.c:message "ping")
      headers.Accept, headers["Last-Event-ID"] = "text/event-stream", "1-1"
      assert.equal(405, client.request(m.g, { method = "GET", path = "/mcp", headers = headers }).status)
      return cell:release(stream)
    end
    stream:close()
    x:report(2)
    cell.u:release(cell.key)
    local rest = cell.ann.c:get_stream { ["Last-Event-ID"] = first.id }
    assert.equal(2, rest:wait_event("notifications/progress").json.params.progress)
    assert.equal("released", rest:wait_event(stream.id).json.result.content[1].text)
    rest.connection:wait_end()
    local came = {}
    for _, message in ipairs(rest:messages()) do came[#came + 1] = message.method or message.id end
    assert.same({ "notifications/progress", stream.id }, came)
    assert.equal(2, #cell.ann:notes(), cjson.encode(cell.ann:notes()))
    rest:close()
  end)

  -- A third client of each kind calls each upstream and leaves: what the upstreams keep for it ends.
  local left = {}
  m:feature("the end of a session", function(cell)
    if not left[cell.kind] then
      local carl = peers.start(m, cell.kind, "carl-1", matrix.CAN, matrix.constants)
      left[cell.kind] = {}
      for _, form in ipairs(forms.all) do
        wait.for_fact("a call of " .. form.name, 20, function()
          return carl:call("tools/call", { name = form.name .. "_counter", arguments = {} }).result
        end)
        local entries = m.stubs[form.name]:all { tool = "counter" }
        left[cell.kind][form.name] = entries[#entries].session
      end
      if carl.own then carl.own:close() end
      if cell.kind.transport == "http" and carl.c.session then carl.c:delete() end
      carl:close()
    end
    local session = left[cell.kind][cell.form.name]
    local function is_over()
      cell.u:all {}
      return session.ended or session.child and session.child.ended
    end
    local ends_gateway = cell.kind.transport == "stdio" and cell.form.transport == "stdio" -- with its programs
    if cell.expected == "whole" or ends_gateway then return wait.for_fact("the end of the session", 20, is_over) end
    -- it is the program for all, or the session of a principal that has no session here
    assert.is_falsy(is_over())
  end)

  m:specs(it)
end)
