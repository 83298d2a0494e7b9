-- `listen: systemd:NAME`: sockets that a service manager has made, and passes to the gateway ($LISTEN_FDS).
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local manager = require "spec.helpers.manager"
local knocking = require "spec.helpers.knocking"
local blocking = require "spec.helpers.blocking"
local client = require "spec.helpers.client"

local SIGTERM <const>, SIGKILL <const> = 15, 9

local ping = { ["tools/ping.lua"] = 'return tool { "Answers.", function() return "pong" end }' }

local function open(config, options)
  options = options or {}
  options.config, options.scripts = config, options.scripts or ping
  return manager.open(options)
end

-- The status that a client gets at a port, or at the path of a Unix socket.
local function status(where, options) return client.request(where, { path = "/nothing" }, options).status end

-- Starts the gateway, which fails, and returns what it prints.
local function fails(m)
  m:command "start"
  local code = m:wait "^ended (%-?%d+)$"
  assert.equal("1", code, m:log())
  return m:log()
end

describe("a socket unit's sockets", function()
  it("are served by all workers, also several of one name, and Unix sockets; the admin listener has one, too", function()
    local m <close> = open { listen = { "systemd:mcp", "systemd:local" }, admin = { listen = "systemd:admin" }, workers = 3 }
    local path = m.dir .. "/mcp.sock"
    local first, second, admin = m:tcp "mcp", m:tcp "mcp", m:tcp "admin"
    m:unix("local", path)
    local g = m:start()
    assert.equal(first, g.port)
    assert.equal(admin, g.admin_port)
    assert.equal(200, g:admin("/healthz").status)
    for _ = 1, 12 do
      for _, port in ipairs { first, second } do
        assert.equal(404, status(port))
      end
    end
    assert.equal(404, status(path))
    assert.truthy(uv.fs_stat(path))
    m:command("signal", SIGTERM)
    assert.equal("0", m:wait "^ended (%-?%d+)$")
    assert.truthy(uv.fs_stat(path)) -- the socket file belongs to the socket unit, so the gateway does not remove it
    assert.is_nil(m:log():find("socket not used", 1, true))
  end)

  it("have the certificate of their item of `listen`", function()
    local here = require "spec.helpers.certificates".here()
    local listen = { { address = "systemd:mcp", tls = { certificate = "cert.pem", key = "key.pem" } } }
    local m <close> = open({ listen = listen, admin = { listen = "127.0.0.1:0" } },
      { files = { ["cert.pem"] = here.certificate, ["key.pem"] = here.key } })
    local port = m:tcp "mcp"
    assert.equal(("https://127.0.0.1:%d/mcp"):format(port), m:start().url)
    assert.equal(404, status(port, { tls = { name = "localhost", ca = m.dir .. "/cert.pem" } }))
  end)

  it("have no place in the environment of the gateway's children, and are not inherited", function()
    local m <close> = open({ listen = "systemd:mcp", admin = { listen = "127.0.0.1:0" },
      scripts = { path = "scripts", grants = { ["tools/env.lua"] = { env = { "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES" }, run = { "sh" } } } } },
      { scripts = { ["tools/env.lua"] = [[return tool { "Shows.", function()
        local seen = tostring(env "LISTEN_FDS") .. tostring(env "LISTEN_PID") .. tostring(env "LISTEN_FDNAMES")
        local result, why = exec({ "sh", "-c", "echo \"[$LISTEN_FDS$LISTEN_PID]\"; ls -l /proc/self/fd" })
        return seen .. (result and result.stdout or why) end }]] } })
    m:tcp "mcp"
    local g = m:start()
    local me <close> = g:client "2026-07-28"
    local text = me:result("tools/call", { name = "env" }).content[1].text
    assert.matches("^nilnilnil%[%]\n", text, m:log())
    assert.is_nil(text:find("socket:", 1, true), text)
  end)

  it("keep all connections over restarts: none is refused, none is lost", function()
    local m <close> = open { listen = "systemd:mcp", admin = { listen = "127.0.0.1:0" }, workers = 2 }
    local port = m:tcp "mcp"
    m:start()
    local k <close> = knocking.start(port, 16)
    m:restart_under(k, 100, { SIGTERM, SIGTERM, SIGTERM, SIGTERM, SIGTERM })
    assert.same({ 0, 0 }, { k.refused, k.lost }, tostring(k.last))
  end)

  it("go on listening while a worker is stuck: others accept what waits, and the socket is never shut down", function()
    local m <close> = open({ listen = "systemd:mcp", admin = { listen = "127.0.0.1:0" }, workers = 2, scripts = { path = "scripts", trust = "full" },
      limits = { call = { time = "1h", cpu = "1h" } } }, { constants = { stuck_ms = 500 }, scripts = { ["tools/block.lua"] = blocking.tool } })
    local port = m:tcp "mcp"
    local g = m:start()
    -- Both workers are blocked, so that none accepts: new connections wait, and are served afterwards.
    local blocked = {}
    for i = 1, 2 do
      local me = g:client "2026-07-28"
      blocked[i] = { me, blocking.open(g, me) }
      g:wait_status(function(now) return now.gauges.workers_stuck == i end)
    end
    local early = {}
    for i = 1, 8 do early[i] = g:connect() end
    blocking.release(g, 2)
    for _, connection in ipairs(early) do
      assert.equal(404, connection:request({ path = "/nothing" }).status)
      connection:close()
    end
    for _, one in ipairs(blocked) do
      one[2]:answer(10)
      one[1]:close()
    end
    m:command("restart", "on"):signal(SIGKILL)
    m:wait_ready()
    assert.equal(404, status(port))
  end)

  it("that other machines reach need authentication, and the admin listener credentials", function()
    local m <close> = open { listen = "127.0.0.1:0", admin = { listen = "systemd:admin" } }
    m:tcp("admin", "any") -- the socket listens on all addresses
    assert.matches("admin.listen: other machines can reach '0.0.0.0:%d+', and there are no credentials for it", (fails(m)))
    local n <close> = open { listen = "systemd:mcp", admin = { listen = "127.0.0.1:0" } }
    n:tcp("mcp", "any")
    n:command "start"
    assert.equal("78", n:wait "^ended (%-?%d+)$")
    assert.matches("0.0.0.0:%d+ is reachable from other machines, but scripts/auth has no authentication script", (n:log()))
    local o <close> = open { listen = "systemd:mcp", admin = { listen = "127.0.0.1:0" }, auth = "none" }
    o:tcp("mcp", "any")
    o:start()
  end)
end)

