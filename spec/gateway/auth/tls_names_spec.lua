-- A folder of certificates (listen.tls.folder): the name that a client asks for selects one. The folder is watched; a
-- pair with errors changes nothing, and is reported with its path.
local uv = require "luv"
local certificates = require "spec.helpers.certificates"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local made = {}

-- A pair for these names, made once per run.
local function pair(...)
  local sans = "DNS:" .. table.concat({ ... }, ",DNS:")
  made[sans] = made[sans] or certificates.make { subject = "/CN=" .. (...):gsub("%*", "any"), sans = sans }
  return made[sans]
end

local a, b, wild, other = pair "a.example.com", pair("b.example.com", "c.example.com"), pair "*.example.com", pair "other.test"

local function flat(list)
  local files = {}
  for name, one in pairs(list) do
    files["tls/" .. name .. ".pem"] = one.certificate
    files["tls/" .. name .. ".key"] = one.key
  end
  return files
end

local function start(list, tls, options)
  options = options or {}
  options.files = options.files or flat(list)
  options.config = { listen = { { address = "127.0.0.1:0", tls = tls or { folder = "tls" } } }, admin = options.admin }
  return gateway.start(options)
end

-- The facts of a new connection of a client that asks for `name`. `more`: options of tls_client.
local function facts(g, name, more)
  local tls = { name = name }
  for key, value in pairs(more or {}) do tls[key] = value end
  local connection <close> = client.connect(g, { tls = tls })
  return connection.tls:facts()
end

local function assert_shown(one, g, name)
  assert.equal(certificates.fingerprint(one.own), facts(g, name).fingerprint, name)
end

local function wait_shown(one, g, name)
  local wanted = certificates.fingerprint(one.own)
  wait.for_fact("the certificate of " .. name, 20, function() return facts(g, name).fingerprint == wanted end)
end

local function put(g, name, one)
  certificates.put(g.dir .. "/tls/" .. name .. ".pem", one.certificate)
  certificates.put(g.dir .. "/tls/" .. name .. ".key", one.key)
end

