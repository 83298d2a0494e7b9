-- An error in the files of TLS is reported at the line of moonpool.yaml that names them, with a hint: by `moonpool
-- check`, and at start.
local uv = require "luv"
local certificates = require "spec.helpers.certificates"
local gateway = require "spec.helpers.gateway"

local here = certificates.here()
local authority = certificates.make { subject = "/CN=authority", is_authority = true }
local signed = certificates.make({ subject = "/CN=signed" }, authority)
local RSA_1024 = { "-newkey", "rsa:1024" }

local YAML = [[
listen:
  - address: 127.0.0.1:0
    tls:
      certificate: cert.pem
      key: key.pem
]]

local function der(pem)
  local path = os.tmpname()
  certificates.write(path, pem)
  local out = certificates.openssl("x509", "-in", path, "-outform", "der")
  os.remove(path)
  return out
end

local function encrypted(key)
  local path = os.tmpname()
  certificates.write(path, key)
  local out = certificates.openssl("pkey", "-in", path, "-aes128", "-passout", "pass:secret")
  os.remove(path)
  return out
end

-- Runs `command` in a folder with these files; returns its output.
local function run(command, yaml, files, modes)
  local dir = gateway.prepare { config = yaml, files = files }
  for name, mode in pairs(modes or {}) do uv.fs_chmod(dir .. "/" .. name, mode) end
  local code, out, err = gateway.exec({ command, "moonpool.yaml" }, { cwd = dir })
  return code, out .. err
end

local good = { ["cert.pem"] = here.certificate, ["key.pem"] = here.key }

local function with(files)
  local all = {}
  for name, text in pairs(good) do all[name] = text end
  for name, text in pairs(files) do all[name] = text or nil end
  return all
end

local swapped = { ["cert.pem"] = here.key, ["key.pem"] = here.certificate }

-- Each row: the files, then the expected place and text of the error.
local wrong = {
  { "no certificate", { ["key.pem"] = here.key }, ":4:20: file not found: cert.pem", "certificate: cert.pem", "folder of the configuration" },
  { "no key", { ["cert.pem"] = here.certificate }, ":5:12: file not found: key.pem" },
  { "an empty certificate", with { ["cert.pem"] = "" }, ":4:20: cert.pem is empty" },
  { "text for a certificate", with { ["cert.pem"] = "hello" }, ":4:20: cert.pem is not PEM: it has no line -----BEGIN CERTIFICATE-----" },
  { "text for a key", with { ["key.pem"] = "hello" }, ":5:12: key.pem is not PEM: it has no line -----BEGIN PRIVATE KEY-----" },
  { "a certificate in DER", with { ["cert.pem"] = der(here.own) }, "is not PEM", "convert it with openssl x509 -inform der" },
  { "the two the wrong way round", swapped, ":4:20: cert.pem has a private key, but no certificate", ":5:12: key.pem has a certificate, but no private key",
    "the wrong way round?" },
  { "a damaged certificate", with { ["cert.pem"] = here.own:gsub("\n....", "\nAAAA", 1) }, ":4:20: cert.pem: certificate 1 is damaged:" },
  { "a certificate cut off", with { ["cert.pem"] = here.own:sub(1, 200) }, ":4:20: cert.pem: certificate 1 is damaged:" },
  { "an encrypted certificate", with { ["cert.pem"] = here.own:gsub("CATE%-%-%-%-%-\n",
    "%0Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF\n\n", 1) }, ":4:20: cert.pem: certificate 1 is encrypted" },
  { "a damaged key", with { ["key.pem"] = here.key:gsub("\n....", "\nAAAA", 1) }, ":5:12: key.pem: the key is damaged:" },
  { "another certificate's key", with { ["key.pem"] = authority.key }, ":5:12: key.pem is not the key of the certificate in cert.pem",
    "was only one of them renewed?" },
  { "an encrypted key", with { ["key.pem"] = encrypted(here.key) }, ":5:12: key.pem is encrypted: the gateway cannot ask for a passphrase",
    "openssl pkey -in" },
  { "the authority's first", { ["cert.pem"] = authority.own .. signed.own, ["key.pem"] = signed.key },
    ":4:20: cert.pem: the server's own certificate is number 2 in the file", "must come first" },
  { "a stranger's behind it", { ["cert.pem"] = signed.own .. here.own, ["key.pem"] = signed.key },
    ":4:20: cert.pem: certificate 2 is not the issuer of certificate 1" },
  { "a weak key", { ["cert.pem"] = false, ["key.pem"] = false }, ":5:12: key.pem: a key of 1024 bits is too weak", "RSA needs 2048 bits" },
}

