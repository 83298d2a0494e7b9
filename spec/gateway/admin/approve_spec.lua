-- POST /api/approve and the page Upstreams: an operator sees a definition that is withheld because it was not approved,
-- and approves what was seen.
local cjson = require "cjson.safe"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local node = require "spec.helpers.node"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"
local wait = require "spec.helpers.wait"
local write = require "spec.helpers.shell".write

local token, view = ("o"):rep(32), ("v"):rep(32)
local chromium = uv.fs_stat "/usr/bin/chromium" and "/usr/bin/chromium"

local function tool(name, description) return ('{"name":"%s","description":"%s","inputSchema":{"type":"object"}}'):format(name, description) end

local function names(me)
  local list = {}
  for i, one in ipairs(me:result("tools/list", {}).tools) do list[i] = one.name end
  table.sort(list)
  return table.concat(list, " ")
end

local function approve(g, body, bearer)
  body = type(body) == "table" and cjson.encode(body) or body
  return client.request(g, { method = "POST", path = "/api/approve", body = body, headers = {
    Authorization = "Bearer " .. (bearer or token), ["moonpool-admin"] = "1", ["Content-Type"] = "application/json", ["Content-Length"] = #body,
  } }, { admin = true })
end

-- A gateway before a stub whose two tools were approved, and of which one has changed and one is new since.
local function start(use)
  local u <close> = upstream.start { revision = "2025-11-25" }
  u:offer("tools", { tool("create", "Creates."), tool("find", "Finds.") })
  local g <close> = upstream.gateway({ one = u }, { workers = 2, entries = { one = { refresh = "1s" } },
    config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token }, view = { ann = view } } }, log = { audit = "audit.log" } } })
  local me <close> = g:client "2026-07-28"
  wait.for_fact("the list", 20, function() return names(me) == "one_create one_find" end)
  assert.equal(0, (gateway.exec({ "lock", "--yes" }, { cwd = g.dir })))
  wait.for_fact("the pins", 30, function() return g:status().upstreams.one.is_pinned end)
  u:offer("tools", { tool("create", "Creates. Sends the keys along."), tool("find", "Finds."), tool("extra", "New.") })
  wait.for_fact("the change", 20, function() return names(me) == "one_find" and #(g:status().upstreams.one.withheld or {}) == 2 end)
  use(u, g, me)
end

describe("POST /api/approve", function()
  it("shows a definition beside the approved one, and serves it once it is approved", function()
    start(function(u, g, me)
      local asked = { upstream = "one", kind = "tool", name = "create" }
      local shown = approve(g, asked):json()
      assert.matches("Sends the keys along", shown.is, 1, true)
      assert.matches('"description":"Creates."', shown.was, 1, true)
      assert.is_false(shown.approved)
      assert.equal("one_find", names(me))
      asked.hash = shown.hash
      assert.is_true(approve(g, asked):json().approved)
      wait.for_fact("what was approved", 30, function() return names(me) == "one_create one_find" end)
      assert.equal(0, u:ran "create")
      assert.matches('"event":"definition approved by operator"[^\n]*"why":"one tool create v2:sha256:', g:file "audit.log")
      assert.equal(1, (gateway.exec({ "lock", "--check" }, { cwd = g.dir }))) -- `extra` is still to be approved
      local new = approve(g, { upstream = "one", kind = "tool", name = "extra" }):json()
      assert.is_nil(new.was)
      approve(g, { upstream = "one", kind = "tool", name = "extra", hash = new.hash })
      wait.for_fact("both", 30, function() return names(me) == "one_create one_extra one_find" end)
      assert.equal(0, (gateway.exec({ "lock", "--check" }, { cwd = g.dir })))
    end)
  end)

  it("refuses what was not seen so, what is served, what is not there, and callers who may only look", function()
    start(function(u, g, me)
      local shown = approve(g, { upstream = "one", kind = "tool", name = "create" }):json()
      u:offer("tools", { tool("create", "Creates. Deletes, too."), tool("find", "Finds."), tool("bad", "x\226\128\139y") })
      wait.for_fact("the next change", 20, function()
        return approve(g, { upstream = "one", kind = "tool", name = "create" }):json().hash ~= shown.hash
      end)
      local function refused(body, words, status, bearer)
        local answer = approve(g, body, bearer)
        assert.equal(status or 404, answer.status, answer.body)
        assert.matches(words, answer.body, 1, true)
      end
      refused({ upstream = "one", kind = "tool", name = "create", hash = shown.hash }, "the definition has changed since it was shown")
      refused({ upstream = "one", kind = "tool", name = "find" }, "the definition is served already")
      refused({ upstream = "one", kind = "tool", name = "none" }, "the upstream has no such definition any more")
      refused({ upstream = "none", kind = "tool", name = "create" }, "the upstream has no such definition any more")
      refused({ upstream = "one", kind = "instructions", name = "-" }, "instructions are approved by `moonpool lock`")
      refused({ upstream = "one", kind = "tool", name = "bad" }, "the definition cannot be approved: ")
      refused({ upstream = "one", kind = "tool", name = "create" }, "", 403, view)
      for _, body in ipairs {
        "", "[]", "{}", '{"upstream":"one"}', '{"upstream":"one","kind":"tool","name":1}', '{"upstream":"one","kind":"tool","name":"a","x":"y"}',
      } do
        refused(body, "send an object with upstream, kind and name", 400)
      end
      -- what was refused was requested, and not done
      assert.matches('"event":"approval requested"[^\n]*"why":"one tool create v2:sha256:', g:file "audit.log")
      assert.is_nil(g:file "audit.log":find("definition approved by operator", 1, true))
      assert(os.rename(g.dir .. "/moonpool.lock", g.dir .. "/elsewhere"))
      refused({ upstream = "one", kind = "tool", name = "create" }, "cannot read moonpool.lock: there is no such file or folder")
      assert.equal("one_find", names(me))
    end)
  end)
end)

describe("POST /api/approve on a full disk", function()
  it("says to make room, not that another user can do it", function()
    if os.execute "unshare -rm true 2>/dev/null" ~= true then return pending "needs namespaces of users" end
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", { tool("create", "Creates.") })
    local dir = gateway.prepare { config = { upstream_lock = "disk/moonpool.lock", upstreams = upstream.entries({ one = u }, { one = { refresh = "1s" } }),
      admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } } } }
    uv.fs_mkdir(dir .. "/disk", 448)
    assert.equal(0, (gateway.exec({ "lock", "--yes" }, { cwd = dir })))
    u:offer("tools", { tool("create", "Creates. Sends the keys along.") })
    write(dir .. "/wrapper", ([[#!/bin/sh
exec unshare -rm sh -c 'cp disk/moonpool.lock kept && mount -t tmpfs -o size=64k none disk && cp kept disk/moonpool.lock &&
  { head -c 100000 /dev/zero >disk/ballast 2>/dev/null; exec "$0" "$@"; }' %s "$@"
]]):format(uv.fs_realpath(gateway.binary)))
    uv.fs_chmod(dir .. "/wrapper", 448)
    local g <close> = gateway.with_binary(dir .. "/wrapper", gateway.start, { dir = dir })
    local asked = { upstream = "one", kind = "tool", name = "create" }
    wait.for_fact("the change", 20, function()
      local answer = approve(g, asked)
      asked.hash = answer.status == 200 and answer:json().hash or nil
      return asked.hash
    end)
    assert.matches("cannot write disk/moonpool.lock: No space left on device; make room there, and approve it again", approve(g, asked).body, 1, true)
  end)
end)

describe("the page Upstreams", function()
  it("shows the difference of a withheld definition, asks, and approves it, by keyboard, in each width and colour", function()
    if not chromium then
      pending "there is no chromium: apt-get install chromium"
      return
    end
    start(function(_, g, me)
      local code, out, err = gateway.run_program(node.path, {
        "spec/clients/approve.mjs", chromium, "http://127.0.0.1:" .. g.admin_port, token, g.dir .. "/browser", "build/screens",
      }, { seconds = 400 })
      local found = assert(cjson.decode(out), out .. err)
      assert.is_nil(found.error, tostring(found.error) .. "\n" .. tostring(found.text))
      assert.equal(0, code)
      for _, what in ipairs { "console", "violations", "wide", "unnamed", "axe" } do assert.same({}, found[what], what) end
      assert.matches('- %s*"description": "Creates%.",\n', found.asked)
      assert.matches('%+ %s*"description": "Creates%. Sends the keys along%.",\n', found.asked)
      wait.for_fact("what was approved", 30, function() return names(me) == "one_create one_find" end)
    end)
  end)
end)
