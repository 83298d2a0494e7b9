-- The dashboard of the admin listener: its files, what their headers forbid, and its pages in Debian's chromium.
-- Without chromium the pages are not tested, and the spec says so.
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local lfs = require "lfs"
local node = require "spec.helpers.node"
local uv = require "luv"

local token = ("o"):rep(32)
local chromium = uv.fs_stat "/usr/bin/chromium" and "/usr/bin/chromium"

-- With `tls`, a second address has a certificate.
local function start(tls)
  local files = tls and require "spec.helpers.certificates".here()
  return gateway.start {
    files = files and { ["cert.pem"] = files.certificate, ["key.pem"] = files.key },
    workers = 2, constants = { condition_quiet_ms = 2000 }, config = {
      listen = files and { "127.0.0.1:0", { address = "127.0.0.1:0", tls = { certificate = "cert.pem", key = "key.pem" } } },
      admin = { listen = "127.0.0.1:0", tokens = { operate = { me = token } } }, log = { audit = "audit.log" },
    }, scripts = {
      ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.integer, b = t.integer }, function(args) return args.a + args.b end }',
      ["lib/<img src=x onerror=alert(1)>.lua"] = "return {}",
      ["jobs/often.lua"] = 'return job { "Often.", every = 0.5, function() return true end }',
      ["tools/hold.lua"] = 'return tool { "Holds.", function() sleep(300) end }',
    },
  }
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

-- The addresses of the files of the dashboard: { ["/"] = "index.html", ["/ui/app.js"] = "app.js", … }
local function files()
  local found = { ["/"] = "index.html" }
  for name in lfs.dir "core/admin/ui" do
    if name:sub(1, 1) ~= "." then
      found["/ui/" .. name] = name
    end
  end
  return found
end

local function fetch(g, path, headers)
  return client.request(g, { path = path, headers = headers }, { admin = true })
end

-- Runs a walk of spec/clients in a browser, and gives what it found.
local function walk(g, program)
  local code, out, err = gateway.run_program(node.path, {
    "spec/clients/" .. program, chromium, "http://127.0.0.1:" .. g.admin_port, token, g.url, g.dir .. "/browser", "build/screens", g.dir .. "/scripts",
  }, { seconds = 400 })
  local found = assert(cjson.decode(out), out .. err)
  assert.is_nil(found.error, tostring(found.error) .. "\n" .. tostring(found.text))
  assert.equal(0, code)
  assert.same({}, found.console)
  assert.same({}, found.violations)
  assert.same({}, found.wide)
  assert.same({}, found.unnamed)
  assert.same({}, found.axe)
  return found
end