describe("`moonpool check` and `moonpool run`", function()
  for _, row in ipairs(wrong) do
    it("refuse " .. row[1], function()
      local files = row[2]
      if row[1] == "a weak key" then
        local weak = certificates.make { algorithm = RSA_1024 }
        files = { ["cert.pem"] = weak.certificate, ["key.pem"] = weak.key }
      end
      for _, command in ipairs { "check", "run" } do
        local code, said = run(command, YAML, files)
        assert.equal(78, code, said)
        for i = 3, #row do
          assert.truthy(said:find(row[i], 1, true), said .. "\n\nlacks: " .. row[i])
        end
        assert.truthy(said:find("moonpool.yaml:", 1, true))
        assert.is_nil(said:find(here.key:match "\n(%S+)\n", 1, true))
      end
    end)
  end

  it("refuse a folder, and a key file that other users can read", function()
    local code, said = run("check", YAML:gsub("cert.pem", "scripts"), good)
    assert.equal(78, code)
    assert.truthy(said:find("scripts is a folder, not a file", 1, true), said)
    if uv.getuid() ~= 0 then
      code, said = run("check", YAML, good, { ["key.pem"] = 0 })
      assert.equal(78, code)
      assert.truthy(said:find("key.pem cannot be read: Permission denied", 1, true), said)
    end
  end)

  it("refuse what client_ca lacks", function()
    local yaml = YAML .. "      client_ca: ca.pem\n"
    for text, why in pairs { [""] = "ca.pem is empty", ["# nobody\n"] = "ca.pem is not PEM: it has no line -----BEGIN CERTIFICATE-----",
      [here.key] = "ca.pem has a private key, but no certificate" } do
      local code, said = run("check", yaml, with { ["ca.pem"] = text })
      assert.equal(78, code)
      assert.truthy(said:find(":6:18: " .. why, 1, true), said)
    end
    local code, said = run("check", yaml, good)
    assert.equal(78, code)
    assert.truthy(said:find(":6:18: file not found: ca.pem", 1, true), said)
  end)

  -- Each row: the certificate in words, its options for openssl, and the expected warning.
  for _, row in ipairs {
    { "has expired", { ends = os.time() - 86400 }, "cert.pem expired on 20%d%d%-%d%d%-%d%d" },
    { "names no host", { sans = false }, "cert.pem names no host in its subject alternative names" },
    { "is not for servers", { extensions = { "extendedKeyUsage=clientAuth" } }, "cert.pem is not a certificate for servers" },
  } do
    it("warn of a certificate that " .. row[1], function()
      local one = certificates.make(row[2], authority)
      local code, said = run("check", YAML, { ["cert.pem"] = one.certificate, ["key.pem"] = one.key })
      assert.equal(0, code, said)
      assert.matches("moonpool.yaml:4:20: warning: " .. row[3], said)
    end)
  end

  it("warn of a key that every user may read", function()
    local code, said = run("check", YAML, good, { ["key.pem"] = 420 }) -- 0644
    assert.equal(0, code, said)
    assert.truthy(said:find("moonpool.yaml:5:12: warning: key.pem: every user of this machine can read this private key", 1, true), said)
    assert.truthy(said:find("chmod 600", 1, true), said)
  end)

  it("accept a chain, one file for certificate and key, RSA, Ed25519", function()
    for _, algorithm in ipairs { { "-newkey", "rsa:2048" }, { "-newkey", "ed25519" }, { "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp384r1" } } do
      local one = certificates.make({ algorithm = algorithm }, authority)
      local both = one.certificate .. authority.own .. one.key
      local code, said = run("check", YAML:gsub("key.pem", "cert.pem"), { ["cert.pem"] = both })
      assert.equal(0, code, said)
      assert.is_nil(said:find("warning", 1, true), said)
    end
  end)
end)

