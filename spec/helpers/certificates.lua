-- Certificates and keys for specs, as texts in PEM, made by the openssl command.
local uv = require "luv"

local certificates = {}

local OPENSSL = "/usr/bin/openssl"
local EC = { "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1" }

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

-- Runs openssl and returns its stdout; a failure of openssl fails the spec.
function certificates.openssl(...)
  local code, out, err = require("spec.helpers.gateway").run_program(OPENSSL, { ... })
  assert(code == 0, err)
  return out
end

local function temporary(text)
  local path = os.tmpname()
  write(path, text or "")
  return path
end

local function joined(...)
  local all = {}
  for _, list in ipairs { ... } do
    table.move(list, 1, #list, #all + 1, all)
  end
  return all
end

-- `openssl x509` takes a lifetime in days only, and from OpenSSL 3.5 on none that is over.
local function sign_until(ends, request, ca, key, extensions, path)
  local database = temporary()
  local config = temporary(table.concat({ "[ca]", "default_ca=c", "[c]", "database=" .. database, "new_certs_dir=/tmp", "rand_serial=yes",
    "default_md=sha256", "policy=p", "[p]", "commonName=supplied", "" }, "\n"))
  certificates.openssl("ca", "-batch", "-notext", "-config", config, "-in", request, "-cert", ca, "-keyfile", key, "-out", path,
    "-extfile", extensions, "-startdate", os.date("!%Y%m%d%H%M%SZ", math.min(os.time(), ends) - 86400), "-enddate", os.date("!%Y%m%d%H%M%SZ", ends))
  local serial = certificates.openssl("x509", "-in", path, "-noout", "-serial"):match "=(%x+)"
  for _, file in ipairs { database, database .. ".old", database .. ".attr", config, "/tmp/" .. serial .. ".pem" } do os.remove(file) end
end

-- Makes a certificate that signs itself, or that `by` signs. `want`: subject ("/CN=x"), sans ("DNS:a,IP:1.2.3.4", or
-- false), days, ends (seconds since 1970; with `by`), algorithm (openssl's words for the key), more (words for `openssl
-- req` or `x509`), is_authority.
function certificates.make(want, by)
  local key_path, path = temporary(), temporary()
  local subject, sans = want.subject or "/CN=spec", want.sans
  if sans == nil then sans = "IP:127.0.0.1,DNS:localhost" end
  local extensions = {}
  if sans then extensions[#extensions + 1] = "subjectAltName=" .. sans end
  extensions[#extensions + 1] = want.is_authority and "basicConstraints=critical,CA:TRUE" or "basicConstraints=critical,CA:FALSE"
  for _, extension in ipairs(want.extensions or {}) do extensions[#extensions + 1] = extension end
  if by then
    local request, ca, ca_key, config = temporary(), temporary(by.own), temporary(by.key), temporary(table.concat(extensions, "\n") .. "\n")
    certificates.openssl(table.unpack(joined({ "req", "-new", "-nodes", "-utf8", "-keyout", key_path, "-out", request, "-subj", subject },
      want.algorithm or EC)))
    if want.ends then
      sign_until(want.ends, request, ca, ca_key, config, path)
    else
      certificates.openssl(table.unpack(joined({ "x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-set_serial", want.serial or "0x1234",
        "-days", tostring(want.days or 2), "-out", path, "-extfile", config }, want.more or {})))
    end
    for _, file in ipairs { request, ca, ca_key, config } do os.remove(file) end
  else
    local words = { "req", "-x509", "-nodes", "-utf8", "-keyout", key_path, "-out", path, "-days", tostring(want.days or 2), "-subj", subject }
    for _, extension in ipairs(extensions) do
      words[#words + 1] = "-addext"
      words[#words + 1] = extension
    end
    certificates.openssl(table.unpack(joined(words, want.algorithm or EC, want.more or {})))
  end
  local own, key = read(path), read(key_path)
  os.remove(path)
  os.remove(key_path)
  return { own = own, key = key, certificate = own .. (by and by.above or ""), above = own .. (by and by.above or "") }
end

-- A certificate for 127.0.0.1 and localhost, made once per run.
function certificates.here()
  certificates.usual = certificates.usual or certificates.make { days = 90 }
  return certificates.usual
end

-- SHA-256 of a certificate in PEM, 64 hexadecimal digits.
function certificates.fingerprint(pem)
  local path = temporary(pem)
  local text = certificates.openssl("x509", "-in", path, "-noout", "-fingerprint", "-sha256")
  os.remove(path)
  return (text:match "=(%S+)":gsub(":", ""):lower())
end

-- When a certificate in PEM expires, in seconds since 1970.
function certificates.expires(pem)
  local path = temporary(pem)
  local text = certificates.openssl("x509", "-in", path, "-noout", "-enddate")
  os.remove(path)
  local month, day, hour, min, sec, year = text:match "=(%a+)%s+(%d+) (%d+):(%d+):(%d+) (%d+)"
  local number = ("JanFebMarAprMayJunJulAugSepOctNovDec"):find(month, 1, true) // 3 + 1
  local at = os.time { year = year, month = number, day = day, hour = hour, min = min, sec = sec, isdst = false }
  return at + os.time() - os.time(os.date("!*t"))
end

-- Replaces a file in one step.
function certificates.put(path, text)
  local beside = path .. ".new"
  write(beside, text)
  assert(uv.fs_rename(beside, path))
end

certificates.write = write

return certificates