describe("a socket unit that does not fit", function()
  local function refuses(config, prepare, pattern)
    local m <close> = open(config)
    prepare(m)
    assert.matches(pattern, (fails(m)))
  end
  local one = { listen = "systemd:mcp", admin = { listen = "127.0.0.1:0" } }

  it("is named with what is wrong, and what there is", function()
    refuses(one, function() end, "listen: systemd:mcp: the service manager has passed no socket\n  hint: start the service by its socket unit")
    refuses(one, function(m) m:tcp "web" m:tcp "web" m:tcp "other" end,
      "listen: systemd:mcp: no socket has this name; the service manager has passed 'web', 'other'\n")
    refuses(one, function(m) m:tcp "mcp" m:command("env", "LISTEN_PID", "1") end,
      "listen: systemd:mcp: the sockets of LISTEN_FDS are for another process: LISTEN_PID is '1', and this is process %d+\n")
    refuses(one, function(m) m:command("dgram", "mcp") end, "listen: cannot listen on a socket that is named systemd:mcp: it is a datagram socket\n")
    refuses(one, function(m) m:command("bound", "mcp") end, "it does not listen\n")
    refuses(one, function(m) m:command("file", "mcp") end, "it is no socket\n")
    refuses(one, function(m) m:tcp "mcp" m:command("env", "LISTEN_FDS", "100000") end, "LISTEN_FDS is '100000', and must be 0 to 256\n")
    refuses(one, function(m) m:tcp "mcp" m:command("env", "LISTEN_FDS", "3x") end, "LISTEN_FDS is '3x', and must be 0 to 256\n")
    refuses(one, function(m) m:tcp "mcp" m:command("env", "LISTEN_FDNAMES", "mcp:mcp") m:command("env", "LISTEN_FDS", "256") end, "mcp: it is not open\n")
    refuses({ listen = "127.0.0.1:0", admin = { listen = "systemd:admin" } }, function(m) m:tcp "admin" m:tcp "admin" end,
      "admin.listen: several sockets are named systemd:admin\n")
  end)

  it("is named in the hint for an address that it has; one that is not used is logged and closed", function()
    local m <close> = open { listen = "127.0.0.1:0", admin = { listen = "127.0.0.1:0" } }
    local port = m:tcp "moonpool.socket"
    m:start():wait_log("socket not used", { name = "moonpool.socket", address = "127.0.0.1:" .. port })
    local n <close> = open { listen = "127.0.0.1:" .. port, admin = { listen = "127.0.0.1:0" } }
    m:command("drop", "moonpool.socket"):signal(SIGTERM):wait "^ended 0$"
    n:tcp("moonpool.socket", port)
    assert.matches("Address already in use\n  hint: the service manager has passed a socket for it: write systemd:moonpool.socket\n", (fails(n)))
  end)

  it("is an error of the configuration if its name cannot be one", function()
    for name, why in pairs { [""] = "the name of the socket is missing", ["a:b"] = "printable ASCII characters, and no ':'" } do
      local dir = gateway.prepare { config = { listen = "systemd:" .. name } }
      local code, _, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
      assert.equal(78, code)
      assert.truthy(err:find(why, 1, true), err)
      gateway.run_program("/bin/rm", { "-r", dir })
    end
  end)

  it("is not looked for by `moonpool check`, which says so; commands say that they need the admin listener's address", function()
    local dir = gateway.prepare { config = { listen = "systemd:mcp", admin = { listen = "systemd:admin" } }, scripts = ping }
    local code, _, err = gateway.exec({ "check", "--strict", "moonpool.yaml" }, { cwd = dir })
    assert.equal(0, code, err)
    assert.matches("moonpool.yaml: the addresses of systemd:NAME are those of the socket unit", err)
    code, _, err = gateway.exec({ "status" }, { cwd = dir })
    assert.equal(2, code)
    assert.matches("admin.listen is 'systemd:admin', whose address the socket unit has\n  hint: name it, as in %-%-admin", err)
    gateway.run_program("/bin/rm", { "-r", dir })
  end)
end)
