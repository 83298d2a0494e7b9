-- Names and URIs that two upstreams list: one of them serves it, and keeps it. The other one's is withheld, with a
-- warning and a count, once.
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local function resource(uri) return ('{"uri":"%s","name":"%s"}'):format(uri, uri) end

-- A stub that answers each read with its own name.
local function start_stub(name)
  local u = upstream.start { revision = "2025-11-25" }
  u:offer("tools", { "alone_" .. name })
  for _, kind in ipairs { "prompts", "resources", "templates" } do u:offer(kind, {}) end
  u:when("resources/read", function(x) x:result(('{"contents":[{"uri":"%s","text":"%s"}]}'):format(x.params.uri, name)) end)
  return u
end

-- The order of the file is that of the text.
local CONFIG <const> = [[
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
workers: 2
scripts: {path: scripts}
upstreams:
  a: {url: "%s", prefix: "", list_wait: 20s}
  b: {url: "%s", prefix: "", list_wait: 20s}
]]

local function gate(a, b) return gateway.start { config = CONFIG:format(a.url, b.url) } end

-- Lists what a stub offers anew, and waits until the gateway has read it.
local function change(u, kind, list)
  local method = kind == "templates" and "resources/templates/list" or kind .. "/list"
  local before = #u:all { method = method }
  u:offer(kind, list)
  u:announce("notifications/" .. (kind == "templates" and "resources" or kind) .. "/list_changed")
  u:wait({ method = method }, before + 1)
end

local function refused(g) return g:status().counters.refused.upstream_routes or 0 end

