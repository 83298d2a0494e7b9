-- A certificate is renewed while the gateway serves: new connections get the new certificate, existing ones go on; a
-- wrong pair of files changes nothing.
local uv = require "luv"
local cjson = require "cjson"
local certificates = require "spec.helpers.certificates"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local authority = certificates.make { subject = "/CN=authority", is_authority = true }
local first, second = certificates.make({}, authority), certificates.make({}, authority)

local function start(options)
  options = options or {}
  local g = gateway.start {
    config = { listen = { { address = "127.0.0.1:0", tls = { certificate = options.certificate or "cert.pem", key = options.key or "key.pem" } } } },
    files = options.files or { ["cert.pem"] = first.certificate, ["key.pem"] = first.key }, before = options.before,
  }
  certificates.write(g.dir .. "/authority.pem", authority.own)
  g.tls = { name = "localhost", ca = g.dir .. "/authority.pem" }
  return g
end

local function shown(g)
  local connection <close> = client.connect(g)
  return connection.tls:facts().fingerprint
end

local function wait_shown(g, pair)
  local wanted = certificates.fingerprint(pair.own)
  wait.for_fact("new connections to be shown the new certificate", 20, function()
    return shown(g) == wanted
  end)
end

local function put(g, pair)
  certificates.put(g.dir .. "/cert.pem", pair.certificate)
  certificates.put(g.dir .. "/key.pem", pair.key)
end

gateway.cpu = nil -- the configuration is written anew here, and nothing but what a spec changes may differ

