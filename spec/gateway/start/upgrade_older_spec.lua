-- lane: first
-- The processes before the newest one: how long they live, and what they do not do any more.
local uv = require "luv"
local certificates = require "spec.helpers.certificates"
local free_port = require "spec.helpers.free_port"
local gateway = require "spec.helpers.gateway"
local knocking = require "spec.helpers.knocking"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

-- A command with which the gateway is upgraded and that fails: what it prints.
local function refused(g)
  local code, _, err = g:upgrade()
  assert.equal(1, code, err)
  return err
end

describe("an older process", function()
  it("lives while it has a session, a call or a stream, and ends when the last one has ended", function()
    local g <close> = upgrading.start_quick {
      scripts = { ["tools/wait.lua"] = 'return tool { "Waits.", function() sleep(4) return "done" end, timeout = 20 }' } }
    local session <close> = g:client "2025-06-18"
    local stateless <close> = g:client "2026-07-28"
    local call = stateless:open("tools/call", { name = "wait", arguments = {} })
    g:must_upgrade()
    assert.equal(1, #g:older())
    assert.equal("done", call:answer().result.content[1].text)
    assert.equal(1, #g:older())
    session:delete()
    session:close()
    stateless:close()
    wait.for_fact("the older process to end", 20, function() return #g:older() == 0 end)
  end)

  it("closes kept connections with an answer, and no idle one", function()
    local g <close> = upgrading.start {}
    local session <close> = g:client "2025-06-18" -- a session, so that the older process lives on
    local idle <close> = g:connect()
    assert.equal(404, idle:request({ path = "/nothing" }).status)
    g:must_upgrade()
    assert.is_falsy(idle:is_closed_by_peer())
    -- each worker closes connections only after a message has told it of the commit
    wait.for_fact("an answer that closes the connection", 20, function()
      local answer = idle:request { path = "/nothing" }
      assert.equal(404, answer.status)
      return answer.headers.connection == "close"
    end)
    idle:wait_closed()
    assert.equal(200, session:call("tools/list") and 200)
  end)

  it("leaves nothing of the process that it has begun when that one ends before it", function()
    local g <close> = upgrading.start_quick {}
    local session <close> = g:client "2025-06-18"
    local second = g:must_upgrade()
    g:must_upgrade()
    wait.for_fact("nothing to be left of the second process", 30, function() return not uv.fs_stat("/proc/" .. second) end)
    assert.equal(1, #g:older())
    session:result("tools/list", {})
  end)

  it("ends with the newest process, by SIGTERM and by SIGKILL of that one, and by SIGTERM of all", function()
    for _, signal in ipairs { "sigterm", "sigkill", "all" } do
      local runtime = gateway.new_folder()
      local g = upgrading.start_quick { config = { limits = { drain = "2s" } }, env = { RUNTIME_DIRECTORY = runtime } }
      local sessions = {}
      for i = 1, 3 do
        sessions[i] = g:client "2025-06-18"
        sessions[i].kept:close()
        g:must_upgrade()
      end
      assert.equal(3, #g:older())
      for i = signal == "all" and 1 or #g.pids, #g.pids do
        uv.kill(g.pids[i], signal == "all" and "sigterm" or signal)
      end
      g:wait_exit()
      g:stop()
      local _, left = gateway.run_program("/bin/ls", { "-A", runtime })
      assert.equal(signal == "sigkill" and "admin.token\n" or "", left) -- a process that is killed leaves its token
      gateway.run_program("/bin/rm", { "-r", runtime })
    end
  end)

  it("with a call ends with the newest process, which has one too, within limits.drain and a second", function()
    local drain, scripts = 1, { ["tools/hold.lua"] = 'return tool { "Holds.", function() sleep(60) end, timeout = 60 }' }
    local function end_four()
      local g = upgrading.start { config = { limits = { drain = drain .. "s" } }, env = { SPEC_TIME_2000 = "100" }, scripts = scripts }
      local clients = {}
      for i = 1, 4 do
        clients[i] = g:client "2025-06-18"
        clients[i]:open("tools/call", { name = "hold", arguments = {} })
        g:wait_status(function(now) return now.gauges.requests_in_flight >= i end)
        if i < 4 then g:must_upgrade() end
      end
      assert.equal(3, #g:older())
      g:signal "sigterm"
      local began = uv.hrtime()
      g:wait_exit()
      local took = (uv.hrtime() - began) / 1e9
      for _, client in ipairs(clients) do client:close() end
      g:stop()
      return took
    end
    local soonest, most = math.huge, drain + wait.slower
    for _ = 1, 5 do -- the quickest of five tries counts: other work of the machine does not delay all of them
      soonest = math.min(soonest, end_four())
      if soonest <= most then break end
    end
    assert.is_true(soonest <= most, soonest)
  end)

  it("leaves no socket to which a newer one that was killed had listened", function()
    local runtime = gateway.new_folder()
    local g <close> = upgrading.start { env = { RUNTIME_DIRECTORY = runtime } }
    g:replace_by_script "(sleep 1; kill -9 $$) &"
    assert.equal(1, (g:upgrade()))
    local _, sockets = gateway.run_program("/bin/ls", { "-A", runtime .. "/hop" })
    assert.equal(3, select(2, sockets:gsub("%.sock\n", "")), sockets) -- the three sockets of the process itself
    g:stop()
    local _, left = gateway.run_program("/bin/ls", { "-A", runtime })
    assert.equal("", left)
    gateway.run_program("/bin/rm", { "-r", runtime })
  end)

  it("leaves no file and no descriptor behind, and the token of the admin listener as it was", function()
    local runtime = gateway.new_folder()
    local g <close> = upgrading.start_quick { env = { RUNTIME_DIRECTORY = runtime } }
    local function token()
      local file <close> = assert(io.open(runtime .. "/admin.token", "rb"))
      return file:read "a"
    end
    local first, most = token(), nil
    for _ = 1, 3 do
      g:must_upgrade()
      assert.equal(first, token())
      wait.for_fact("the older process to end", 20, function() return #g:older() == 0 end)
      assert.equal(first, token())
      most = most or g:fds() -- descriptors of the first process that an upgrade has begun; later ones have as many
      wait.for_fact(function() return ("no more than %d descriptors; there are %d"):format(most, g:fds()) end, 20, function() return g:fds() <= most end)
    end
    g:stop()
    local _, left = gateway.run_program("/bin/ls", { "-A", runtime })
    assert.equal("", left)
    gateway.run_program("/bin/rm", { "-r", runtime })
  end)

  local function start_sticking(drain)
    return upgrading.start {
      workers = 2, constants = { stuck_ms = 1000 }, config = { limits = { drain = drain }, scripts = { trust = "full" } },
      scripts = { ["tools/stick.lua"] = 'return tool { "Blocks its worker.", function() os.execute "sleep 8" return "done" end, timeout = 20 }' },
    }
  end

  it("whose worker is stuck shuts no socket of the newest one down", function()
    local g <close> = start_sticking "1s"
    local stateless <close> = g:client "2026-07-28"
    stateless:open("tools/call", { name = "stick", arguments = {} })
    g:wait_log "thread stuck"
    g:must_upgrade()
    local new = knocking.start(g.port, 8)
    new:wait(200)
    stateless:close()
    wait.for_fact("the older process to end", 30, function() return #g:older() == 0 end)
    new:wait(200)
    new:stop()
    assert.same({ 0, 0 }, { new.refused, new.lost }, tostring(new.last))
  end)

  it("whose worker gets stuck after the upgrade, and which drains then, does not either", function()
    -- limits.drain is so long that the process ends by itself: a process that is ended by force has another exit code
    local g <close> = start_sticking "20s"
    local session <close> = g:client "2025-06-18"
    local old = g.pid
    g:must_upgrade()
    session.kept:close()
    session.kept = nil
    session:open("tools/call", { name = "stick", arguments = {} })
    g:wait_log "thread stuck"
    local new = knocking.start(g.port, 8)
    new:wait(200)
    uv.kill(old, "sigterm")
    wait.for_fact("the older process to end", 30, function() return #g:older() == 0 end)
    new:wait(200)
    new:stop()
    assert.same({ 0, 0 }, { new.refused, new.lost }, tostring(new.last))
  end)
end)

describe("an upgrade with another configuration", function()
  it("spreads the sockets over fewer and more workers", function()
    local g <close> = upgrading.start_quick { workers = 4, config = { scripts = { watch = false } } }
    local text = g:file "moonpool.yaml"
    local new, kept = knocking.start(g.port, 6), upgrading.keep(g.port, 4)
    for _, workers in ipairs { 2, 8, 1 } do
      write(g.dir .. "/moonpool.yaml", (text:gsub('"workers":4', '"workers":' .. workers)))
      g:must_upgrade()
      assert.equal(workers, g:status().workers)
      new:wait(100)
      kept:wait(100)
    end
    new:stop()
    kept:stop()
    assert.same({ 0, 0, 0 }, { new.refused, new.lost, kept.failed }, tostring(new.last or kept.last))
  end)

  it("listens on an address that is new, and closes one that is gone", function()
    local folder = gateway.new_folder()
    local text = '{"listen":["unix:' .. folder .. '/%s.sock","127.0.0.1:0"],"admin":{"listen":"127.0.0.1:0"},"scripts":{"path":"scripts","watch":false}}'
    local g <close> = upgrading.start_quick { config = text:format "one" }
    g.port = wait.for_fact("the second address", 20, function() return tonumber(g:log():match "address=127.0.0.1:(%d+) for=mcp") end)
    local new, over = knocking.start(g.port, 4), knocking.start(folder .. "/one.sock", 4)
    new:wait(20)
    over:wait(20)
    over:stop()
    write(g.dir .. "/moonpool.yaml", text:format "two")
    g:must_upgrade()
    local added = knocking.start(folder .. "/two.sock", 4)
    added:wait(20)
    added:stop()
    new:wait(50)
    new:stop()
    assert.same({ 0, 0, 0, 0 }, { new.refused, new.lost, over.lost, added.refused }, tostring(new.last or over.last))
    assert.is_nil(uv.fs_stat(folder .. "/one.sock"))
    g:stop()
    gateway.run_program("/bin/rm", { "-r", folder })
  end)

  it("speaks TLS at an address that spoke none, and refuses no connection", function()
    local here, port = certificates.here(), free_port()
    local text = '{"listen":[{"address":"127.0.0.1:%d"%s}],"admin":{"listen":"127.0.0.1:0"},"scripts":{"path":"scripts","watch":false}}'
    local g <close> = upgrading.start_quick { config = text:format(port, ""), files = { ["cert.pem"] = here.certificate, ["key.pem"] = here.key } }
    local new, older = knocking.start(port, 4), g:client "2025-06-18"
    new:wait(50)
    write(g.dir .. "/moonpool.yaml", text:format(port, ',"tls":{"certificate":"cert.pem","key":"key.pem"}'))
    g:must_upgrade()
    new:stop()
    assert.equal(0, new.refused, tostring(new.last)) -- requests without TLS are lost
    assert.truthy(older:result "tools/list") -- the client uses the connection that it already has
    older:close()
    g.tls = { name = "localhost", ca = g.dir .. "/cert.pem" }
    local newer <close> = g:client "2025-06-18"
    assert.truthy(newer:result "tools/list")
  end)

  it("takes a file of a Unix socket over, and the last process removes it", function()
    local folder = gateway.new_folder()
    local g <close> = upgrading.start_quick {
      config = '{"listen":["127.0.0.1:0","unix:' .. folder .. '/one.sock"],"admin":{"listen":"127.0.0.1:0"},"scripts":{"path":"scripts"}}',
    }
    local new = knocking.start(folder .. "/one.sock", 4)
    for _ = 1, 2 do
      g:must_upgrade()
      wait.for_fact("the older process to end", 20, function() return #g:older() == 0 end)
      new:wait(50)
    end
    new:stop()
    assert.same({ 0, 0 }, { new.refused, new.lost }, tostring(new.last))
    g:stop()
    assert.is_nil(uv.fs_stat(folder .. "/one.sock"))
    gateway.run_program("/bin/rm", { "-r", folder })
  end)

  it("whose addresses overlap the old ones is refused", function()
    local text = '{"listen":"%s","admin":{"listen":"127.0.0.1:0"},"auth":"none","scripts":{"path":"scripts","watch":false}}'
    local g <close> = upgrading.start { config = text:format "127.0.0.1:0" }
    write(g.dir .. "/moonpool.yaml", text:format("0.0.0.0:" .. g.port))
    assert.matches("the gateway listens on 127.0.0.1:" .. g.port .. ", which overlaps", refused(g), 1, true)
  end)

  it("that names an environment variable which the gateway does not have is refused, and names it", function()
    local g <close> = upgrading.start { config = { scripts = { watch = false } } }
    write(g.dir .. "/moonpool.yaml", (g:file "moonpool.yaml":gsub("^{", '{"public_url":"${NEW_ADDRESS}",')))
    assert.matches("NEW_ADDRESS", refused(g), 1, true)
  end)
end)

describe("an upgrade is refused", function()
  it("below programs that follow only the process which they have started", function()
    local dir = gateway.new_folder()
    for _, name in ipairs { "tini", "supervisord" } do
      local options = upgrading.prepare {}
      write(dir .. "/" .. name, "#!/bin/sh\n" .. options.binary .. ' "$@" &\nexec 3>&-\ntrap "kill -15 $!" TERM\nwait $!\nwait $!\n')
      uv.fs_chmod(dir .. "/" .. name, 493)
      options.binary = dir .. "/" .. name
      local g <close> = gateway.start(options)
      local code, _, err = gateway.exec { "upgrade", "--admin", "127.0.0.1:" .. g.admin_port }
      assert.equal(1, code)
      assert.matches(name .. " has started this process", err, 1, true)
    end
    gateway.run_program("/bin/rm", { "-r", dir })
  end)

  it("where other users can write the program", function()
    local g <close> = upgrading.start {}
    uv.fs_chmod(g.binary, 511) -- 0777
    assert.matches("other users can write " .. g.binary, refused(g), 1, true)
    uv.fs_chmod(g.binary, 493)
    uv.fs_chmod(g.dir .. "/bin", 511)
    assert.matches("other users can write " .. g.binary, refused(g), 1, true)
  end)

  it("while another one is under way, and SIGUSR2 in a trial is for the next process", function()
    local g <close> = upgrading.start {}
    local before = g.pid
    g:signal "sigusr2"
    g:wait_log "upgrade on trial"
    g:signal "sigusr2"
    local pid = wait.for_fact("two upgrades", 20, function()
      local first, second = g:log():match "info  upgraded +pid=(%d+).*info  upgraded +pid=(%d+)"
      if first then g:follow(tonumber(first)) end
      return tonumber(second)
    end)
    g:follow(pid)
    assert.not_equal(before, g:status().pid)
    assert.equal(pid, g:status().pid)
  end)
end)