local function withheld(g, name)
  local found = {}
  for _, one in ipairs(g:status().upstreams[name].withheld or {}) do found[#found + 1] = one.name .. ": " .. one.why end
  return table.concat(found, "; ")
end

local function wait_withheld(g, name, text)
  wait.for_fact(function() return text .. " withheld of " .. name .. ": " .. withheld(g, name) end, 20, function() return withheld(g, name) == text end)
end

describe("a URI that a later upstream serves", function()
  it("stays with it when an earlier one lists it, too, whatever changes then", function()
    local a <close> = start_stub "a"
    local b <close> = start_stub "b"
    b:offer("resources", { resource "file:///x" })
    a:offer("resources", { resource "file:///y" })
    local g <close> = gate(a, b)
    local c <close> = g:client "2025-11-25"
    local function read(uri) return c:result("resources/read", { uri = uri }).contents[1].text end
    assert.equal("b", read "file:///x")
    change(a, "resources", { resource "file:///y", resource "file:///x" })
    wait_withheld(g, "a", "file:///x: upstream 'b' has this name")
    for _ = 1, 4 do                            -- four clients, so that each worker is asked
      local other <close> = g:client "2026-07-28"
      assert.equal("b", other:result("resources/read", { uri = "file:///x" }).contents[1].text)
    end
    assert.equal(1, refused(g))
    change(a, "resources", { resource "file:///x" })
    wait.for_fact("the next list", 20, function() return c:call("resources/read", { uri = "file:///y" }).error end)
    assert.equal("b", read "file:///x")
    assert.equal(1, refused(g))
    local seen = {}
    for _, one in ipairs(c:result("resources/list").resources) do seen[#seen + 1] = one.uri end
    assert.same({ "file:///x" }, seen)
    g:wait_log("name withheld", { upstream = "a", name = "file:///x", taken_by = "b" })
  end)

  it("goes to the other one while the first does not list it, and comes back", function()
    local a <close> = start_stub "a"
    local b <close> = start_stub "b"
    b:offer("resources", { resource "file:///x" })
    a:offer("resources", { resource "file:///y" })
    local g <close> = gate(a, b)
    local c <close> = g:client "2025-11-25"
    local function reads(text)
      wait.for_fact("the text " .. text, 20, function()
        local answer = c:call("resources/read", { uri = "file:///x" })
        return answer.result and answer.result.contents[1].text == text
      end)
    end
    reads "b"
    change(a, "resources", { resource "file:///x", resource "file:///y" })
    wait_withheld(g, "a", "file:///x: upstream 'b' has this name")
    change(b, "resources", { resource "file:///z" })
    reads "a"
    change(b, "resources", { resource "file:///x", resource "file:///z" })
    reads "b"
    wait_withheld(g, "a", "file:///x: upstream 'b' has this name")
  end)
end)

describe("a tool that a later upstream serves", function()
  it("is not taken by one of an earlier upstream with this name, or with one that looks like it", function()
    local a <close> = start_stub "a"
    local b <close> = start_stub "b"
    b:offer("tools", { "pay", "list_all" })
    local g <close> = gate(a, b)
    local c <close> = g:client "2025-11-25"
    upstream.text(c:call("tools/call", { name = "pay", arguments = {} }))
    assert.equal(1, b:ran "pay")
    change(a, "tools", { "alone_a", "pay", "1ist_all" })
    wait_withheld(g, "a", "pay: upstream 'b' has this name; 1ist_all: its name looks like 'list_all'")
    upstream.text(c:call("tools/call", { name = "pay", arguments = {} }))
    upstream.text(c:call("tools/call", { name = "list_all", arguments = {} }))
    assert.same({ 2, 1, 0 }, { b:ran "pay", b:ran "list_all", a:ran "pay" })
    assert.equal(2, refused(g))
    assert.equal(-32602, c:call("tools/call", { name = "1ist_all", arguments = {} }).error.code)
  end)
end)

describe("two upstreams that list the same again and again", function()
  it("leave nothing in the store, and few lines in the log", function()
    local a <close> = start_stub "a"
    local b <close> = start_stub "b"
    local g <close> = gate(a, b)
    local c <close> = g:client "2025-11-25"
    c:result("tools/list")
    local before = g:status().gauges.store_entries
    for round = 1, 3 do
      local list = {}
      for i = 1, 100 do list[i] = resource(("file:///%d/%d"):format(round, i)) end
      change(a, "resources", list)
      change(b, "resources", list)
      wait.for_fact("round " .. round, 20, function() return refused(g) >= round * 100 end)
    end
    change(a, "resources", {})
    change(b, "resources", {})
    wait.for_fact("the store without the owners", 20, function() return g:status().gauges.store_entries <= before + 10 end)
    local _, lines = g:log():gsub("name withheld", "")
    assert.is_true(lines > 0 and lines <= 60, lines .. " lines")
  end)

  it("fill the store with no more decisions than a list may have items, and one of them serves each", function()
    local stubs, entries = {}, {}
    local _ <close> = setmetatable({}, { __close = function()
      for _, u in pairs(stubs) do u:close() end
    end })
    local pairs_of = { one = { "a", "b" }, two = { "c", "d" }, three = { "e", "f" } }
    for _, place in ipairs { { "a", "one" }, { "b", "one" }, { "c", "two" }, { "d", "two" }, { "e", "three" }, { "f", "three" } } do
      local name, list = place[1], {}
      for i = 1, 20 do list[i] = resource(("file:///%s/%d"):format(place[2], i)) end
      stubs[name], entries[name] = start_stub(name), { prefix = name .. "_", list_wait = "20s" }
      stubs[name]:offer("tools", {})
      stubs[name]:offer("resources", list)
    end
    local g <close> = upstream.gateway(stubs, { workers = 1, constants = { upstream_list_items = 20 }, entries = entries })
    local c <close> = g:client "2025-11-25"
    local function count(name) return #(g:status().upstreams[name].withheld or {}) end
    wait.for_fact("what is withheld", 20, function()
      return count "a" + count "b" == 20 and count "c" + count "d" == 20 and count "e" + count "f" == 20
    end)
    assert.is_true(refused(g) >= 20 and refused(g) < 60, refused(g) .. " decisions")      -- of 60
    for group, pair in pairs(pairs_of) do
      -- the upstream of which nothing is withheld: the first one in the file
      local owner = count(pair[1]) == 0 and pair[1] or pair[2]
      for i = 1, 20 do
        local uri = ("file:///%s/%d"):format(group, i)
        assert.equal(owner, c:result("resources/read", { uri = uri }).contents[1].text)
      end
    end
  end)
end)
