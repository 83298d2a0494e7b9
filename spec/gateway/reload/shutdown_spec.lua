-- SIGTERM drains: running calls end and no new ones begin. A second SIGTERM ends the process at once. A gateway that
-- cannot start serves no client (B-81).
local uv = require "luv"
local free_port = require "spec.helpers.free_port"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/brief.lua"] = [[return tool { "Takes a moment.", input = { as = t.string, seconds = t.optional(t.number) }, function(args, call)
    log.info("waits", { as = args.as }) sleep(args.seconds or 0.5) call:progress(1) log.info("finished", { as = args.as })
    return "done " .. args.as end }]],
  ["tools/long.lua"] = [[return tool { "Takes long.", input = { as = t.string }, function(args)
    local gate <close> = closing(function() log.info("gate closed", { as = args.as }) end)
    log.info("waits", { as = args.as }) sleep(60) end }]],
}

local ERAS = { "2024-11-05", "2025-03-26", "2025-11-25", "2026-07-28" }

-- A call of `name` in each revision, all of them running.
local function start_calls(g, name)
  local clients, streams = {}, {}
  for i, revision in ipairs(ERAS) do
    clients[i] = g:client(revision)
    for k, meta in ipairs { {}, { progressToken = 1 } } do
      local stream = clients[i]:open("tools/call", { name = name, arguments = { as = revision .. "-" .. k }, _meta = meta })
      streams[#streams + 1] = { stream = stream, as = revision .. "-" .. k, is_sse = clients[i].stream ~= nil }
      g:wait_log("waits", { as = revision .. "-" .. k })
    end
  end
  return clients, streams
end

local function close(clients)
  for _, me in ipairs(clients) do
    me:close()
  end
end

describe("a call whose client has disconnected", function()
  it("finishes during the drain, in revisions where disconnecting does not cancel calls", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1 }
    local me = g:client "2025-11-25"
    local stream = me:open("tools/call", { name = "brief", arguments = { as = "left" } })
    g:wait_log("waits", { as = "left" })
    stream:close()
    me:close()
    g:signal "sigterm"
    assert.equal(0, (g:wait_exit()))
    g:wait_log("finished", { as = "left" })
  end)
end)

for _, signal in ipairs { "sigterm", "sigint" } do
  describe(signal, function()
    it("waits for the answers of running calls, ends every stream, and exits with 0", function()
      local g <close> = gateway.start { scripts = scripts, workers = 4, config = { heartbeat = "60s" } }
      local clients, streams = start_calls(g, "brief")
      local quiet = g:client "2025-11-25"
      local get = quiet:get_stream()
      assert.equal(200, get:head().status)
      local sse = g:client "2024-11-05"
      local idle = g:connect()
      assert.equal(404, idle:request({ path = "/" }).status)

      g:signal(signal)
      g:wait_log "draining"
      get.connection:wait_end()
      sse.stream:read_head()
      sse.stream:wait_end()
      idle:wait_closed()
      for _, call in ipairs(streams) do
        assert.equal("done " .. call.as, call.stream:answer(10).result.content[1].text)
      end
      for i = 1, 2 do
        if clients[i].stream then
          clients[i].stream:read_head()
          clients[i].stream:wait_end()
        end
      end
      local code, number = g:wait_exit()
      assert.same({ 0, 0 }, { code, number })
      close(clients)
      close { quiet, sse }
      idle:close()
      assert.truthy(g:log():find("info  stopped", 1, true))
    end)
  end)
end