describe("a folder of certificates", function()
  it("is served by name: exact before wildcard, in letters of both cases, and the first one else", function()
    local g <close> = start { ["0"] = other, a = a, b = b, wild = wild }
    for max in ("1.2 1.3"):gmatch "%S+" do
      for name, one in pairs { ["a.example.com"] = a, ["A.Example.COM"] = a, ["a.example.com."] = a, ["b.example.com"] = b, ["c.example.com"] = b,
        ["d.example.com"] = wild, ["x.d.example.com"] = other, ["example.com"] = other, ["other.test"] = other, ["xn--bcher-kva.example.com"] = wild,
        localhost = other, ["b\195\188cher"] = other } do
        assert.equal(certificates.fingerprint(one.own), facts(g, name, { max = max }).fingerprint, name)
      end
    end
    assert.equal(certificates.fingerprint(other.own), facts(g, nil).fingerprint)
    assert.has_nothing_left(g)
  end)

  it("serves the pair that is named to clients that ask for another name, or refuses these", function()
    do
      local g <close> = start({ a = a, other = other }, { folder = "tls", default = "other" })
      assert_shown(other, g, "nowhere.test")
      assert.has_nothing_left(g)
    end
    local g <close> = start({ a = a, other = other }, { folder = "tls", unknown = "refuse" })
    assert_shown(a, g, "a.example.com")
    for _, name in ipairs { "nowhere.test", false } do
      for max in ("1.2 1.3"):gmatch "%S+" do
        local ok, why = pcall(facts, g, name or nil, { max = max })
        assert.is_false(ok)
        assert.matches("unrecognized name", why)
      end
    end
    g:wait_log("refused", { cause = "tls", why = "no certificate has the name that the client asked for" })
    assert.equal(4, g:status().counters.refused.tls)
    assert.has_nothing_left(g)
  end)

  it("may be certbot's, with a folder and links for each name, and others beside", function()
    local g <close> = start(nil, nil, {
      files = { ["tls/a.example.com/fullchain.pem"] = a.certificate, ["tls/a.example.com/privkey.pem"] = a.key, ["tls/README"] = "",
        ["tls/empty/README"] = "", ["archive/b1.pem"] = b.certificate, ["archive/b1.key"] = b.key, ["tls/b/README"] = "" },
      before = function(dir)
        uv.fs_symlink("../../archive/b1.pem", dir .. "/tls/b/fullchain.pem")
        uv.fs_symlink("../../archive/b1.key", dir .. "/tls/b/privkey.pem")
      end,
    })
    assert_shown(a, g, "a.example.com")
    assert_shown(b, g, "c.example.com")
    assert.is_nil(g:log():find "empty")
    uv.fs_mkdir(g.dir .. "/tls/new", 448)
    certificates.write(g.dir .. "/tls/new/fullchain.pem", other.certificate)
    certificates.write(g.dir .. "/tls/new/privkey.pem", other.key)
    wait_shown(other, g, "other.test")
    assert.has_nothing_left(g)
  end)

  it("tells files that are gone from files that cannot be reached: the pair of these stays in use", function()
    local files = { ["tls/lost+found/fullchain.pem"] = "" }
    for name, one in pairs { a = a, b = b, other = other } do
      files["tls/" .. name .. "/fullchain.pem"], files["tls/" .. name .. "/privkey.pem"] = one.certificate, one.key
    end
    local g <close> = start(nil, nil, { files = files, before = function(dir)
      uv.fs_mkdir(dir .. "/tls/nowhere", 448)
      uv.fs_symlink("../../archive/none.pem", dir .. "/tls/nowhere/fullchain.pem")
    end })
    assert.same({ 3, 1 }, { g:status().certificates[1].served, g:status().certificates[1].refused })
    for _, file in ipairs { "fullchain.pem", "privkey.pem" } do
      uv.fs_unlink(g.dir .. "/tls/b/" .. file)
      uv.fs_unlink(g.dir .. "/tls/other/" .. file)
      uv.fs_symlink(file, g.dir .. "/tls/b/" .. file) -- which leads to itself
    end
    assert.matches("tls/b/fullchain.pem cannot be read: Too many levels", g:wait_log("certificate refused", { hint = "" }).fields.why)
    g:wait_log("certificate removed", { certificate = "tls/other/fullchain.pem" })
    assert_shown(b, g, "b.example.com")
    assert_shown(a, g, "other.test")
    assert.has_nothing_left(g)
  end)

  it("is watched: a pair is added, renewed and removed while others are served", function()
    local g <close> = start { a = a, wild = wild }
    put(g, "b", b)
    wait_shown(b, g, "b.example.com")
    local renewed = certificates.make { subject = "/CN=a", sans = "DNS:a.example.com", days = 9 }
    put(g, "a", renewed)
    wait_shown(renewed, g, "a.example.com")
    local line = g:wait_log("certificate renewed", { certificate = "tls/a.pem" })
    assert.truthy(line.fields.expires)
    uv.fs_unlink(g.dir .. "/tls/b.pem")
    uv.fs_unlink(g.dir .. "/tls/b.key")
    wait_shown(wild, g, "b.example.com")
    g:wait_log("certificate removed", { certificate = "tls/b.pem" })
    assert.is_nil(g:log():find "refused")
    assert.has_nothing_left(g)
  end)

  it("keeps a pair whose new files have errors, says so by file, and takes others meanwhile", function()
    local g <close> = start({ a = a, other = other }, { folder = "tls", default = "other" })
    certificates.put(g.dir .. "/tls/a.pem", b.certificate)
    local line = g:wait_log "certificate refused"
    assert.matches("^tls/a.key is not the key of the certificate in tls/a.pem", line.fields.why)
    g:wait_log "certificate not renewed"
    assert_shown(a, g, "a.example.com")
    put(g, "wild", wild)
    wait_shown(wild, g, "d.example.com")
    certificates.write(g.dir .. "/tls/broken.pem", "nothing")
    g:wait_log("certificate not renewed", { why = "its files have errors: it is not served" })
    local one = g:status().certificates[1]
    assert.is_false(one.ok)
    assert.same({ 3, 2 }, { one.served, one.refused })
    assert.matches("tls/a", one.why)
    assert.matches("\nmoonpool_certificate_ok{address=[^,]-} 0\n", g:admin("/metrics").body)
    uv.fs_unlink(g.dir .. "/tls/broken.pem")
    put(g, "a", a)
    g:wait_status(function(status) return status.certificates[1].ok end)
    for _, ending in ipairs { ".pem", ".key" } do uv.fs_unlink(g.dir .. "/tls/other" .. ending) end
    g:wait_status(function(status) return not status.certificates[1].ok end) -- that of `default` stays, as a single pair does
    assert_shown(other, g, "nowhere.test")
    assert.has_nothing_left(g)
  end)

  it("keeps all pairs when the folder is empty of a sudden, as a mount point without its volume", function()
    local function swap(g, to)
      uv.fs_symlink(to, g.dir .. "/next")
      uv.fs_rename(g.dir .. "/next", g.dir .. "/tls")
      g:signal "sighup"
    end
    local files = {}
    for name, text in pairs(flat { a = a, b = b }) do files[name:gsub("^tls", "volume")] = text end
    local g <close> = start(nil, nil, { files = files, before = function(dir)
      uv.fs_mkdir(dir .. "/empty", 448)
      uv.fs_symlink("volume", dir .. "/tls")
    end })
    swap(g, "empty")
    g:wait_log("certificate", { why = "tls has no certificate any more: its certificates stay in use" })
    assert_shown(b, g, "b.example.com")
    assert.is_nil(g:log():find "certificate removed")
    assert.has_nothing_left(g)
  end)

  it("has each name once: of two pairs with it the first is served, which is logged", function()
    local g <close> = start { a = a, twin = pair("twin.test", "a.example.com") }
    assert_shown(a, g, "a.example.com")
    assert_shown(pair("twin.test", "a.example.com"), g, "twin.test")
    local line = g:wait_log "certificate"
    assert.matches("tls/twin.pem is not served for a.example.com: tls/a.pem is, which has that name, too", line.fields.why)
    assert.has_nothing_left(g)
  end)

  it("has one pair of a NAME: a file is served, and a folder of that NAME when the file is gone", function()
    local files = flat { a = a, b = b }
    files["tls/a/fullchain.pem"], files["tls/a/privkey.pem"] = other.certificate, other.key
    local g <close> = start(nil, { folder = "tls", default = "a" }, { files = files })
    local one = g:status().certificates[1]
    assert.same({ 2, 1, "tls/a/fullchain.pem is not served: a.pem beside its folder has the same NAME" }, { one.served, one.refused, one.why })
    assert_shown(a, g, "other.test")
    uv.fs_mkdir(g.dir .. "/tls/b", 448)
    certificates.write(g.dir .. "/tls/b/fullchain.pem", wild.certificate)
    certificates.write(g.dir .. "/tls/b/privkey.pem", wild.key)
    g:wait_log("certificate refused", { why = "tls/b/fullchain.pem is not served: b.pem beside its folder has the same NAME" })
    for _, file in ipairs { "a.pem", "a.key", "b.pem", "b.key" } do uv.fs_unlink(g.dir .. "/tls/" .. file) end
    wait_shown(other, g, "other.test")
    wait_shown(wild, g, "b.example.com")
    wait_shown(other, g, "nowhere.test")
    g:wait_status(function(status) return status.certificates[1].ok end)
    assert.equal(2, select(2, g:admin("/metrics").body:gsub("\nmoonpool_certificate_expiry_timestamp_seconds{", "")))
    assert.has_nothing_left(g)
  end)

  it("resumes a session for its own name and certificate alone, and on after others have changed", function()
    local g <close> = start({ a = a, b = b, wild = wild }, nil, { workers = 2 })
    for max in ("1.2 1.3"):gmatch "%S+" do
      local function connect(name, resume)
        local connection = client.connect(g, { tls = { name = name, max = max, resume = resume } })
        connection:request { path = "/nowhere" } -- so that the tickets of TLS 1.3 have come
        return connection
      end
      local first <close> = connect "b.example.com"
      for name, is_resumed in pairs { ["b.example.com"] = true, ["B.example.com"] = true, ["c.example.com"] = false, ["a.example.com"] = false,
        ["d.example.com"] = false } do
        local again <close> = connect(name, first)
        assert.equal(is_resumed, again.tls:facts().resumed, name .. " " .. max)
      end
      put(g, "other" .. max, pair(max .. ".test"))
      wait_shown(pair(max .. ".test"), g, max .. ".test")
      local again <close> = connect("b.example.com", first)
      assert.is_true(again.tls:facts().resumed)
      local renewed = certificates.make { sans = "DNS:b.example.com,DNS:c.example.com", days = 5 }
      put(g, "b", renewed)
      wait_shown(renewed, g, "b.example.com")
      local later <close> = connect("b.example.com", first)
      assert.is_false(later.tls:facts().resumed)
    end
    assert.has_nothing_left(g)
  end)

  it("asks for client certificates at each name", function()
    local authority = certificates.make { subject = "/CN=authority", is_authority = true }
    local robot = certificates.make({ subject = "/CN=robot" }, authority)
    local files = flat { a = a, b = b }
    files["ca.pem"], files["robot.pem"], files["robot.key"] = authority.certificate, robot.own, robot.key
    local g <close> = start(nil, { folder = "tls", client_ca = "ca.pem" }, { files = files })
    for _, name in ipairs { "a.example.com", "b.example.com" } do
      local with <close> = client.connect(g, { tls = { name = name, certificate = g.dir .. "/robot.pem", key = g.dir .. "/robot.key" } })
      assert.equal(404, with:request({ path = "/nowhere" }).status)
      assert.is_false((pcall(facts, g, name, { max = "1.2" })))
    end
    certificates.put(g.dir .. "/ca.pem", certificates.make({ subject = "/CN=another", is_authority = true }).certificate)
    assert.is_nil(g:wait_log("certificate renewed", { certificate = "ca.pem" }).fields.expires)
    assert.is_false((pcall(facts, g, "a.example.com", { max = "1.2", certificate = g.dir .. "/robot.pem", key = g.dir .. "/robot.key" })))
    assert.has_nothing_left(g)
  end)

  it("shows when its certificates expire, by name", function()
    local soon = certificates.make { subject = "/CN=soon", sans = "DNS:soon.test", days = 1 }
    local token = ("v"):rep(32)
    local g <close> = start({ a = a, soon = soon }, nil, { admin = { listen = "127.0.0.1:0", tokens = { view = { ann = token } } } })
    local function get(path)
      return client.request(g, { path = path, headers = { Authorization = "Bearer " .. token } }, { admin = true })
    end
    local metrics = get "/metrics".body
    for name, one in pairs { a = a, soon = soon } do
      local value = metrics:match(('\nmoonpool_certificate_expiry_timestamp_seconds{address="[^"]+",name="%s"} (%%d+)\n'):format(name))
      assert.equal(certificates.expires(one.own), tonumber(value))
    end
    local listed = get "/status":json().certificates
    assert.equal(1, #listed)
    assert.same({ "soon", true, 2, 0 }, { listed[1].name, listed[1].ok, listed[1].served, listed[1].refused })
    local all = get "/api/certificates":json().certificates
    assert.equal(2, #all)
    assert.same({ "soon", "a" }, { all[1].name, all[2].name })
    assert.same({ "DNS:soon.test" }, all[1].names)
    assert.matches("^tls/soon.pem$", all[1].certificate)
    assert.matches("certificate of soon at 127.0.0.1:%d+: until 2", select(2, gateway.exec({ "status", "-a", "127.0.0.1:" .. g.admin_port }, { cwd = g.dir })))
    assert.has_nothing_left(g)
  end)
end)

describe("many pairs that are refused", function()
  it("leave room for those that expire, in /metrics, /status and the list", function()
    local files = flat { z = a }
    for i = 1, 101 do files[("tls/%03d.pem"):format(i)] = b.certificate end
    local token = ("v"):rep(32)
    local g <close> = start(nil, nil, { files = files, admin = { listen = "127.0.0.1:0", tokens = { view = { ann = token } } } })
    local function get(path)
      return client.request(g, { path = path, headers = { Authorization = "Bearer " .. token } }, { admin = true })
    end
    assert.matches('\nmoonpool_certificate_expiry_timestamp_seconds{address="[^"]+",name="z"} %d', get "/metrics".body)
    local one = get "/status":json().certificates[1]
    assert.same({ "z", 1, 101 }, { one.name, one.served, one.refused })
    local all = get "/api/certificates":json().certificates
    assert.same({ 100, "001", "z" }, { #all, all[1].name, all[100].name })
    assert.is_nil(all[1].expires)
    assert.is_nil(g:log():find "certificate refused")
    g:signal "sighup"
    g:wait_log("certificate", { why = "101 certificates of tls are refused, of which 20 are logged" })
    assert.equal(20, select(2, g:log():gsub("certificate refused", "")))
    assert.has_nothing_left(g)
  end)
end)

describe("moonpool check", function()
  local function check(tls, files)
    local dir = gateway.prepare { config = { listen = { { address = "127.0.0.1:0", tls = tls } } }, files = files }
    local code, out, err = gateway.exec({ "check" }, { cwd = dir })
    os.execute("rm -r " .. dir)
    return code, out .. err
  end

  it("reports pairs of a folder that are not served as warnings, and serves the others", function()
    local files = flat { a = a, b = b }
    files["tls/b.key"], files["tls/c.pem"] = a.key, a.certificate
    local code, text = check({ folder = "tls" }, files)
    assert.equal(0, code)
    assert.matches("warning: tls/b.key is not the key of the certificate in tls/b.pem", text)
    assert.matches("warning: file not found: tls/c.key", text)
  end)

  it("reports a pair that OpenSSL would not use in a handshake", function()
    local major, minor = certificates.openssl "version":match "^OpenSSL (%d+)%.(%d+)"
    if tonumber(major) * 100 + tonumber(minor) >= 305 then return pending "this OpenSSL uses certificates that are signed by SHA-1" end
    local authority = certificates.make { subject = "/CN=authority", is_authority = true }
    local weak = certificates.make({ subject = "/CN=w", sans = "DNS:w.test", more = { "-sha1" } }, authority)
    local code, text = check({ folder = "tls" }, flat { a = a, weak = weak })
    assert.equal(0, code)
    assert.matches("warning: tls/weak.pem cannot be used: ca md too weak", text)
  end)

  it("fails for a folder without a pair, and without that of `default`", function()
    local code, text = check({ folder = "tls" }, { ["tls/README"] = "" })
    assert.equal(78, code)
    assert.matches("tls has no certificate with its key", text)
    code, text = check({ folder = "tls", default = "b" }, flat { a = a })
    assert.equal(78, code)
    assert.matches("tls has no certificate 'b' with its key, as 'default' wants", text)
    code, text = check({ folder = "nowhere" }, flat { a = a })
    assert.equal(78, code)
    assert.matches("nowhere cannot be read: No such file", text)
    assert.matches("hint: make the folder; relative paths start at the folder of the configuration file", text, 1, true)
  end)

  it("refuses keys that exclude each other", function()
    local files = flat { a = a }
    for text, tls in pairs {
      ["'folder' is instead of 'certificate' and 'key'"] = { folder = "tls", certificate = "tls/a.pem", key = "tls/a.key" },
      ["'default' and 'unknown' need 'folder'"] = { certificate = "tls/a.pem", key = "tls/a.key", default = "a" },
      ["'default' serves unknown names, and 'unknown: refuse' does not"] = { folder = "tls", default = "a", unknown = "refuse" },
      ["'client' needs 'client_ca'"] = { folder = "tls", client = "required" },
    } do
      local code, out = check(tls, files)
      assert.equal(78, code)
      assert.truthy(out:find(text, 1, true), out)
    end
  end)
end)

-- A certificate for each number, which has the key of one, and a signature that nothing here verifies.
local function many(dir, count)
  local template = certificates.make { subject = "/CN=h00000.test", sans = "DNS:h00000.test" }
  local path = os.tmpname()
  certificates.write(path, template.own)
  local der = certificates.openssl("x509", "-in", path, "-outform", "der")
  os.remove(path)
  uv.fs_mkdir(dir .. "/tls", 448)
  certificates.write(dir .. "/the.key", template.key)
  uv.fs_chmod(dir .. "/the.key", 384)
  local base64 = require "spec.helpers.base64"
  for i = 1, count do
    local body = base64.encode((der:gsub("h00000", ("h%05d"):format(i)))):gsub(("."):rep(64), "%0\n")
    certificates.write(("%s/tls/%05d.pem"):format(dir, i), "-----BEGIN CERTIFICATE-----\n" .. body .. "\n-----END CERTIFICATE-----\n")
    uv.fs_link(dir .. "/the.key", ("%s/tls/%05d.key"):format(dir, i))
  end
end

describe("thousands of certificates", function()
  it("are served, most of them kept as bytes; a turn of the thread that reads them is short", function()
    local count = tonumber(os.getenv "SPEC_CERTIFICATES") or 300
    local g <close> = start(nil, nil, { files = { README = "" }, constants = { tls_objects = 16, tls_pairs = count },
      before = function(dir) many(dir, count + 1) end, patience = 120 })
    g:wait_log("certificate", { why = ("tls has more than %d certificates: the others are not served"):format(count) })
    assert.equal(count, g:status().certificates[1].served)
    certificates.write(g.dir .. "/tls/00000.key", a.key) -- the first one of all takes the place of none
    certificates.write(g.dir .. "/tls/00000.pem", a.certificate)
    certificates.write(g.dir .. "/tls/00002.pem", "broken")
    g:wait_log "certificate refused"
    assert.is_nil(g:log():find "certificate removed")
    local seen = {}
    for i = 1, count, count // 100 do
      local print = facts(g, ("h%05d.test"):format(i)).fingerprint
      assert.is_nil(seen[print])
      seen[print] = true
    end
    assert.equal(100, select(2, g:admin("/metrics").body:gsub("\nmoonpool_certificate_expiry_timestamp_seconds{", "")))
    assert.has_nothing_left(g)
  end)
end)