describe("a certificate that is renewed", function()
  it("is shown to new connections; a stream and a connection that are there go on", function()
    local g <close> = start()
    assert.equal(certificates.fingerprint(first.own), shown(g))
    local me = g:client "2024-11-05"
    local old <close> = client.connect(g)
    put(g, second)
    wait_shown(g, second)
    g:wait_log "certificate renewed"
    assert.is_nil(g:log():find("refused", 1, true))
    assert.same({}, me:result "ping")
    assert.equal(404, old:request({ path = "/nowhere" }).status)
    assert.equal(certificates.fingerprint(first.own), old.tls:facts().fingerprint)
    old:close()
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is noticed when it is written in place, at SIGHUP, and at POST /reload", function()
    local g <close> = start()
    for i, how in ipairs { "watch", "SIGHUP", "POST" } do
      local pair = certificates.make({ serial = tostring(i) }, authority)
      certificates.write(g.dir .. "/key.pem", pair.key)
      certificates.write(g.dir .. "/cert.pem", pair.certificate)
      if how == "SIGHUP" then
        g:signal "sighup"
      elseif how == "POST" then
        assert.equal(200, g:admin("/reload", "POST").status)
      end
      wait_shown(g, pair)
    end
    assert.has_nothing_left(g)
  end)

  it("is noticed when links lead to it as certbot's do", function()
    local g <close> = start {
      certificate = "live/cert.pem", key = "live/key.pem",
      files = { ["archive/cert1.pem"] = first.certificate, ["archive/key1.pem"] = first.key, ["live/README"] = "" },
      before = function(dir)
        uv.fs_symlink("../archive/cert1.pem", dir .. "/live/cert.pem")
        uv.fs_symlink("../archive/key1.pem", dir .. "/live/key.pem")
      end,
    }
    certificates.write(g.dir .. "/archive/cert2.pem", second.certificate)
    certificates.write(g.dir .. "/archive/key2.pem", second.key)
    for _, name in ipairs { "cert", "key" } do
      uv.fs_symlink("../archive/" .. name .. "2.pem", g.dir .. "/live/" .. name .. ".new")
      uv.fs_rename(g.dir .. "/live/" .. name .. ".new", g.dir .. "/live/" .. name .. ".pem")
    end
    wait_shown(g, second)
    -- writes into the folder that the symbolic links lead to
    certificates.write(g.dir .. "/archive/cert2.pem", first.certificate)
    certificates.write(g.dir .. "/archive/key2.pem", first.key)
    wait_shown(g, first)
    assert.has_nothing_left(g)
  end)

  it("is noticed when a link to its folder is swapped, as in a container's secret", function()
    local g <close> = start {
      certificate = "tls/tls.crt", key = "tls/tls.key",
      files = { ["tls/..1/tls.crt"] = first.certificate, ["tls/..1/tls.key"] = first.key, ["tls/..2/tls.crt"] = second.certificate,
        ["tls/..2/tls.key"] = second.key },
      before = function(dir)
        uv.fs_symlink("..1", dir .. "/tls/..data")
        uv.fs_symlink("..data/tls.crt", dir .. "/tls/tls.crt")
        uv.fs_symlink("..data/tls.key", dir .. "/tls/tls.key")
      end,
    }
    assert.equal(certificates.fingerprint(first.own), shown(g))
    uv.fs_symlink("..2", g.dir .. "/tls/..data_new")
    uv.fs_rename(g.dir .. "/tls/..data_new", g.dir .. "/tls/..data")
    wait_shown(g, second)
    assert.has_nothing_left(g)
  end)

  it("stays in use when the new pair does not fit, which is logged, and is replaced when it does", function()
    local g <close> = start()
    certificates.put(g.dir .. "/cert.pem", second.certificate)
    local line = g:wait_log "certificate refused"
    assert.matches("key.pem is not the key of the certificate in cert.pem", line.fields.why)
    g:wait_log "certificate not renewed"
    assert.is_false(g:status().certificates[1].ok)
    assert.equal(certificates.fingerprint(first.own), shown(g))
    certificates.put(g.dir .. "/key.pem", second.key)
    wait_shown(g, second)
    assert.is_true(g:status().certificates[1].ok)
    uv.fs_unlink(g.dir .. "/cert.pem")
    g:signal "sighup"
    g:wait_log("certificate refused", { why = "file not found: cert.pem" })
    assert.equal(certificates.fingerprint(second.own), shown(g))
    assert.has_nothing_left(g)
  end)

  it("is shown in every handshake meanwhile, the old one or the new one", function()
    local g <close> = start()
    local prints = { [certificates.fingerprint(first.own)] = true, [certificates.fingerprint(second.own)] = true }
    for i = 1, 20 do
      put(g, i % 2 == 0 and first or second)
      g:signal "sighup"
      for _ = 1, 5 do
        assert.is_true(prints[shown(g)])
      end
    end
    wait_shown(g, first)
    assert.equal(0, g:status().counters.refused.tls)
    local connection <close> = client.connect(g)
    assert.equal(400, connection:request({ method = "GET", path = "/mcp", headers = { Accept = wire.both } }).status)
    connection:close()
    assert.has_nothing_left(g)
  end)

  it("is replaced in place; other file names in moonpool.yaml, which is read again too, need a restart", function()
    local g <close> = start()
    local function save(more, tls)
      local all = { listen = { { address = "127.0.0.1:0", tls = tls or { certificate = "cert.pem", key = "key.pem" } } },
        admin = { listen = "127.0.0.1:0" }, workers = 2, scripts = { path = "scripts" }, overload = { wait = "off" } }
      for key, value in pairs(more) do all[key] = value end
      certificates.put(g.dir .. "/moonpool.yaml", cjson.encode(all))
      local response = g:admin("/reload", "POST")
      assert.equal(200, response.status, response.body)
      return response.body
    end
    assert.equal("~ moonpool.yaml (server.name)\n", save { server = { name = "other" } })
    for i = 1, 3 do
      assert.matches("needs a restart: listen", save({ server = { name = "other" .. i } }, { certificate = "other.pem", key = "key.pem" }))
      assert.matches("needs a restart: admin.tls", save { admin = { listen = "127.0.0.1:0", tls = { certificate = "cert.pem", key = "key.pem" } } })
    end
    assert.is_nil(save({ server = { name = "last" } }):find "restart")
    put(g, second)
    wait_shown(g, second)
    assert.has_nothing_left(g)
  end)
end)