describe("while it drains", function()
  it("new connections are refused, and requests on open connections get 503 with Retry-After, or the connection is closed", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1 }
    local me = g:client "2025-11-25"
    local stream = me:open("tools/call", { name = "brief", arguments = { as = "x" } })
    g:wait_log("waits", { as = "x" })
    -- a request that has arrived in part counts as begun
    local begun = g:connect()
    local body = '{"jsonrpc":"2.0","id":9,"method":"tools/list"}'
    begun:send_raw(("POST /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{")
      :format(me.session, #body))
    table.insert(begun.asked, "POST")
    assert.same({}, me:result "ping") -- now the gateway has read the incomplete request
    g:signal "sigterm"
    g:wait_log "draining"
    wait.for_fact("new connections to be refused", 20, function()
      local ok, connection = pcall(client.connect, g)
      if ok then
        connection:close()
      end
      return not ok
    end)
    begun:send_raw(body:sub(2))
    local response = begun:read_response()
    assert.equal(503, response.status)
    assert.truthy(tonumber(response.headers["retry-after"]))
    assert.equal("done x", stream:answer().result.content[1].text)
    begun:close()
    me:close()
    assert.equal(0, (g:wait_exit()))
  end)

  it("a request that has not arrived completely at the end of limits.drain gets 503", function()
    local g <close> = gateway.start { workers = 1, config = { limits = { drain = "300ms" } } }
    local parts = {
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{",
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
      "POST /mcp HTTP/1.1\r\nHost: local",
    }
    local clients = {}
    for i, part in ipairs(parts) do
      clients[i] = g:connect()
      clients[i]:send_raw(part)
      table.insert(clients[i].asked, "POST")
    end
    g:wait_status(function(status) return status.gauges.connections == #parts + 1 end)
    assert.equal(404, g:connect():request({ path = "/" }).status) -- now the gateway has read the incomplete requests
    g:signal "sigterm"
    for _, one in ipairs(clients) do
      local response = one:read_response()
      assert.equal(503, response.status)
      assert.equal("the gateway is stopping\n", response.body)
      one:close()
    end
    assert.equal(0, (g:wait_exit()))
  end)

  it("a request over HTTP/2 that has not arrived completely at the end of limits.drain gets 503", function()
    local g <close> = gateway.start { workers = 1, config = http2.config { limits = { drain = "300ms" } } }
    local peer <close> = http2.connect(g)
    local ids = {}
    for i = 1, 3 do ids[i] = peer:post(false) end
    peer:send(http2.frame(http2.DATA, 0, ids[2], "{"), http2.frame(http2.DATA, 0, ids[3], ("x"):rep(10000)))
    assert.is_true(peer:is_alive())
    g:signal "sigterm"
    for _, id in ipairs(ids) do
      local answer = peer:answer(id)
      assert.equal(503, answer.status)
      assert.equal("the gateway is stopping\n", answer.data)
    end
    assert.equal(0, (g:wait_exit()))
  end)

  it("/healthz is 503 on a connection that is kept open", function()
    local g <close> = gateway.start { scripts = scripts, workers = 2 }
    local me = g:client "2025-11-25"
    local stream = me:open("tools/call", { name = "brief", arguments = { as = "x", seconds = 4 } })
    g:wait_log("waits", { as = "x" })
    local admin = g:connect { admin = true }
    admin:send_raw "GET /healthz HTTP/1.1\r\nHost: "
    table.insert(admin.asked, "GET")
    assert.equal(200, g:admin("/healthz").status)
    g:signal "sigterm"
    g:wait_log "draining"
    admin:send_raw "localhost\r\n\r\n"
    local response = admin:read_response()
    assert.equal(503, response.status)
    assert.equal("draining\n", response.body)
    assert.equal("done x", stream:answer().result.content[1].text)
    admin:close()
    me:close()
    assert.equal(0, (g:wait_exit()))
  end)
end)

local function readiness(g)
  local answer = g:admin "/readyz"
  return answer.status, answer.body
end

describe("limits.linger", function()
  it("is a time after SIGTERM in which /readyz is 503 and all else is served, new sessions and connections included", function()
    local g <close> = gateway.start { scripts = scripts, workers = 2, config = { limits = { linger = "10m" } } }
    local before = g:client "2025-11-25"
    assert.same({ 200, "ready\n" }, { readiness(g) })
    g:signal "sigterm"
    g:wait_log("lingering", { ms = "600000" })
    local code, why = readiness(g)
    assert.equal(503, code)
    assert.truthy(why:find "draining")
    assert.is_true(g:status().draining)
    for _, revision in ipairs(ERAS) do
      local me <close> = g:client(revision)
      assert.equal("done x", me:result("tools/call", { name = "brief", arguments = { as = "x" } }).content[1].text)
    end
    assert.same({}, before:result "ping")
    before:close()
    g:signal "sigterm" -- the second one does not wait
    assert.equal(0, (g:wait_exit()))
  end)

  it("is followed by the drain", function()
    local g <close> = gateway.start { scripts = scripts, workers = 2, config = { limits = { linger = "400ms" } } }
    local clients, streams = start_calls(g, "brief")
    local idle = g:connect()
    assert.equal(404, idle:request({ path = "/" }).status)
    local started = uv.hrtime()
    g:signal "sigterm"
    idle:wait_closed()
    assert.is_true((uv.hrtime() - started) / 1e9 >= wait.least(0.4))
    for _, call in ipairs(streams) do
      assert.equal("done " .. call.as, call.stream:answer(10).result.content[1].text)
    end
    assert.equal(0, (g:wait_exit()))
    close(clients)
    idle:close()
  end)

  it("does not hold up SIGINT", function()
    local g <close> = gateway.start { workers = 1, config = { limits = { linger = "10m" } } }
    g:signal "sigint"
    assert.equal(0, (g:wait_exit()))
    assert.falsy(g:log():find("lingering", 1, true))
  end)
end)

describe("the admin listener", function()
  it("serves until the last call has ended", function()
    local path = os.tmpname()
    os.remove(path)
    for _, at in ipairs { "127.0.0.1:0", "unix:" .. path } do
      local g <close> = gateway.start { scripts = scripts, config = { admin = { listen = at }, limits = { drain = "10m" } } }
      local clients = start_calls(g, "long")
      g:signal "sigterm"
      g:wait_log "draining"
      wait.for_fact("new connections to be refused", 20, function()
        local ok, connection = pcall(client.connect, g)
        if ok then connection:close() end
        return not ok
      end)
      if at:find "^unix" then
        assert.equal(503, client.request(path, { path = "/readyz" }).status)
      else
        assert.equal(503, (readiness(g)))
        assert.is_true(g:status().draining)
        assert.equal(200, g:admin("/metrics").status)
      end
      g:signal "sigterm"
      assert.equal(0, (g:wait_exit()))
      assert.is_nil(uv.fs_stat(path))
      close(clients)
    end
  end)
end)

describe("limits.drain", function()
  it("limits how long calls may take: then they are cancelled with an error, and the process exits with 0", function()
    local g <close> = gateway.start { scripts = scripts, workers = 4, config = { limits = { drain = "400ms" } } }
    local clients, streams = start_calls(g, "long")
    local started = uv.hrtime()
    g:signal "sigterm"
    for _, call in ipairs(streams) do
      local answer = call.stream:answer(10)
      assert.equal(-32603, answer.error.code, call.as)
      assert.truthy(answer.error.message:find "stopping")
    end
    local code = g:wait_exit()
    local took = (uv.hrtime() - started) / 1e9
    assert.equal(0, code)
    assert.is_true(took >= wait.least(0.4) and took < 20, "it took " .. took)
    for _, call in ipairs(streams) do
      g:wait_log("gate closed", { as = call.as })
    end
    close(clients)
  end)
end)

describe("a process that stands still while it ends", function()
  it("has the time afterwards that it did not have meanwhile", function()
    local g <close> = gateway.start { scripts = scripts, workers = 2, config = { limits = { drain = "1s" } } }
    local clients, streams = start_calls(g, "long")
    g:signal "sigterm"
    g:wait_log "draining"
    g:signal "sigstop"
    wait.quietly(2.5)
    g:signal "sigcont"
    assert.equal(0, (g:wait_exit()), g:log())
    assert.is_nil(g:log():find("ended by force", 1, true))
    for _, call in ipairs(streams) do g:wait_log("gate closed", { as = call.as }) end
    close(clients)
  end)
end)

describe("a second signal", function()
  it("ends the process at once: <close> handlers run, and the exit code is 0", function()
    for _, second in ipairs { "sigterm", "sigint" } do
      local g <close> = gateway.start { scripts = scripts, workers = 4, config = { limits = { drain = "10m" } } }
      local clients, streams = start_calls(g, "long")
      g:signal "sigterm"
      g:wait_log "draining"
      assert.is_true(g:is_alive())
      g:signal(second)
      assert.equal(0, (g:wait_exit()))
      g:wait_log "stopping now"
      for _, call in ipairs(streams) do
        g:wait_log("gate closed", { as = call.as })
      end
      close(clients)
    end
  end)
end)

describe("SIGHUP", function()
  it("does not end the process", function()
    local g <close> = gateway.start { scripts = scripts }
    local me = g:client "2025-11-25"
    g:signal "sighup"
    assert.same({}, me:result "ping")
    me:delete()
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a reader that stays away during the drain", function()
  it("delays the end of the process no longer than limits.drain", function()
    local g <close> = gateway.start { workers = 1, constants = { stall_ms = 60000 },
      config = { limits = { drain = "400ms", stream_queue = "64MiB" } }, scripts = {
      ["tools/flood.lua"] = [[return tool { "Says much.", function(_, call)
        for i = 1, 1000 do call:log("info", ("x"):rep(16384)) end log.info "said all" return "x" end }]],
    } }
    local me = g:client "2026-07-28"
    local stream = me:open("tools/call", { name = "flood", _meta = { ["io.modelcontextprotocol/logLevel"] = "info" } }, { buffer = 4096 })
    stream.connection:pause()
    g:wait_log "said all"
    g:signal "sigterm"
    assert.equal(0, (g:wait_exit()))
    me:close()
  end)
end)

-- -- not starting ------------------------------------------------------------------------------------------------------

local function refuse_to_start(config)
  local dir = gateway.prepare { config = config }
  local code, out, err = gateway.exec({ "run" }, { cwd = dir })
  os.execute("rm -r '" .. dir .. "'")
  return code, err, out
end

describe("an address in use", function()
  it("is reported with a hint, and nothing is served at the other addresses", function()
    local g <close> = gateway.start {}
    local free = free_port()
    for _, case in ipairs {
      { listen = { "127.0.0.1:" .. free, "127.0.0.1:" .. g.port } },
      { listen = "127.0.0.1:" .. free, admin = { listen = "127.0.0.1:" .. g.port }, key = "admin.listen" },
      { listen = "127.0.0.1:" .. free, admin = { listen = "127.0.0.1:" .. g.admin_port }, key = "admin.listen" },
    } do
      local taken = case.admin and case.admin.listen or "127.0.0.1:" .. g.port
      local code, err, out = refuse_to_start(require "cjson".encode { listen = case.listen, admin = case.admin })
      assert.equal(1, code)
      assert.equal("", out)
      assert.equal(("moonpool: %s: cannot listen on %s: Address already in use\n"):format(case.key or "listen", taken), err:match "^[^\n]*\n")
      assert.truthy(err:find("\n  hint: another process listens there", 1, true), err)
      assert.is_false(pcall(client.connect, free))
    end
    assert.has_nothing_left(g)
  end)

  it("is free as soon as the previous gateway has ended, also with connections that were left open", function()
    local first <close> = gateway.start {}
    local me = first:client "2024-11-05"
    first:stop()
    local g <close> = gateway.start { config = { listen = "127.0.0.1:" .. first.port } }
    me:close()
    assert.has_nothing_left(g)
  end)
end)
