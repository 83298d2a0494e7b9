-- Listening sockets that the service manager stores (FDSTORE=1), so that the process that follows a crash or a restart
-- listens on them.
local uv = require "luv"
local cjson = require "cjson"
local blocking = require "spec.helpers.blocking"
local free_port = require "spec.helpers.free_port"
local gateway = require "spec.helpers.gateway"
local manager = require "spec.helpers.manager"
local knocking = require "spec.helpers.knocking"
local client = require "spec.helpers.client"
local shell = require "spec.helpers.shell"
local wait = require "spec.helpers.wait"

local SIGHUP <const>, SIGKILL <const>, SIGTERM <const> = 1, 9, 15

local scripts = {
  ["tools/ping.lua"] = 'return tool { "Answers.", function() return "pong" end }',
  ["tools/block.lua"] = blocking.tool,
}

local function name_of(port) return ("moonpool/127.0.0.1%%3A%d"):format(port) end

local function address(port) return "127.0.0.1:" .. port end

local function config(listen, workers, more)
  local values = { listen = listen, admin = { listen = "127.0.0.1:0" }, workers = workers or 2, scripts = { path = "scripts", watch = false },
    overload = { wait = "off" } }
  for key, value in pairs(more or {}) do values[key] = value end
  return values
end

local function open(values, options)
  options = options or {}
  options.config, options.scripts = cjson.encode(values), scripts
  return manager.open(options)
end

local function save(m, values) shell.write(m.dir .. "/moonpool.yaml", cjson.encode(values)) end

local function is_refused(port)
  local ok, connection = pcall(client.connect, port)
  if ok then connection:close() end
  return not ok and connection:find "ECONNREFUSED" ~= nil
end

local function answers(port) assert.equal(404, client.request(port, { path = "/nothing" }).status) end

-- Starts a gateway whose workers each have a socket for this port, and waits until these are stored.
local function open_stored(port, workers)
  local m = open(config({ address(port) }, workers))
  m:start()
  m:wait_store(function(found) return found[name_of(port)] == workers end)
  return m
end

-- Kills the gateway and waits for the next one.
local function crash(m)
  m:signal(SIGKILL)
  m:wait "^ended %-9$"
  m:command "start"
  return m:wait_ready()
end