describe("the keys of `listen`", function()
  for _, row in ipairs {
    { "listen: {tls: {certificate: a, key: b}}", ":1:9: an item of 'listen' needs 'address'", "as in '{address: " },
    { "listen: [{address: '127.0.0.1:0', tls: {certificate: a}}]", ":1:40: 'listen.tls' needs 'certificate' and 'key'" },
    { "listen: [{address: '127.0.0.1:0', tls: {key: a}}]", "'listen.tls' needs 'certificate' and 'key'" },
    { "listen: [{address: '127.0.0.1:0', tls: a.pem}]", "'listen.tls' must be keys and values, not a single value" },
    { "listen: [{address: '127.0.0.1:0', tls: {certificate: a, key: b, client: optional}}]", "'client' needs 'client_ca'" },
    { "listen: [{address: '127.0.0.1:0', tls: {certificate: a, key: b, client_ca: c, client: maybe}}]",
      "'listen.tls.client' cannot be 'maybe'", "required, optional" },
    { "listen: [{address: '127.0.0.1:0', tsl: {}}]", "unknown key 'tsl'", "did you mean 'tls'?" },
    { "listen: [{address: 7300}]", "'7300' is not an address" },
    { "listen: [{address: [1]}]", "an item of 'listen' must be a single value, not a list" },
    { "listen: [['127.0.0.1:0']]", "an item of 'listen' must be a single value, not a list" },
    { "listen: [{address: '127.0.0.1:1'}, '127.0.0.1:1']", "'127.0.0.1:1' is named twice" },
    { "listen: [{address: '127.0.0.1:1', address: '127.0.0.1:2'}]", "duplicate key 'address'" },
    { "admin: {tls: {key: a}}", "'admin.tls' needs 'certificate' and 'key'" },
  } do
    it("are refused: " .. row[1], function()
      local code, said = run("check", row[1] .. "\n", {})
      assert.equal(78, code, said)
      for i = 2, #row do
        assert.truthy(said:find(row[i], 1, true), said)
      end
    end)
  end

  it("may be one map, or a list of maps and addresses", function()
    for _, yaml in ipairs {
      "listen: {address: '127.0.0.1:0'}", "listen: [{address: '127.0.0.1:0'}, '127.0.0.1:0']", "listen: [{address: '127.0.0.1:0', tls: }]",
      "listen: {address: '127.0.0.1:0', tls: {certificate: cert.pem, key: key.pem}}",
      "listen: {address: '${WHERE:-127.0.0.1:0}', tls: {certificate: '${C:-cert.pem}', key: key.pem}}",
    } do
      local code, said = run("check", yaml .. "\n", good)
      assert.equal(0, code, yaml .. "\n" .. said)
    end
  end)

  it("are replaced by --listen, which serves without TLS", function()
    local g <close> = gateway.start { tls = true, args = { "--listen", "127.0.0.1:0" } }
    assert.matches("mcp=http://", g.ready)
  end)

  it("need no files when there is no listener", function()
    local dir = gateway.prepare { config = YAML, files = {} }
    local code, _, err = gateway.run_program("/bin/sh", { "-c", uv.fs_realpath(gateway.binary) .. " stdio moonpool.yaml </dev/null" }, { cwd = dir })
    assert.equal(0, code, err)
  end)
end)
