-- Fewer descriptors than limits.connections: clients that take all they get leave some for operators, the store, the
-- log and a reload.
local uv = require "luv"
local errand = require "spec.helpers.errand"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"

local FILES <const>, CROWD <const> = 256, 400

-- A gateway that may open FILES files.
local function start(connections, allow, constants, env)
  local dir = gateway.new_folder()
  local file = assert(io.open(dir .. "/moonpool", "w"))
  file:write(("#!/bin/sh\nulimit -n %d\nexec '%s' \"$@\"\n"):format(FILES, uv.fs_realpath(gateway.binary))):close()
  assert(uv.fs_chmod(dir .. "/moonpool", 493))
  return gateway.start {
    binary = dir .. "/moonpool", workers = constants and 1, constants = constants, env = env,
    config = { limits = { connections = connections }, store = { file = "store.db" }, log = { audit = "audit.jsonl" },
      scripts = { allow = allow } },
    scripts = {
      ["tools/keep.lua"] = 'return tool { "Keeps.", function() return tostring(store.set("k", 1)) end }',
      ["tools/fetch.lua"] = 'return tool { "Fetches.", input = { url = t.string }, function(args) return select(2, http.get(args.url)) or "ok" end }',
      ["tools/open.lua"] = [[local all = {}
        return tool { "Opens databases, or closes them.", input = { count = t.integer, file = t.string }, function(args)
          if args.count == 0 then for _, one in ipairs(all) do one:close() end end
          for i = 1, args.count do
            all[i] = sqlite.open((args.file:gsub("N", i)))
            local done, why = all[i]:query "select 1"
            if not done then return ("%d: %s"):format(i, why) end
          end
          return "ok" end }]],
      ["tools/files.lua"] = [[return tool { "Reads files and lists folders, 64 at once.", function()
        local all = {}
        for i = 1, 64 do all[i] = function() return i % 2 == 0 and #try(fs.list "data") or #try(fs.read "data/text") end end
        return #parallel(all) .. " read" end }]],
      ["tools/run.lua"] = 'return tool { "Runs.", function() return select(2, exec { "true" }) or "ok" end }',
    },
  }
end

-- Sockets that are connected, or wait in the kernel's queue, and send nothing.
local function crowd(port, count)
  local sockets = {}
  for i = 1, count or CROWD do
    sockets[i] = uv.new_tcp()
    sockets[i]:connect("127.0.0.1", port, function() end)
    if i % 50 == 0 then uv.run "nowait" end
  end
  return setmetatable(sockets, { __close = function()
    for _, socket in ipairs(sockets) do socket:close() end
    uv.run "nowait"
  end })
end

local function read(path)
  local file <close> = assert(io.open(path))
  return file:read "a"
end

describe("a gateway that may open 256 files, with limits.connections 10000,", function()
  it("says at start which of the numbers to change, and keeps descriptors for all that is no client", function()
    local g <close> = start(10000)
    local fields = g:wait_log("few descriptors").fields
    assert.same({ "256", "10000", "96" }, { fields.limit, fields.connections, fields.accepted })
    assert.equal("raise the limit of open files to 10160 (LimitNOFILE= of systemd, ulimit -n), or lower limits.connections to 96", fields.hint)

    local me = g:client "2026-07-28"
    me:result("tools/call", { name = "keep" })
    local sockets <close> = crowd(g.port)
    assert.equal(CROWD, #sockets)
    g:wait_status(function(status) return status.gauges.connections >= 88 and status.counters.refused.connection_shares > 0 end)
    for _, path in ipairs { "/healthz", "/readyz", "/status", "/metrics" } do assert.equal(200, g:admin(path).status, path) end
    local open = tonumber(g:admin("/metrics").body:match "\nprocess_open_fds (%d+)")
    assert.is_true(open > 88 and open < FILES - 50, open)

    wait.for_fact("a call, which may be refused while all others of this address are new", 20, function()
      local ok, result = pcall(me.result, me, "tools/call", { name = "keep" })
      return ok and result.content[1].text == "true" -- true: the call has stored a value in the store, which has a file
    end)
    g:wait_status(function(status) return status.gauges.store_unsaved == 0 and status.counters.store_failures == 0 end)
    assert(os.rename(g.dir .. "/audit.jsonl", g.dir .. "/audit.1"))
    assert(io.open(g.dir .. "/scripts/tools/more.lua", "w")):write 'return tool { "More.", function() return 1 end }':close()
    g:signal "sighup" -- SIGHUP reloads, and opens the file of the audit again
    wait.for_fact("the file of the audit", 20, function() return uv.fs_stat(g.dir .. "/audit.jsonl") end)
    -- the gateway creates the file a moment before it writes the first line
    wait.for_fact("a line in it", 20, function()
      pcall(me.result, me, "tools/call", { name = "keep" }) -- which may be refused, as above
      return read(g.dir .. "/audit.jsonl"):find('"keep"', 1, true)
    end)
    g:wait_status(function(status) return status.scripts.ok end)
    assert.equal(0, g:status().counters.dropped.audit)
    me:close()
  end)

  it("opens 8 for the connections of one script to other servers, refuses further ones, and opens 8 for other scripts and programs", function()
    local held = {}
    local server <close> = stub.start(function(_, reply) held[#held + 1] = reply end)
    local g <close> = start(10000, { net = { server.at }, run = { "true" } })
    local me <close> = g:client "2026-07-28"
    local calls = {}
    for i = 1, 40 do calls[i] = me:open("tools/call", { name = "fetch", arguments = { url = server.url } }) end
    g:wait_status(function(status) return status.counters.refused.descriptors == 32 and status.gauges.outgoing_descriptors == 8 end)
    wait.for_fact("8 requests", 20, function() return #held == 8 end)
    for _, path in ipairs { "/healthz", "/status", "/metrics" } do assert.equal(200, g:admin(path).status, path) end
    local refused, said = {}, {}
    wait.for_fact("32 answers", 20, function() -- which come a moment after they are counted
      refused = {}
      for _, call in ipairs(calls) do
        if call:has_begun() then refused[#refused + 1] = call end
      end
      return #refused == 32
    end)
    for i, call in ipairs(refused) do said[i] = call:answer().result.content[1].text end
    for _, text in ipairs(said) do assert.matches("too many programs, databases and connections to servers", text, 1, true) end
    assert.equal("ok", me:result("tools/call", { name = "run" }).content[1].text) -- another script: its program takes 5
    for _, reply in ipairs(held) do reply:send(200, { Connection = "close" }, "") end
    g:wait_status(function(status) return status.gauges.outgoing_descriptors == 0 end)
    assert.equal("ok", me:result("tools/call", { name = "run" }).content[1].text)
    g:wait_status(function(status) return status.gauges.outgoing_descriptors == 0 end)
  end)

  it("counts three for each database in a file among them, none for one in memory, and refuses further ones", function()
    local g <close> = start(10000, { read = { "data/" }, write = { "data/" }, run = { "true" } })
    local me <close> = g:client "2026-07-28"
    assert(uv.fs_mkdir(g.dir .. "/data", 493))
    assert(io.open(g.dir .. "/data/text", "w")):write "text":close()
    local function open(count, file) return me:result("tools/call", { name = "open", arguments = { count = count, file = file } }).content[1].text end
    assert.equal("ok", open(10, ":memory:"))
    assert.equal(0, g:status().gauges.outgoing_descriptors)
    local said = open(8, "data/N.db")
    assert.matches("^4: data/4.db: cannot open the database: too many programs, databases and connections to servers", said)
    local status = g:status()
    assert.same({ 9, 1 }, { status.gauges.outgoing_descriptors, status.counters.refused.descriptors })
    assert.equal("ok", me:result("tools/call", { name = "run" }).content[1].text) -- another script
    assert.equal("64 read", me:result("tools/call", { name = "files" }).content[1].text)
    assert.equal("true", me:result("tools/call", { name = "keep" }).content[1].text)
    assert.equal("ok", open(0, ""))
    g:wait_status(function(now) return now.gauges.outgoing_descriptors == 0 end)
    assert.equal("ok", me:result("tools/call", { name = "run" }).content[1].text)
  end)

  it("keeps unused connections while less than half of them are taken, and gives them back first", function()
    local held, count = {}, 0
    local server <close> = stub.start(function(_, reply)
      count = count + 1
      held[#held + 1] = reply
    end)
    local g <close> = start(10000, { net = { server.at }, run = { "true" } }, { http_idle_ms = 600000 })
    local me <close> = g:client "2026-07-28"
    -- so many requests at once, of which all but `left` are answered
    local function fetch(most, left)
      local before = count
      for _ = 1, most do me:open("tools/call", { name = "fetch", arguments = { url = server.url } }) end
      wait.for_fact("the requests", 20, function() return count == before + most end)
      while #held > left do table.remove(held):send(200, {}, "") end
    end
    local function wait_for(least, most)
      g:wait_status(function(now)
        local gauges = now.gauges
        return gauges.http_requests == #held and gauges.outgoing_descriptors >= least and gauges.outgoing_descriptors <= most
      end)
    end
    fetch(4, 0)
    wait_for(1, 8)
    fetch(4, 0)
    wait_for(1, 8)
    fetch(8, 0)
    wait_for(0, 0)
    assert.equal("ok", me:result("tools/call", { name = "run" }).content[1].text)
    fetch(8, 1) -- while one request is in flight
    wait_for(1, 7)
    assert.equal("ok", me:result("tools/call", { name = "run" }).content[1].text)
    held[1]:send(200, {}, "")
  end)

  it("counts one for each name that is looked up, and refuses further ones of the script", function()
    local names = {}
    for i = 1, 24 do names[i] = ("n%d.test=!3"):format(i) end
    local g <close> = start(10000, { net = { "*.test:*" }, run = { "true" } }, nil, errand.names(table.concat(names, ";")))
    local me <close> = g:client "2026-07-28"
    for i = 1, 24 do me:open("tools/call", { name = "fetch", arguments = { url = ("http://n%d.test/"):format(i) } }) end
    local status = g:wait_status(function(now) return now.gauges.lookups == 8 and now.counters.refused.lookups == 16 end)
    assert.equal(8, status.gauges.outgoing_descriptors)
    assert.equal("ok", me:result("tools/call", { name = "run" }).content[1].text)
    g:wait_status(function(now) return now.gauges.outgoing_descriptors == 0 end)
  end)

  it("counts none of those that could not be connected, or whose call ended before", function()
    local gone <const> = "127.0.0.1:1" -- no program listens at this address
    -- A listener that accepts no connection: once its queue is full, further sockets are never connected.
    local server = uv.new_tcp()
    server:bind("127.0.0.1", 0)
    server:listen(1, function() end)
    local full <const> = "127.0.0.1:" .. server:getsockname().port
    local sockets <close> = crowd(server:getsockname().port, 8) -- luacheck: ignore 211
    local g <close> = start(10000, { net = { gone, full } })
    local me <close> = g:client "2026-07-28"
    for _ = 1, 40 do
      assert.matches("connection refused", me:result("tools/call", { name = "fetch", arguments = { url = "http://" .. gone } }).content[1].text, 1, true)
    end
    assert.equal(0, g:status().gauges.outgoing_descriptors)
    local calls = {}
    for i = 1, 8 do calls[i] = me:open("tools/call", { name = "fetch", arguments = { url = "http://" .. full } }) end
    g:wait_status(function(status) return status.gauges.outgoing_descriptors == 8 end)
    for _, call in ipairs(calls) do call:reset() end
    g:wait_status(function(status) return status.gauges.outgoing_descriptors == 0 end)
    assert.equal(0, g:status().counters.refused.descriptors)
    server:close()
  end)

  it("says nothing where limits.connections fits", function()
    local g <close> = start(96)
    assert.is_nil(g:log():find("few descriptors", 1, true))
  end)
end)
