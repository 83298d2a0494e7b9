-- Who may use the sockets between the processes of a gateway, and what clients gain by knowing of them: nothing.
local uv = require "luv"
local modules = require "modules"
local processes = require "spec.helpers.processes"
local client = require "spec.helpers.client"
local credentials = require "spec.helpers.credentials"
local http2 = require "spec.helpers.http2"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"
require "spec.helpers.asserts"

local two, opens, move, text = processes.two, processes.opens, processes.move, processes.text
local STATEFUL <const> = "2025-11-25"

local PING <const> = '{"jsonrpc":"2.0","id":1,"method":"ping"}'

-- The headers of a POST to the socket between processes, from a sender that knows the key. `more`: other fields of the
-- sealed header.
local function sealed(p, g, session, more)
  local fields = { to = g.number, method = "POST", session = session, body = #PING, address = "192.0.2.7", principal = "anonymous" }
  for name, value in pairs(more or {}) do fields[name] = value end
  return {
    ["moonpool-hop"] = modules.processes.new(p.key):seal(fields), ["Mcp-Session-Id"] = session, ["Content-Type"] = "application/json",
    Accept = wire.both,
  }
end

local function knock(p, g, headers, path, body)
  return client.request(p:path(g), { method = "POST", path = path or "/-/mcp", headers = headers, body = body or PING })
end

describe("the socket between processes", function()
  it("serves what another process has sealed for this request, and nothing else", function()
    local p <close>, old, _, c = two { before = opens(STATEFUL) }
    local s = c.session
    assert.same({}, knock(p, old, sealed(p, old, s)):json().result)
    local good = sealed(p, old, s)["moonpool-hop"]
    local middle = #good // 2
    local other = good:sub(middle, middle) == "A" and "B" or "A"
    local forged = {
      [403] = {
        false, "", "x", ("A"):rep(400), good:sub(1, -5), good .. "AAAA", good:sub(1, middle - 1) .. other .. good:sub(middle + 1),
        modules.processes.new():seal { to = old.number, method = "POST", session = s, body = #PING, principal = "anonymous" },
        sealed(p, old, s, { body = #PING + 1 })["moonpool-hop"], sealed(p, old, s, { method = "GET" })["moonpool-hop"],
        sealed(p, old, s, { session = s:reverse() })["moonpool-hop"], sealed(p, old, s, { session = "" })["moonpool-hop"],
        sealed(p, old, s, { endpoint = 2 })["moonpool-hop"],
      },
      [421] = { sealed(p, old, s, { to = old.number ~ 1 })["moonpool-hop"], sealed(p, old, s, { hops = 3 })["moonpool-hop"] },
      [503] = { sealed(p, old, s, { age = 10500 })["moonpool-hop"], sealed(p, old, s, { age = -5000 })["moonpool-hop"] },
    }
    for status, list in pairs(forged) do
      for i, value in ipairs(list) do
        local headers = sealed(p, old, s)
        headers["moonpool-hop"] = value
        assert.equal(status, knock(p, old, headers).status, ("%d, %d"):format(status, i))
      end
    end
    for _, path in ipairs { "/mcp", "/", "/-/sse", "/-/messages", "/-/mcp/", "/-/other" } do
      assert.equal(403, knock(p, old, sealed(p, old, s), path).status, path)
    end
    assert.equal(403, knock(p, old, sealed(p, old, s, { endpoint = 3 })).status)
    local order = '{"id":"' .. c.session .. '","cancel":true}'
    assert.equal(403, knock(p, old, {}, "/-/task-messages", order).status)
    assert.equal(403, knock(p, old, sealed(p, old, "", { body = #order }), "/-/task-messages", order).status)
    assert.equal(202, knock(p, old, sealed(p, old, "", { endpoint = 3, body = #order }), "/-/task-messages", order).status)
    -- /-/alive needs no seal, since its answer says nothing but that the process lives
    assert.equal(204, knock(p, old, {}, "/-/alive").status)
    local connection <close> = client.connect(p:path(old))
    connection:send_raw(("POST /-/mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nmoonpool-hop: %s\r\nmoonpool-hop: %s\r\n\r\n"):format(good, good))
    assert.equal(403, connection:read_response().status)
    assert.same({}, knock(p, old, sealed(p, old, s, { age = 9000 / wait.slower })):json().result)
    c:close()
  end)

  it("gets no line that a client of HTTP/2 has put into a header", function()
    local _ <close>, old, new, c = two { config = http2.config(), before = opens(STATEFUL) }
    local smuggled = "x\r\n\r\nGET /-/sse HTTP/1.1\r\nHost: x\r\n\r\n"
    for _, bad in ipairs { { "mcp-x", smuggled }, { "mcp-x: y\r\nmcp-z", "1" }, { "accept", wire.both .. "\r\nmoonpool-hop: x" }, { "mcp-x", "a\0b" } } do
      local peer <close> = http2.connect(new)
      local headers = { ["mcp-session-id"] = c.session, ["mcp-protocol-version"] = STATEFUL }
      headers[bad[1]] = bad[2]
      local fine, answer = pcall(peer.call, peer, PING, headers)
      assert.is_true(not fine or answer.reset ~= nil or answer.status == 200 or answer.status == 400 or answer.status == 406, fine and answer.status)
    end
    move(c, new)
    for _ = 1, 20 do assert.equal("old", text(c, "place")) end -- no connection has an answer of another request
    assert.equal(0, old:status().counters.refused.hop_header)
    c:close()
  end)

  it("has a file that only the gateway's user can open, and none is left", function()
    local p, old = two()
    local path = p:path(old)
    local listing = assert(io.popen(("ls -l '%s'"):format(path))):read "a"
    assert.matches("^srw%-%-%-%-%-%-%- ", listing)
    old:stop()
    assert.is_nil(io.open(path))
    p:__close()
  end)

  it("is not reached by clients: a header of theirs is nothing, and so are its paths", function()
    local p <close>, old, new, c = two { before = opens(STATEFUL) }
    local headers = sealed(p, new, c.session, { address = "10.0.0.1" })
    assert.equal(404, wire.post(new, PING, headers, "/-/mcp").status)
    local me <close> = new:client(STATEFUL)
    local answer = wire.post(new, PING, { ["moonpool-hop"] = headers["moonpool-hop"], ["Mcp-Session-Id"] = me.session })
    assert.same({}, answer:json().result)
    assert.equal(0, old:status().counters.refused.hop_header)
    assert.equal(0, new:status().counters.refused.hop_header)
    c:close()
  end)
end)

describe("ids of clients", function()
  it("that nobody made are unknown, whatever number they have, by the same answer", function()
    local p <close>, old, new, c = two { before = opens(STATEFUL) }
    local known = modules.processes.new(p.key)
    local bodies = {}
    local function try(g, id)
      local answer = wire.post(g, PING, { ["Mcp-Session-Id"] = id })
      assert.equal(404, answer.status)
      bodies[answer.body] = true
    end
    for _, number in ipairs { old.number, new.number, 7 } do
      local id
      repeat id = known:id():sub(1, 32) .. ("%04x"):format(math.random(0, 65535)) until known:number_of(id) == number or number == 7
      try(old, id)
      try(new, id)
    end
    c:delete()
    try(old, c.session)
    try(new, c.session)
    assert.is_nil(next(bodies, (next(bodies))), "the answers differ")
    c:close()
  end)

  it("of processes that lead to each other end after two hops", function()
    local p <close>, old, new = two()
    -- Each of the two processes takes the other one for the newest.
    p:tell(old, new.number)
    p:tell(new, old.number)
    local answer = wire.post(old, wire.initialize_message(STATEFUL))
    -- the second process answers 421 to the first, which then has no process for the request
    assert.equal(503, answer.status)
    assert.equal(2, old:status().counters.hops_begun + new:status().counters.hops_begun)
    for _, g in ipairs { old, new } do g:wait_status(function(status) return status.gauges.hops == 0 end) end
  end)
end)

describe("who a caller is", function()
  local scripts = {
    ["auth/tokens.lua"] = credentials.script,
    ["tools/who.lua"] = [[return tool { "Says who calls.", function(_, call)
      return call.principal.id .. " " .. table.concat(call.principal.scopes or {}, ",") .. " " .. tostring(call.address)
    end }]],
  }

  it("crosses with the request", function()
    local _ <close>, old, new, c = two { scripts = scripts, before = opens(STATEFUL, { token = "ann-1" }) }
    assert.equal("user:ann notes:read 127.0.0.1", text(move(c, new), "who"))
    c.token = "ann-2"
    assert.equal("user:ann notes:read 127.0.0.1", text(c, "who"))
    for _, g in ipairs { old, new } do
      c.token = "bob-1"
      assert.equal(404, move(c, g):post(c:message "ping").status)
      c.token = "eve-1"
      assert.equal(401, c:post(c:message "ping").status)
    end
    c.token = "ann-1"
    assert.equal(204, move(c, new):delete().status)
    c:close()
  end)

  it("crosses without credentials, cookies, and what a proxy has added", function()
    local p <close>, old = two { scripts = scripts }
    local seen, server = "", uv.new_pipe(false)
    server:bind(p.folder .. "/1.mcp.sock")
    server:listen(1, function()
      local peer = uv.new_pipe(false)
      server:accept(peer)
      peer:read_start(function(_, bytes)
        seen = seen .. (bytes or "")
        local length, body = seen:match "[Cc]ontent%-[Ll]ength: (%d+).-\r\n\r\n(.*)$"
        if length and #body == tonumber(length) then
          peer:write "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: a=b\r\nServer: x\r\nMcp-Session-Id: abc\r\n\r\n{}"
        end
        if not bytes then peer:close() end
      end)
    end)
    p:settle()
    p:tell(old, 1)
    local answer = wire.post(old, wire.initialize_message(STATEFUL), {
      Authorization = "Bearer ann-1", Cookie = "secret=1", ["X-Forwarded-For"] = "10.1.1.1", ["X-Api-Key"] = "secret", ["Mcp-Other"] = "kept",
      traceparent = "00-" .. ("a"):rep(32) .. "-" .. ("b"):rep(16) .. "-01", Origin = "http://localhost", ["moonpool-hop"] = "mine",
    })
    server:close()
    assert.equal(200, answer.status)
    assert.equal("abc", answer.headers["mcp-session-id"])
    assert.is_nil(answer.headers["set-cookie"])
    local head = seen:match "^(.-)\r\n\r\n":lower()
    assert.equal("post /-/mcp http/1.1", head:match "^[^\r]*")
    local names = {}
    for name in head:gmatch "\n([^:]*):" do names[#names + 1] = name end
    table.sort(names)
    assert.same({ "accept", "content-length", "content-type", "host", "mcp-other", "moonpool-hop", "traceparent" }, names)
    assert.is_nil(seen:find("ann-1", 1, true))
    assert.is_nil(seen:find("secret", 1, true))
  end)

  it("is told to the audit of the process that serves, once, with the client's address", function()
    local _ <close>, old, new, c = two { scripts = scripts, config = { log = { audit = "audit.log" } }, before = opens(STATEFUL, { token = "ann-1" }) }
    c.token = "bob-1"
    assert.equal(404, move(c, new):post(c:message "ping").status)
    local function lines(g) return select(2, g:file("audit.log"):gsub('"foreign session"', "")) end
    wait.for_fact("the audit line", 10, function() return lines(old) == 1 end)
    assert.equal(0, lines(new))
    assert.truthy(old:file("audit.log"):find('"foreign session".-"127.0.0.1"') or old:file("audit.log"):find('"127.0.0.1".-"foreign session"'))
    c:close()
  end)
end)
