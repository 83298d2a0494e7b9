-- Outgoing TLS: scripts connect only to servers with a trusted certificate for the name in the URL.
local uv = require "luv"
local children = require "spec.helpers.children"
local errand = require "spec.helpers.errand"
local free_port = require "spec.helpers.free_port"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local server = {}

function server:__close()
  if not self.code then self.handle:kill "sigkill" end
  wait.for_fact("openssl to end", 20, function() return self.code end)
  os.remove(self.key)
  os.remove(self.certificate)
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

-- openssl as a web server with a certificate of its own for `names`.
local function start(names, more)
  local key, certificate, port = os.tmpname(), os.tmpname(), free_port()
  local code, _, err = gateway.run_program("/usr/bin/openssl", { "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
    "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=spec", "-addext", "subjectAltName=" .. names, table.unpack(more or {}) })
  assert(code == 0, err)
  local self = setmetatable({ key = key, certificate = certificate, port = port }, { __index = server, __close = server.__close })
  local input = uv.new_pipe(false)
  local handle, pid = uv.spawn("/usr/bin/openssl", { args = { "s_server", "-accept", "127.0.0.1:" .. port, "-key", key, "-cert", certificate, "-www",
    "-quiet" }, stdio = { input } },
    function(exit)
      self.code = exit
      children.alive[self.pid] = nil
      input:close()
      self.handle:close()
    end)
  self.handle, self.pid = assert(handle, pid), pid
  children.alive[pid] = true
  wait.for_fact("openssl to listen", 20, function()
    local tcp, outcome = uv.new_tcp(), nil
    tcp:connect("127.0.0.1", port, function(failed) outcome = failed or true end)
    wait.for_fact("a connection", 20, function() return outcome end)
    tcp:close()
    return outcome == true
  end)
  return self
end

local code = [[local res, why = http.get(args.url) return { status = res and res.status, why = why }]]

describe("a TLS server", function()
  it("whose certificate no known authority signed is refused", function()
    local s <close> = start "IP:127.0.0.1,DNS:localhost"
    local g <close> = errand.start { net = { "127.0.0.1:" .. s.port, "localhost:" .. s.port }, code = code }
    local me = g:client "2026-07-28"
    for _, host in ipairs { "127.0.0.1", "localhost" } do
      local got = errand.run(me, { url = ("https://%s:%d/"):format(host, s.port) })
      assert.is_nil(got.status)
      -- libcurl of Debian sid says "SSL certificate OpenSSL verify result: …"
      assert.truthy(got.why:find(("^GET https://%s:%d/: SSL certificate [%%a ]+: self"):format(host:gsub("%.", "%%."), s.port)), got.why)
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is talked to when http.ca has its certificate, by the names that are in it", function()
    local s <close> = start "IP:127.0.0.1"
    local g <close> = errand.start { net = { "127.0.0.1:" .. s.port, "localhost:" .. s.port }, code = code, ca = "ca.pem",
      files = { ["ca.pem"] = read(s.certificate) } }
    local me = g:client "2026-07-28"
    for _ = 1, 3 do
      local got = errand.run(me, { url = ("https://127.0.0.1:%d/"):format(s.port) })
      assert.equal(200, got.status, got.why)
    end
    local got = errand.run(me, { url = ("https://localhost:%d/"):format(s.port) })
    assert.is_nil(got.status)
    assert.matches("localhost", got.why)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("has TLS, or is none for https", function()
    local stub = require "spec.helpers.stub"
    local plain <close> = stub.start(function(_, reply) reply:json {} end)
    local g <close> = errand.start { net = { plain.at }, code = code, http = { time = "1s" } }
    local me = g:client "2026-07-28"
    assert.is_nil(errand.run(me, { url = "https://" .. plain.at .. "/" }).status)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("cannot be verified when the file of http.ca is missing", function()
    local s <close> = start "IP:127.0.0.1"
    local g <close> = errand.start { net = { "127.0.0.1:" .. s.port }, code = code, ca = "none.pem" }
    local me = g:client "2026-07-28"
    assert.matches("http.ca", errand.run(me, { url = ("https://127.0.0.1:%d/"):format(s.port) }).why)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