describe("the dashboard", function()
  it("is served to every caller, since it has no data, and only as it was built", function()
    local g <close> = start()
    local packed_bytes, bytes = 0, 0
    for path, file in pairs(files()) do
      local answer = fetch(g, path, { ["Accept-Encoding"] = "gzip, br" })
      assert.equal(200, answer.status, path)
      assert.equal("gzip", answer.headers["content-encoding"])
      assert.equal("accept-encoding", answer.headers.vary)
      assert.equal("nosniff", answer.headers["x-content-type-options"])
      assert.equal("no-referrer", answer.headers["referrer-policy"])
      assert.equal("same-origin", answer.headers["cross-origin-opener-policy"])
      assert.truthy(answer.headers["content-security-policy"]:find("default-src 'none'; script-src 'self'; style-src 'self';", 1, true))
      assert.is_nil(answer.headers["content-security-policy"]:find "unsafe")
      local packed = g.dir .. "/packed.gz"
      local out <close> = assert(io.open(packed, "wb"))
      out:write(answer.body)
      out:close()
      local pipe <close> = assert(io.popen("gzip -dc '" .. packed .. "'"))
      local text = read("core/admin/ui/" .. file)
      assert.equal(text, pipe:read "a")
      packed_bytes, bytes = packed_bytes + #answer.body, bytes + #text
      local again = fetch(g, path, { ["Accept-Encoding"] = "gzip", ["If-None-Match"] = answer.headers.etag })
      assert.equal(304, again.status)
      assert.equal("", again.body)
      assert.equal("accept-encoding", again.headers.vary)
    end
    assert.is_true(packed_bytes <= 47 << 10, "the page has " .. packed_bytes .. " bytes, compressed")
    assert.is_true(bytes <= 150 << 10, "the page has " .. bytes .. " bytes")
    for _, path in ipairs { "/ui/", "/ui/app", "/ui/../admin.c", "/ui/%2e%2e/x", "/ui", "//", "/index.html" } do
      assert.equal(404, g:admin(path).status, path)
    end
    assert.equal(405, g:admin("/", "POST").status)
    assert.equal(403, client.request(g, { path = "/", headers = { Host = "evil.example" } }, { admin = true }).status)
    assert.has_nothing_left(g)
  end)

  it("is sent without compression to a client that does not take gzip", function()
    local g <close> = start()
    local text = read "core/admin/ui/app.js"
    local packed = fetch(g, "/ui/app.js", { ["Accept-Encoding"] = "gzip" })
    for _, wanted in ipairs { "", "br", "gzip;q=0", "gzip; q=0.000, *", "identity, *;q=0", "gzipped", ",;," } do
      local answer = fetch(g, "/ui/app.js", wanted ~= "" and { ["Accept-Encoding"] = wanted } or {})
      assert.equal(200, answer.status)
      assert.is_nil(answer.headers["content-encoding"], wanted)
      assert.equal("accept-encoding", answer.headers.vary)
      assert.equal(text, answer.body)
      assert.are_not.equal(packed.headers.etag, answer.headers.etag)
      assert.equal(304, fetch(g, "/ui/app.js", { ["Accept-Encoding"] = wanted ~= "" and wanted or nil, ["If-None-Match"] = answer.headers.etag }).status)
      assert.equal(200, fetch(g, "/ui/app.js", { ["Accept-Encoding"] = wanted ~= "" and wanted or nil, ["If-None-Match"] = packed.headers.etag }).status)
    end
    for _, wanted in ipairs { "br, gzip;q=0.5", "GZIP", "*", "*;q=0, gzip", "x-gzip" } do
      local answer = fetch(g, "/ui/app.js", { ["Accept-Encoding"] = wanted })
      assert.equal("gzip", answer.headers["content-encoding"], wanted)
      assert.equal(packed.headers.etag, answer.headers.etag)
    end
    assert.has_nothing_left(g)
  end)

  it("has no markup, style or code inside its page, and loads nothing from elsewhere", function()
    local page = read "core/admin/ui/index.html"
    assert.is_nil(page:find("<style", 1, true))
    assert.is_nil(page:find " style=")
    assert.is_nil(page:find " on%w+=")
    assert.is_nil(page:find "<script[^>]*>[^<]")
    for _, file in pairs(files()) do
      local text = read("core/admin/ui/" .. file):gsub('"http://www%.w3%.org/2000/svg"', "")
      for _, word in ipairs { "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://", "localStorage", "cookie" } do
        assert.is_nil(text:find(word, 1, true), file .. " has " .. word)
      end
    end
  end)

  it("works in a browser: by keyboard, on a phone, in the dark, offline, with hostile names", function()
    if not chromium then
      pending "there is no chromium: apt-get install chromium"
      return
    end
    local g <close> = start(true)
    local me = g:client "2025-11-25"
    local found = walk(g, "dashboard.mjs")
    assert.is_true(found.cancelled)
    assert.equal("Leave it as it is", found.leaves)
    assert.equal("#overview", found.hash)
    assert.same({ true, true }, { found.stays, found.changes }) -- a link replaces a sign-in by a click alone
    assert.equal("rgb(18, 22, 31)", found.theme)
    assert.equal(2, #found.told)
    assert.same(found.told, found.shown)
    assert.equal(0, found.images)
    assert.is_false(found.html)
    assert.is_true(found.behind)
    assert.equal("Menu", found.menu)
    assert.equal("false", found.closed)
    for _, url in ipairs(found.requests) do
      local is_own = url == "about:blank" or url:find("http://127.0.0.1:" .. g.admin_port .. "/", 1, true) == 1
      assert.truthy(is_own, url)
      assert.is_nil(url:find("/#?token=", 1))
      assert.is_nil(url:find(token, 1, true), url)
    end
    local audit = read(g.dir .. "/audit.log")
    for _, event in ipairs { "call cancelled by operator", "session ended by operator", "tap opened", "tap closed" } do
      assert.matches('"event":"' .. event .. '"[^\n]*"caller":"token me"', audit)
    end
    me:close()
  end)

  it("shows a newcomer the line of an error, a call, and its trace in the charts", function()
    if not chromium then
      pending "there is no chromium: apt-get install chromium"
      return
    end
    local g <close> = start()
    local found = walk(g, "newcomer.mjs")
    assert.is_nil(found.address:find(found.code, 1, true))
    for _, url in ipairs(found.history) do assert.is_nil(url:find(found.code, 1, true), url) end
    assert.is_nil(found.stored:find(found.code, 1, true))
    assert.is_nil(g:log():find(found.code, 1, true))
    assert.is_nil(read(g.dir .. "/audit.log"):find(found.code, 1, true))
    assert.matches("tools/hello.lua:3: unfinished string", found.excerpt)
    assert.matches('function%(%) return "hello end,', found.excerpt)
    assert.matches('"hello"', found.still)
    assert.matches("hello again", found.now)
    assert.matches("refused", found.reloads)
    assert.matches("generation 3", found.reloads)
  end)
end)
