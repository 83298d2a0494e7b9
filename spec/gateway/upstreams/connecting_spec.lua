-- How the gateway connects to upstreams over HTTP: with a client certificate, and within a time.
local certificates = require "spec.helpers.certificates"
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"
local wait = require "spec.helpers.wait"

describe("an upstream that requires client certificates", function()
  local authority = certificates.make { subject = "/CN=ca", is_authority = true }
  local robot = certificates.make({ subject = "/CN=robot" }, authority)
  local other = certificates.make({ subject = "/CN=other" }, authority)
  local stranger = certificates.make { subject = "/CN=stranger" }

  local function behind()
    local here = certificates.here()
    return gateway.start {
      config = { listen = { { address = "127.0.0.1:0", tls = { certificate = "cert.pem", key = "key.pem", client_ca = "ca.pem", client = "required" } } } },
      files = { ["cert.pem"] = here.certificate, ["key.pem"] = here.key, ["ca.pem"] = authority.own },
      scripts = { ["auth/main.lua"] = "return auth { function(request) return { id = request.tls.subject } end }",
        ["tools/who.lua"] = 'return tool { "Who.", function(_, call) return call.principal.id end }' },
    }
  end

  -- A gateway before it, with these members of `tls` besides the CA.
  local function before(one, tls)
    tls.ca = "here.pem"
    local entry = { url = ("https://localhost:%d/mcp"):format(one.port), prefix = "", list_wait = "20s", tls = tls }
    return gateway.start { config = { upstreams = { one = entry } },
      files = { ["here.pem"] = certificates.here().certificate, ["mine.pem"] = robot.certificate, ["mine.key"] = robot.key,
        ["both.pem"] = other.key .. other.certificate, ["stranger.pem"] = stranger.certificate, ["stranger.key"] = stranger.key } }
  end

  it("sees the certificate of the entry, also where one file has the key, too", function()
    local one <close> = behind()
    local ways = { ["CN=robot"] = { certificate = "mine.pem", key = "mine.key" }, ["CN=other"] = { certificate = "both.pem", key = "both.pem" } }
    for subject, tls in pairs(ways) do
      local g <close> = before(one, tls)
      local c <close> = g:client "2026-07-28"
      local answer
      wait.for_fact("the tool", 30, function()
        answer = c:call("tools/call", { name = "who", arguments = {} })
        return answer.result
      end)
      assert.equal(subject, upstream.text(answer))
    end
  end)

  it("is not there without one, and with one of another authority; neither key nor certificate is shown", function()
    local one <close> = behind()
    for _, tls in ipairs { {}, { certificate = "stranger.pem", key = "stranger.key" } } do
      local g <close> = before(one, tls)
      g:wait_log("upstream lists cannot be read", { upstream = "one" })
      local c <close> = g:client "2026-07-28"
      assert.same({}, c:result("tools/list", {}).tools)
      assert.is_nil((g:log() .. g:admin("/status").body):find("PRIVATE", 1, true))
    end
  end)
end)

-- A port that answers no connection: its queue is full, and nothing is accepted.
local function black_hole()
  local self = { tcp = uv.new_tcp(), clients = {} }
  assert(self.tcp:bind("127.0.0.1", 0))
  assert(self.tcp:listen(1, function() end))
  local port = self.tcp:getsockname().port
  local done, last = 0, uv.now()
  local function more()
    local client = uv.new_tcp()
    table.insert(self.clients, client)
    client:connect("127.0.0.1", port, function(err)
      if not err then done, last = done + 1, uv.now() end
    end)
  end
  -- connections are made until three in a row stay open for a while
  for _ = 1, 4 do more() end
  wait.for_fact("the queue to be full", 20, function()
    uv.update_time()
    if #self.clients - done >= 3 and uv.now() - last > 300 then return true end
    if #self.clients - done < 3 then
      more()
      last = uv.now()
    end
    return false
  end)
  self.url = ("http://127.0.0.1:%d/mcp"):format(port)
  return setmetatable(self, { __close = function()
    for _, client in ipairs(self.clients) do
      if not client:is_closing() then client:close() end
    end
    self.tcp:close()
  end })
end

describe("a connection that is never made", function()
  it("is given up after its time, long before `open` and `timeout`, and the call was not run", function()
    local hole <close> = black_hole()
    local script = [[return tool { "Asks.", input = { name = t.string }, function(args) local _, why = upstream(args.name):call("x") return why end }]]
    local g <close> = gateway.start { scripts = { ["tools/asks.lua"] = script }, constants = { upstream_connect_ms = 300 },
      config = { upstreams = { short = { url = hole.url, timeout = "10m", open = "10m", list_wait = "1ms" } } } }
    local c <close> = g:client "2026-07-28"
    local answer = c:call("tools/call", { name = "asks", arguments = { name = "short" } })
    assert.matches("upstream 'short' is not there", upstream.text(answer), 1, true)
    assert.matches("the call was not run", upstream.text(answer), 1, true)
    g:wait_log("upstream lists cannot be read", { upstream = "short" })
  end)
end)
