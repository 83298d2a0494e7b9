-- Signals, and certificates that are renewed or end, while the process can open no descriptor: it serves on as before,
-- one line of the log says what is missing, and what was asked for happens once there are descriptors again.
local certificates = require "spec.helpers.certificates"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local SCRIPTS <const> = { ["tools/ping.lua"] = 'return tool { "Answers.", function() log.info "pinged" return "pong" end }' }
local SPARE <const>, CROWD <const> = 2, 12

-- Limits the descriptors of the process to those that are open and SPARE more, which idle sockets take. Returns what
-- ends that: end_of() closes the sockets and raises the limit.
local function use_up(g)
  local function limit(count)
    assert.equal(0, (gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--nofile=" .. count .. ":" })))
  end
  local function is_open(fd) return uv.fs_readlink(("/proc/%d/fd/%d"):format(g.pid, fd)) ~= nil end
  local last, since -- what the gateway writes after its start is written: no descriptor is open for that any more
  wait.for_fact("descriptors that stay as they are", 10, function()
    if g:fds() ~= last then last, since = g:fds(), uv.hrtime() end
    return uv.hrtime() - since > 300e6
  end)
  local most, spare, sockets = 0, SPARE, {}
  while spare > 0 or is_open(most) do
    if not is_open(most) then spare = spare - 1 end
    most = most + 1
  end
  limit(most)
  for i = 1, CROWD do
    sockets[i] = uv.new_tcp()
    sockets[i]:connect("127.0.0.1", g.port, function() end)
  end
  wait.for_fact("all descriptors to be taken", 10, function()
    for fd = 0, most - 1 do
      if not is_open(fd) then return false end
    end
    return true
  end)
  return function()
    limit(1000)
    for _, socket in ipairs(sockets) do socket:close() end
    uv.run "nowait"
  end, sockets
end

local function read(path)
  local file <close> = io.open(path)
  return file and file:read "a" or ""
end

local function count(text, wanted) return select(2, text:gsub(wanted, "")) end

local function ping(me) assert.equal("pong", me:result("tools/call", { name = "ping" }).content[1].text) end

describe("without a free descriptor", function()
  it("SIGUSR1 leaves the files of the log and the audit as they are, says so once, and opens new ones as soon as it can", function()
    local g <close> = gateway.start { workers = 1, scripts = SCRIPTS, config = { log = { file = "log", audit = "audit" } } }
    local me <close> = g:client "2026-07-28"
    ping(me)
    for _, name in ipairs { "log", "audit" } do assert(os.rename(g.dir .. "/" .. name, g.dir .. "/" .. name .. ".1")) end
    local end_of = use_up(g)
    local function asks_again() return count(read(g.dir .. "/log.1"), "file not reopened") end
    g:signal "sigusr1"
    wait.for_fact("two lines about it", 10, function() return asks_again() == 2 end)
    assert.matches("log file not reopened +why=[^\n]*Too many open files", read(g.dir .. "/log.1"))
    assert.matches("audit file not reopened +why=[^\n]*Too many open files", read(g.dir .. "/log.1"))
    local began = uv.now()
    wait.for_fact("more than one further try, which say nothing", 10, function()
      ping(me)
      uv.update_time()
      return uv.now() - began > 2500
    end)
    assert.equal(2, asks_again())
    assert.matches("pinged", read(g.dir .. "/log.1"))
    end_of()
    wait.for_fact("new files", 10, function()
      ping(me)
      return read(g.dir .. "/log"):find "pinged" and read(g.dir .. "/audit"):find "ping"
    end)
  end)

  it("a certificate that is renewed is shown once it can be read, and until then the one before", function()
    local authority = certificates.make { subject = "/CN=authority", is_authority = true }
    local first, second = certificates.make({}, authority), certificates.make({}, authority)
    local g <close> = gateway.start {
      workers = 1, scripts = SCRIPTS, files = { ["cert.pem"] = first.certificate, ["key.pem"] = first.key },
      config = { listen = { { address = "127.0.0.1:0", tls = { certificate = "cert.pem", key = "key.pem" } } } } }
    certificates.write(g.dir .. "/authority.pem", authority.own)
    g.tls = { name = "localhost", ca = g.dir .. "/authority.pem" }
    local function shown()
      local connection <close> = client.connect(g)
      return connection.tls:facts().fingerprint
    end
    local me <close> = g:client "2026-07-28"
    ping(me)
    local end_of = use_up(g)
    certificates.put(g.dir .. "/cert.pem", second.certificate)
    certificates.put(g.dir .. "/key.pem", second.key)
    g:signal "sighup"
    local line = g:wait_log("certificate refused")
    assert.matches("cannot be read: Too many open files", line.fields.why, 1, true)
    g:wait_log "certificate not renewed"
    ping(me)
    end_of()
    assert.equal(certificates.fingerprint(first.own), shown())
    g:wait_log("certificate renewed", nil, 30)
    assert.equal(certificates.fingerprint(second.own), shown())
    assert.equal(1, count(g:log(), "certificate not renewed"))
  end)

  it("SIGHUP, SIGUSR2 and SIGTERM are obeyed as far as possible, with a line that says what is missing", function()
    local g <close> = gateway.start { scripts = SCRIPTS }
    local me <close> = g:client "2026-07-28"
    ping(me)
    local _, sockets = use_up(g)
    wait.for_fact("a line about it", 20, function() -- a connection of this spec may have ended meanwhile, and left a descriptor
      g:signal "sighup"
      return g:log():find("config refused[^\n]*Too many open files")
    end)
    g:signal "sigusr2"
    assert.matches("Too many open files", g:wait_log("not upgraded").fields.why, 1, true)
    ping(me)
    g:signal "sigterm"
    assert.equal(0, (g:wait_exit(10)))
    for _, socket in ipairs(sockets) do socket:close() end
  end)
end)