describe("the sockets of a gateway with a service manager", function()
  it("are stored after READY=1, one message for each address, and the next process serves them", function()
    local port, admin = free_port(), free_port()
    local m <close> = open(config({ address(port) }, 3, { admin = { listen = address(admin) } }))
    m:start()
    m:wait_store(function(found) return found[name_of(port)] == 3 and found[name_of(admin)] == 1 end)
    assert.same({ "READY=1 STATUS=serving [0]",
      ("FDSTORE=1 FDNAME=%s [3]"):format(name_of(port)), ("FDSTORE=1 FDNAME=%s [1]"):format(name_of(admin)) }, m:notes())
    local g = crash(m)
    answers(port)
    assert.equal(200, g:admin("/healthz").status)
    assert.same({ [name_of(port)] = 3, [name_of(admin)] = 1 }, m:store())
    assert.equal("READY=1 STATUS=serving [0]", m:notes()[4]) -- after these notifications, no socket is stored again
    assert.equal(4, #m:notes())
  end)

  it("refuse no connection while the process is killed again and again under load, whatever the number of workers is next", function()
    local port = free_port()
    local m <close> = open_stored(port, 2)
    m:command("restart", "on")
    local k <close> = knocking.start(port, 16)
    for _, workers in ipairs { 1, 4, 3, 2 } do
      k:wait(100)
      save(m, config({ address(port) }, workers))
      m:signal(SIGKILL)
      m:wait_ready()
      assert.equal(2, m:store()[name_of(port)])
    end
    k:wait(200)
    k:stop()
    assert.equal(0, k.refused)
    assert.is_true(k.lost <= 4 * 16, k.lost) -- only connections that the killed processes had accepted are lost
  end)

  it("lose no connection at all at a restart", function()
    local port = free_port()
    local m <close> = open_stored(port, 2)
    local k <close> = knocking.start(port, 16)
    m:restart_under(k, 100, { SIGTERM, SIGTERM, SIGTERM, SIGTERM })
    assert.same({ 0, 0 }, { k.refused, k.lost }, tostring(k.last))
  end)

  it("are all served by fewer workers, and each worker has one if there are more", function()
    local port = free_port()
    for _, now in ipairs { 1, 3, 7 } do
      local m <close> = open_stored(port, 4)
      save(m, config({ address(port) }, now))
      local g = crash(m)
      -- The kernel distributes connections by their port: 64 reach each of four sockets.
      for _ = 1, 64 do answers(port) end
      assert.equal(now, g:status().workers)
    end
  end)

  it("that left the configuration refuse connections after a crash; other addresses are added", function()
    local kept, gone, new = free_port(), free_port(), free_port()
    local m <close> = open(config { address(kept), address(gone) })
    m:start()
    m:wait_store(function(found) return found[name_of(gone)] == 2 end)
    save(m, config { address(kept), address(new) })
    local before = #m:notes()
    crash(m)
    answers(kept)
    answers(new)
    assert.is_true(is_refused(gone))
    m:wait_store(function(found) return found[name_of(gone)] == nil and found[name_of(new)] == 2 end)
    assert.same({ ("FDSTOREREMOVE=1 FDNAME=%s [0]"):format(name_of(gone)), "BARRIER=1[1]", "READY=1 STATUS=serving [0]",
      ("FDSTORE=1 FDNAME=%s [2]"):format(name_of(new)) }, { table.unpack(m:notes(), before + 1) })
  end)

  it("are taken out of the store, and in again, by reloads", function()
    local kept, gone = free_port(), free_port()
    local m <close> = open(config { address(kept), address(gone) })
    local g = m:start()
    m:wait_store(function(found) return found[name_of(gone)] == 2 end)
    save(m, config { address(kept) })
    m:signal(SIGHUP)
    m:wait_store(function(found) return found[name_of(gone)] == nil end)
    answers(gone) -- the running process still serves the address: a change of `listen` needs a restart
    save(m, config { address(kept), address(gone) })
    m:signal(SIGHUP)
    m:wait_store(function(found) return found[name_of(gone)] == 2 end)
    save(m, config { address(kept) })
    assert.truthy(g:admin("/reload", "POST").body:find("needs a restart: listen", 1, true))
    m:wait_store(function(found) return found[name_of(gone)] == nil end)
    m:signal(SIGKILL)
    m:wait "^ended %-9$"
    assert.is_true(is_refused(gone)) -- refused as soon as the process has ended: its socket is no longer stored
    m:start()
    answers(kept)
  end)

  it("do not stand in the way of an address that overlaps theirs", function()
    local port = free_port()
    local m <close> = open_stored(port, 2)
    save(m, config({ "0.0.0.0:" .. port }, 2, { auth = "none" }))
    crash(m)
    answers(port)
    m:wait_store(function(found) return found[name_of(port)] == nil and found["moonpool/0.0.0.0%3A" .. port] == 2 end)
  end)

  it("with a port that the system chose are not stored", function()
    local m <close> = open(config { "127.0.0.1:0" })
    m:start()
    m:signal(SIGHUP)
    wait.for_fact("the end of the reload", 10, function() return #m:notes() >= 3 end)
    assert.same({}, m:store())
  end)
end)

describe("a stored socket whose worker is stuck", function()
  local port

  local function start()
    port = free_port()
    local m = open(config({ address(port) }, 2, { scripts = { path = "scripts", watch = false, trust = "full" },
      limits = { drain = "300ms", call = { time = "1h", cpu = "1h" } } }), { constants = { stuck_ms = 500 } })
    local g = m:start()
    m:wait_store(function(found) return found[name_of(port)] == 2 end)
    local me = g:client "2026-07-28"
    local stream = blocking.open(g, me)
    g:wait_status(function(now) return now.gauges.workers_stuck == 1 end)
    return m, g, me, stream
  end

  it("is served by the other workers, and by its own when that goes on", function()
    local m <close>, g, me, stream = start()
    local k <close> = knocking.start(port, 16)
    k:wait(200) -- about half of the connections reach the socket of the stuck worker
    blocking.release(g)
    stream:answer(10)
    me:close()
    g:wait_status(function(now) return now.gauges.workers_stuck == 0 end)
    k:wait(50)
    k:stop()
    assert.same({ 0, 0 }, { k.refused, k.lost }, tostring(k.last))
    -- The worker takes connections again that other workers hand over: each of the two workers gets one of two calls.
    local first, second = g:client "2026-07-28", g:client "2026-07-28"
    blocking.open(g, first)
    g:wait_status(function(now) return now.gauges.workers_stuck == 1 end)
    blocking.open(g, second)
    g:wait_status(function(now) return now.gauges.workers_stuck == 2 end)
    m:command("restart", "on"):signal(SIGKILL)
    m:wait_ready()
    answers(port) -- the sockets still listen
    first:close()
    second:close()
  end)

  it("keeps its connections for the next process when this one drains, and has to be ended by force", function()
    local m <close>, _, me = start()
    local k <close> = knocking.start(port, 16)
    k:wait(100)
    m:command("restart", "on"):signal(SIGTERM)
    m:wait "^ended 1$"
    m:wait_ready()
    k:wait(100)
    k:stop()
    me:close()
    assert.same({ 0, 0 }, { k.refused, k.lost }, tostring(k.last))
  end)
end)

describe("a Unix socket that is stored", function()
  local path

  before_each(function()
    path = os.tmpname()
    os.remove(path)
  end)
  after_each(function() os.remove(path) end)

  local function start()
    local m = open(config({ "127.0.0.1:0", "unix:" .. path }, 3))
    m:start()
    local stored
    m:wait_store(function(found)
      stored = next(found)
      return stored
    end)
    assert.matches("^moonpool/unix%%3A" .. path:gsub("%p", "%%%0") .. "#%x+%.%x+$", stored)
    return m, stored
  end

  it("keeps its file and its clients over a crash and a restart", function()
    local m <close> = start()
    local k <close> = knocking.start(path, 8)
    m:restart_under(k, 50, { SIGTERM, SIGKILL, SIGTERM })
    assert.equal(0, k.refused, tostring(k.last))
  end)

  it("is bound anew if its file was removed or replaced meanwhile", function()
    for _, replaces in ipairs { false, true } do
      local m <close>, stored = start()
      local before = #m:notes()
      m:signal(SIGKILL):wait "^ended %-9$"
      os.remove(path)
      if replaces then -- puts another socket, on which no program listens, at the path
        gateway.run_program("/usr/bin/perl", { "-e", 'use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un($ARGV[0])) or die', path })
      end
      local g = m:start()
      g:wait_log("stored socket closed", { why = "the file of the socket was removed or replaced" })
      local k <close> = knocking.start(path, 1)
      k:wait(3)
      k:stop()
      m:wait_store(function(found) return next(found) ~= nil and next(found, (next(found))) == nil end)
      assert.equal(("FDSTOREREMOVE=1 FDNAME=%s [0]"):format(stored), m:notes()[before + 1])
    end
  end)

  it("leaves no file behind if its address left the configuration", function()
    local m <close> = start()
    save(m, config { "127.0.0.1:0" })
    crash(m)
    assert.is_nil(uv.fs_stat(path))
    m:wait_store(function(found) return next(found) == nil end)
  end)

  it("of the admin listener gets the permissions of the configuration again", function()
    local m <close> = open(config({ "127.0.0.1:0" }, 1, { admin = { listen = "unix:" .. path, mode = "0600" } }))
    m:start()
    m:wait_store(function(found) return next(found) ~= nil end)
    assert.equal(384, uv.fs_stat(path).mode & 511)
    save(m, config({ "127.0.0.1:0" }, 1, { admin = { listen = "unix:" .. path, mode = "0660" } }))
    crash(m)
    assert.equal(432, uv.fs_stat(path).mode & 511)
  end)
end)

describe("a gateway with few descriptors", function()
  it("says that it cannot start, or serves, and stores what it can", function()
    local served
    for limit = 21, 69, 6 do
      local listen = { address(free_port()), address(free_port()), address(free_port()) }
      local m <close> = open(config(listen, 3), { nofile = limit })
      m:command "start"
      m:wait "^started"
      local line = m:wait "^%l+ .+" -- a line that begins with "ready", "ended" or the word of a message
      if line:find "^ended" then
        assert.equal("ended 1", line)
        assert.truthy(m:log():find("Too many open files\n  hint: raise the limit of open files (ulimit -n)", 1, true), m:log())
        assert.is_nil(served)
      else
        served = true
        wait.for_fact("stored sockets, or a word about them", 10, function() return next(m:store()) or m:log():find("socket not stored", 1, true) end)
        m:signal(SIGKILL):wait "^ended %-9$"
        m:command "start"
        m:wait_ready()
      end
    end
    assert.is_true(served)
  end)
end)

describe("a service manager that is not as it should be", function()
  it("passes other sockets than it was given: they are closed, and the address is bound anew", function()
    local port = free_port()
    local m <close> = open_stored(port, 2)
    m:command("spoil", name_of(port))
    local g = crash(m)
    g:wait_log("stored socket closed", { why = "it is a datagram socket" })
    answers(port)
    m:wait_store(function(found) return found[name_of(port)] == 2 end)
    crash(m)
    answers(port)
  end)

  it("does not read its messages: nothing waits for it, and they arrive later, in their order", function()
    local port = free_port()
    local m <close> = open(config { address(port) })
    m:deafen()
    local g = m:start()
    for i = 1, 200 do
      m:signal(SIGHUP)
      if i % 20 == 0 then answers(port) end
    end
    assert.equal(200, g:admin("/healthz").status)
    m:command "hear"
    m:wait_store(function(found) return found[name_of(port)] == 2 end)
    wait.for_fact("the end of the last reload", 20, function() return m:notes()[#m:notes()]:find "^READY=1 " end)
    m:deafen()
    m:signal(SIGTERM)
    m:wait "^ended 0$"
  end)

  it("stores fewer than there are: the others' connections are reset, and later ones are taken", function()
    local first, second = free_port(), free_port()
    local m <close> = open(config({ address(first), address(second) }, 2))
    m:command("most", 3)
    m:start()
    m:wait_store(function(found) return found[name_of(first)] == 2 and found[name_of(second)] == 1 end)
    m:command("restart", "on")
    local k <close> = knocking.start(second, 8)
    k:wait(50)
    m:signal(SIGKILL)
    m:wait_ready()
    local refused = k.refused -- connections whose handshake was in progress at a socket that was not stored
    assert.is_true(refused <= 8, refused)
    k:wait(50)
    k:stop()
    assert.equal(refused, k.refused)
    assert.is_true(k.lost <= 16, k.lost)
  end)

  it("gets no more than 64 sockets, of each address one at least", function()
    local listen = {}
    for i = 1, 6 do listen[i] = address(free_port()) end
    local m <close> = open(config(listen, 16))
    m:start()
    local found = m:wait_store(function(now) return now["moonpool/" .. listen[6]:gsub(":", "%%3A")] and now end)
    local sum = 0
    for _, count in pairs(found) do
      sum = sum + count
      assert.is_true(count >= 10, count)
    end
    assert.equal(64, sum)
    crash(m)
    for i = 1, 6 do answers(tonumber(listen[i]:match ":(%d+)")) end
  end)
end)
