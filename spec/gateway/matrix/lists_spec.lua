-- Lists, the beginning of a session and ping, in all cells of the matrix (spec/helpers/matrix.lua): each client gets what
-- a client of the older of both revisions gets from a server of that revision.
-- pairs: lists; clients 2024-11-05..; upstreams 2024-11-05 sse http stdio
-- pairs: lists; clients 2024-11-05..; upstreams 2025-03-26.. http stdio
local matrix = require "spec.helpers.matrix"

-- All entries of a list, page after page, and the number of pages.
local function all(client, method, member)
  local list, cursor, pages = {}, nil, 0
  repeat
    local page = client:result(method, { cursor = cursor })
    for _, entry in ipairs(page[member]) do list[#list + 1] = entry end
    cursor, pages = page.nextCursor, pages + 1
  until not cursor
  return list, pages
end

-- The entries that a client gets of the cell's upstream, as the upstream names them.
local function of(cell, method, member, key)
  local kept = cell.ann.lists or {}
  cell.ann.lists = kept
  kept[method] = kept[method] or table.pack(all(cell.ann, method, member))
  local list = {}
  local start = cell.form.name .. (key == "name" and "_" or "://")
  for _, entry in ipairs(kept[method][1]) do
    if entry[key]:sub(1, #start) == start then list[#list + 1] = cell:unnamed(entry) end
  end
  table.sort(list, function(a, b) return a[key] < b[key] end)
  return list, kept[method]
end

local function check(method, member, key)
  return function(cell)
    local wanted = all(cell:direct(), method, member)
    table.sort(wanted, function(a, b) return a[key] < b[key] end)
    local got = of(cell, method, member, key)
    for i, entry in ipairs(wanted) do
      local found = got[i]
      entry.execution = nil -- no tool is run as a task
      -- the revision of the client has no title in annotations
      if found and cell.kind.revision == "2025-03-26" and cell.form.revision > "2025-03-26" and found.annotations and not entry.annotations then
        found.annotations.title = nil
        if not next(found.annotations) then found.annotations = nil end
      end
      assert.same(entry, found)
    end
    assert.equal(#wanted, #got)
  end
end

describe("lists:", function()
  local m = matrix.group("lists", { limits = { page = "16KiB" }, without_bob = true })
  lazy_setup(function() m:begin() end)
  lazy_teardown(function() m:finish() end)

  m:feature("tools are listed with all their members", check("tools/list", "tools", "name"))
  m:feature("prompts are listed with all their members", check("prompts/list", "prompts", "name"))
  m:feature("resources are listed with all their members", check("resources/list", "resources", "uri"))
  m:feature("templates are listed with all their members", check("resources/templates/list", "resourceTemplates", "uriTemplate"))

  -- the upstreams give pages of five entries, the gateway pages of 16 KiB
  m:feature("pages of a list have each entry once", function(cell)
    local got, whole = of(cell, "tools/list", "tools", "name")
    local seen = {}
    for _, entry in ipairs(got) do
      assert.is_nil(seen[entry.name])
      seen[entry.name] = true
    end
    assert.is_true(#got > 5)
    assert.is_true(whole[2] > 1, whole[2] .. " pages")
    local cursors = 0
    for _, entry in ipairs(cell.u:all { method = "tools/list" }) do cursors = cursors + (entry.json.params and entry.json.params.cursor and 1 or 0) end
    assert.is_true(cursors > 0)
  end)

  m:feature("instructions are passed on", function(cell)
    local server = cell.ann.c.server or cell.ann:result("server/discover", {})
    local _, count = server.instructions:gsub("\nOf " .. cell.form.name .. "%.", "")
    assert.equal(1, count)
    assert.is_truthy(server.capabilities.tools and server.capabilities.prompts and server.capabilities.resources)
    if cell.ann.c.server then assert.equal(cell.kind.revision, server.protocolVersion) end
  end)

  m:feature("the upstream is opened in its revision", function(cell)
    cell:fence()
    local calls = cell.u:all { method = "tools/call" }
    local call = calls[#calls]
    if call.exchange.modern then
      assert.equal("2026-07-28", call.revision)
      return
    end
    local begun, told = 0, 0
    for _, entry in ipairs(cell.u:all { session = call.session }) do
      begun = begun + (entry.method == "initialize" and 1 or 0)
      told = told + (entry.method == "notifications/initialized" and 1 or 0)
      if entry.method == "tools/call" then assert.is_true(told >= 1) end
    end
    if not cell.form.silent then
      assert.equal(1, begun)
      assert.equal(1, told)
    end
    assert.is_true(cell.form.revision == call.revision or cell.form.name == "dual")
  end)

  m:feature("the client pings", function(cell)
    local answer = cell.ann:call "ping"
    if cell.expected == "whole" then return assert.same({}, answer.result) end
    assert.equal(-32601, answer.error.code)
  end)

  m:specs(it)
end)
