-- Lists and resources that change, in all cells of the matrix (spec/helpers/matrix.lua): each client is notified once, and
-- of a resource those alone that have subscribed to it.
-- pairs: lists and resources that change; clients 2024-11-05..; upstreams 2024-11-05 sse http stdio
-- pairs: lists and resources that change; clients 2024-11-05..; upstreams 2025-03-26.. http stdio
local cjson = require "cjson.safe"
local matrix = require "spec.helpers.matrix"
local forms = require "spec.helpers.matrix.forms"
local wait = require "spec.helpers.wait"

local EXTRA <const> = {
  tools = { "tools/list", "tools", '{"name":"extra","inputSchema":{"type":"object"}}' },
  prompts = { "prompts/list", "prompts", '{"name":"extra"}' },
  resources = { "resources/list", "resources", '{"uri":"%s://extra","name":"extra"}' },
}

-- The stub offers what is in `u.more`, too.
local function prepare(u, form)
  local plain = u.offered
  u.more = {}
  function u:offered(kind, revision)
    local list = table.move(plain(self, kind, revision), 1, 100, 1, {})
    if self.more[kind] then list[#list + 1] = { name = "extra", bytes = (EXTRA[kind][3]:gsub("%%s", form.name)) } end
    return list
  end
end

local function count(peer, method)
  local n = 0
  for _, note in ipairs(peer:notes()) do n = n + (note.method == method and 1 or 0) end
  return n
end

-- True if the list of a client has the new entry of an upstream.
local function has_extra(peer, kind, form)
  local cursor
  repeat
    local page = peer:result(EXTRA[kind][1], { cursor = cursor })
    for _, entry in ipairs(page[EXTRA[kind][2]]) do
      if (entry.uri or entry.name):find("^" .. form.name .. "[^%w]+extra$") then return true end
    end
    cursor = page.nextCursor
  until not cursor
  return false
end

-- Waits until an upstream can say that something has changed, in each session.
local function wait_ways(u, form)
  if form.silent then return end
  wait.for_fact("a way for changes of " .. form.name, 20, function()
    u:all {}
    if form.transport ~= "http" then return u:count_sessions() > 0 end
    if form.revision == "2026-07-28" and #u:listening() == 0 then return false end
    for _, session in pairs(u.sessions) do
      if session.revision and session.initialized and not session.stream then return false end
    end
    return true
  end)
end

describe("changes:", function()
  local m = matrix.group("changes", {
    prepare = prepare, without_bob = true, shared_notes = true, entry = { refresh = "1h" }, entries = { lone = { refresh = "1s" } },
    listen = { toolsListChanged = true, promptsListChanged = true, resourcesListChanged = true },
  })
  local all, told = {}, {}
  lazy_setup(function() m:begin() end)
  lazy_teardown(function() m:finish() end)

  local function settle() m.g:wait_status(function(status) return status.gauges.tasks == 0 end) end

  -- Changes a list of each upstream, one after the other; all clients listen. Notes how often each was notified.
  local function change(kind)
    if told[kind] then return told[kind] end
    told[kind] = {}
    for i, one in ipairs(forms.clients) do all[i] = m:pair(one) end
    local method = ("notifications/%s/list_changed"):format(kind)
    for _, form in ipairs(forms.all) do
      local u = m.stubs[form.name]
      settle()
      wait_ways(u, form)
      for _, pair in ipairs(all) do
        pair.ann:mark()
        pair.bob:mark()
      end
      u.more[kind] = true
      if not form.silent then u:announce(method) end
      local row = {}
      for i, pair in ipairs(all) do
        row[forms.clients[i]] = pair
        for _, peer in pairs(pair) do
          pcall(wait.for_fact, "the notification", 5, function() return count(peer, method) > 0 end)
        end
      end
      settle()
      for i, pair in ipairs(all) do
        row[forms.clients[i]] = { ann = count(pair.ann, method), bob = count(pair.bob, method), all = #pair.ann:notes(), has = has_extra(pair.ann, kind, form) }
      end
      told[kind][form.name] = row
    end
    return told[kind]
  end

  for _, kind in ipairs { "tools", "prompts", "resources" } do
    m:feature(kind .. " that change", function(cell)
      local seen = change(kind)[cell.form.name][cell.kind]
      assert.same({ ann = 1, bob = 1, all = 1, has = true }, seen)
    end)
  end

  m:feature("a resource that is subscribed to", function(cell)
    local u, uri, method = cell.u, cell:uri "text", "notifications/resources/updated"
    local is_old = cell.kind.revision ~= "2026-07-28"
    local stream
    if is_old then
      local answer = cell.ann:call("resources/subscribe", { uri = uri })
      if cell.expected ~= "whole" then return assert.is_number(answer.error.code) end
      assert.is_table(answer.result, cjson.encode(answer))
    else
      stream = cell.ann:open("subscriptions/listen", { notifications = { resourceSubscriptions = { uri } } })
      local honoured = stream:wait_event("notifications/subscriptions/acknowledged").json.params.notifications
      assert.same(cell.expected == "whole" and { uri } or nil, honoured.resourceSubscriptions)
      if cell.expected ~= "whole" then return stream:close() end
    end
    local function is_subscribed()
      u:all {}
      if cell.form.revision == "2026-07-28" then
        for _, x in ipairs(u:listening()) do
          for _, one in ipairs(x.filter.resourceSubscriptions or {}) do
            if one == uri then return true end
          end
        end
      end
      for _, entry in ipairs(u:all { method = "resources/subscribe" }) do
        if entry.session.subscribed and entry.session.subscribed[uri] then return true end
      end
    end
    wait.for_fact("the subscription at the upstream", 20, is_subscribed)
    cell.ann:mark()
    u:announce(method, { uri = uri })
    local notes = cell:wait_notes(1)
    assert.equal(uri, notes[1].params.uri)
    if is_old then
      assert.same({}, cell.ann:result("resources/unsubscribe", { uri = uri }))
    else
      stream:hang_up()
    end
-- the upstream may go on: others may want it, and the end is told later
    u:announce(method, { uri = uri })
    cell:fence()
    assert.same({ method }, cell:methods())
    assert.equal(0, count(cell.bob, method))
  end)

  m:specs(it)
end)
