-- Who may use which endpoint of the admin listener: roles by token, by certificate, by Unix socket, and what a loopback
-- address leaves open.
local uv = require "luv"
local certificates = require "spec.helpers.certificates"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local tokens = { metrics = ("m"):rep(32), view = ("v"):rep(32), operate = ("o"):rep(32) }
local all_tokens = {
  metrics = { grafana = tokens.metrics }, view = { ann = tokens.view }, operate = { joe = tokens.operate, eve = ("e"):rep(32) },
}

-- Each endpoint: the role that it needs, and whether a loopback address leaves it open.
local endpoints = {
  { "GET", "/healthz", "none" }, { "HEAD", "/healthz", "none" }, { "GET", "/readyz", "none" },
  { "GET", "/metrics", "metrics", open = true }, { "GET", "/status", "view", open = true }, { "POST", "/reload", "operate", open = true },
}
local rank = { none = 0, metrics = 1, view = 2, operate = 3 }

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

-- Sends one request over a Unix socket and returns the status.
local function ask_unix(path, method, target)
  local pipe, answer, over = uv.new_pipe(false), "", false
  pipe:connect(path, function(err)
    assert(not err, err)
    pipe:read_start(function(_, bytes)
      if bytes then answer = answer .. bytes else over = true end
    end)
    pipe:write(("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"):format(method, target))
  end)
  wait.for_fact("the answer over " .. path, 10, function() return over end)
  pipe:close()
  return tonumber(answer:match "^HTTP/1.1 (%d+)")
end

local function ask(g, at, token, tls, headers)
  headers = headers or {}
  headers["Content-Length"] = at[1] == "POST" and 0 or nil
  headers.Authorization = token and "Bearer " .. token
  return client.request(g, { method = at[1], path = at[2], headers = headers }, { admin = true, tls = tls })
end

local function check_matrix(g, callers, is_near)
  for _, at in ipairs(endpoints) do
    for name, caller in pairs(callers) do
      local answer = ask(g, at, caller.token, caller.tls)
      local where = ("%s %s by %s"):format(at[1], at[2], name)
      if is_near and at.open or rank[caller.role] >= rank[at[3]] then
        assert.equal(200, answer.status, where)
      elseif caller.role == "none" and not caller.is_known then
        assert.equal(401, answer.status, where)
        assert.equal('Bearer realm="moonpool admin"', answer.headers["www-authenticate"], where)
      else
        assert.equal(403, answer.status, where)
        assert.truthy(answer.body:find(("the role %s, and yours is %s"):format(at[3], caller.role), 1, true) or at[1] == "HEAD", where)
      end
    end
  end
end

local by_token = {
  ["nobody"] = { role = "none" }, ["the metrics token"] = { role = "metrics", token = tokens.metrics },
  ["the view token"] = { role = "view", token = tokens.view }, ["the operate token"] = { role = "operate", token = tokens.operate },
}

describe("the admin listener", function()
  it("leaves health, metrics, status and reload open on a loopback address", function()
    local g <close> = gateway.start { config = { admin = { tokens = all_tokens } } }
    check_matrix(g, by_token, true)
    assert.has_nothing_left(g)
  end)

  it("needs the role of each endpoint where other machines can reach it", function()
    local g <close> = gateway.start { config = { admin = { listen = "0.0.0.0:0", tokens = all_tokens } } }
    check_matrix(g, by_token, false)
    g:wait_log("refused", { cause = "admin" })
    for _, token in pairs(tokens) do assert.is_nil(g:log():find(token, 1, true)) end
  end)

  it("lets whoever can open its Unix socket do everything, with the permissions of admin.mode", function()
    local socket = os.tmpname()
    os.remove(socket)
    local g <close> = gateway.start {
      config = { admin = { listen = "unix:" .. socket, mode = "0620" }, log = { audit = "audit.log" } },
    }
    assert.equal(tonumber("620", 8), uv.fs_stat(socket).mode & 511)
    for _, at in ipairs(endpoints) do assert.equal(200, ask_unix(socket, at[1], at[2]), at[2]) end
    wait.for_fact("an audit line with the user", 20, function()
      return read(g.dir .. "/audit.log"):find('"event":"reload requested".*"caller":"uid ' .. uv.getuid() .. '"')
    end)
  end)

  it("gives certificates the roles of admin.certificates", function()
    local here = certificates.here()
    local authority = certificates.make { subject = "/CN=authority", is_authority = true }
    local g <close> = gateway.start {
      config = {
        admin = {
          listen = "0.0.0.0:0", tls = { certificate = "cert.pem", key = "key.pem", client_ca = "ca.pem", client = "optional" },
          certificates = { ["CN=grafana*"] = "metrics", ["CN=joe"] = "operate" }, tokens = { view = { ann = tokens.view } },
        },
      },
      files = { ["cert.pem"] = here.certificate, ["key.pem"] = here.key, ["ca.pem"] = authority.certificate },
    }
    local function with(subject)
      if not subject then return { name = "localhost", ca = g.dir .. "/cert.pem" } end
      local made = certificates.make({ subject = "/CN=" .. subject, sans = false }, authority)
      local base = ("%s/%s"):format(g.dir, subject)
      for name, text in pairs { [".pem"] = made.certificate, [".key"] = made.key } do
        local file <close> = assert(io.open(base .. name, "wb"))
        file:write(text)
      end
      return { name = "localhost", ca = g.dir .. "/cert.pem", certificate = base .. ".pem", key = base .. ".key" }
    end
    check_matrix(g, {
      ["grafana"] = { role = "metrics", tls = with "grafana-1" }, ["joe"] = { role = "operate", tls = with "joe" },
      ["a stranger"] = { role = "none", is_known = true, tls = with "stranger" }, ["nobody"] = { role = "none", tls = with(nil) },
      ["the view token"] = { role = "view", token = tokens.view, tls = with(nil) },
    }, false)
  end)

  it("ends the taps, codes and sessions of the dashboard of certificates, once admin.certificates has changed", function()
    local here = certificates.here()
    local authority = certificates.make { subject = "/CN=authority", is_authority = true }
    local joe = certificates.make({ subject = "/CN=joe", sans = false }, authority)
    local g <close> = gateway.start {
      config = {
        admin = {
          listen = "0.0.0.0:0", tls = { certificate = "cert.pem", key = "key.pem", client_ca = "ca.pem", client = "optional" },
          certificates = { ["CN=joe"] = "operate" },
        },
      },
      files = {
        ["cert.pem"] = here.certificate, ["key.pem"] = here.key, ["ca.pem"] = authority.certificate, ["joe.pem"] = joe.certificate, ["joe.key"] = joe.key,
      },
    }
    local tls = { name = "localhost", ca = g.dir .. "/cert.pem", certificate = g.dir .. "/joe.pem", key = g.dir .. "/joe.key" }
    local function post(path, body, with)
      local headers = { ["moonpool-admin"] = "1", ["Content-Type"] = "application/json" }
      return client.request(g, { method = "POST", path = path, headers = headers, body = body }, { admin = true, tls = with })
    end
    local without = { name = "localhost", ca = g.dir .. "/cert.pem" }
    local code = assert(post("/api/code", "{}", tls):json().code)
    local session = assert(post("/session", '{"code":"' .. code .. '"}', without):json().token)
    local second = assert(post("/api/code", "{}", tls):json().code)
    local tap <close> = client.connect(g, { admin = true, tls = tls })
    tap:send { path = "/api/tap" }
    assert.equal(200, tap:read_head().status)
    local function ask_as(token)
      return client.request(g, { path = "/api/config", headers = { Authorization = "Bearer " .. token } }, { admin = true, tls = without }).status
    end
    assert.equal(200, ask_as(session))
    local text = read(g.dir .. "/moonpool.yaml")
    local file = assert(io.open(g.dir .. "/moonpool.yaml", "wb"))
    file:write((text:gsub('"CN=joe":"operate"', '"CN=joe":"metrics"')))
    file:close()
    g:signal "sighup"
    g:wait_log "reloaded"
    g:wait_log "tap closed"
    assert.equal(401, ask_as(session))
    assert.equal(404, post("/session", '{"code":"' .. second .. '"}', without).status)
  end)

  it("refuses names that it does not serve, and changes by pages of other origins, whatever their token", function()
    local g <close> = gateway.start { config = { admin = { listen = "0.0.0.0:0", tokens = all_tokens } } }
    for _, at in ipairs(endpoints) do
      for _, headers in ipairs { { Origin = "http://evil.example" }, { Origin = "null" } } do
        assert.equal(403, ask(g, at, tokens.operate, nil, headers).status, at[2])
      end
      local takes_any_host = at[2] == "/healthz" or at[2] == "/readyz" or at[2] == "/metrics"
      assert.equal(takes_any_host and 200 or 403, ask(g, at, tokens.operate, nil, { Host = "evil.example" }).status, at[2])
    end
    for _, at in ipairs { { "POST", "/reload" }, { "GET", "/api/calls" } } do
      for _, headers in ipairs {
        { Origin = "http://localhost:3000" }, { ["Sec-Fetch-Site"] = "cross-site" }, { ["Sec-Fetch-Site"] = "same-site" },
      } do
        assert.equal(403, ask(g, at, tokens.operate, nil, headers).status, at[2])
      end
    end
    g:wait_log "serving"
    assert.is_nil(g:log():find("reloaded", 1, true))
  end)

  it("looks at no token of an address that sent ten wrong ones in a minute", function()
    local g <close> = gateway.start { config = { admin = { listen = "0.0.0.0:0", tokens = all_tokens } } }
    local at = { "GET", "/status" }
    for i = 1, 10 do assert.equal(401, ask(g, at, "wrong " .. i).status) end
    for _, token in ipairs { "wrong", tokens.operate } do
      local answer = ask(g, at, token)
      assert.equal(429, answer.status)
      assert.truthy(tonumber(answer.headers["retry-after"]) <= 60)
    end
    assert.equal(401, ask(g, at, nil).status)
  end)

  it("uses the tokens of the configuration that serves", function()
    local g <close> = gateway.start { config = { admin = { listen = "0.0.0.0:0", tokens = all_tokens } } }
    local at = { "GET", "/status" }
    assert.equal(200, ask(g, at, tokens.view).status)
    local text = read(g.dir .. "/moonpool.yaml")
    local file = assert(io.open(g.dir .. "/moonpool.yaml", "wb"))
    file:write((text:gsub(tokens.view, ("w"):rep(32))))
    file:close()
    g:signal "sighup"
    g:wait_log "reloaded"
    assert.equal(200, ask(g, at, ("w"):rep(32)).status)
    assert.equal(401, ask(g, at, tokens.view).status)
  end)

  it("does not start where other machines can reach it without credentials", function()
    for _, config in ipairs {
      'admin: "0.0.0.0:7301"', 'admin: {listen: "[::]:7301"}', 'admin: {listen: "0.0.0.0:7301", tokens: {}}',
    } do
      local dir = gateway.prepare { config = config .. "\n" }
      local code, _, err = gateway.exec({ "run", dir .. "/moonpool.yaml" })
      assert.equal(78, code, config)
      assert.truthy(err:find("other machines can reach", 1, true), err)
      assert.truthy(err:find("tokens: {operate: {me: ", 1, true), err)
    end
  end)

  it("refuses tokens that can be guessed, roles that it does not have, and certificates without client_ca", function()
    for config, why in pairs {
      ["{tokens: {view: {ann: short}}}"] = "22 to 4096", ["{tokens: {admin: {ann: " .. tokens.view .. "}}}"] = "unknown key 'admin'",
      ["{certificates: {'CN=x': root}}"] = "'root' is no role", ["{certificates: {'CN=x': view}}"] = "needs 'tls.client_ca'",
      ["{listen: 'unix:/tmp/x', mode: 0999}"] = "three octal digits",
    } do
      local dir = gateway.prepare { config = "admin: " .. config .. "\n" }
      local code, _, err = gateway.exec({ "check", dir .. "/moonpool.yaml" })
      assert.equal(78, code, config)
      assert.truthy(err:find(why, 1, true), err)
    end
  end)
end)

describe("the token of a loopback address", function()
  it("is in a file for the gateway's user alone, is used by commands, and ends with the process", function()
    local dir = os.tmpname()
    os.remove(dir)
    uv.fs_mkdir(dir, 448)
    local g <close> = gateway.start { env = { XDG_RUNTIME_DIR = dir } }
    local path = ("%s/moonpool/%d.token"):format(dir, g.admin_port)
    local stat = assert(uv.fs_stat(path))
    assert.equal(tonumber("600", 8), stat.mode & 511)
    assert.equal(tonumber("700", 8), uv.fs_stat(dir .. "/moonpool").mode & 511)
    local token = read(path):match "^(%x+)\n$"
    assert.equal(64, #token)
    for _, place in ipairs { g:log(), read("/proc/" .. g.pid .. "/environ"), read("/proc/" .. g.pid .. "/cmdline"), g:admin("/status").body } do
      assert.is_nil(place:find(token, 1, true))
    end
    g:stop()
    assert.is_nil(uv.fs_stat(path))
    uv.fs_rmdir(dir .. "/moonpool")
    uv.fs_rmdir(dir)
  end)

  it("is not made where the configuration has tokens", function()
    local dir = os.tmpname()
    os.remove(dir)
    uv.fs_mkdir(dir, 448)
    local g <close> = gateway.start { env = { XDG_RUNTIME_DIR = dir }, config = { admin = { tokens = all_tokens } } }
    assert.is_nil(uv.fs_stat(dir .. "/moonpool"))
    g:stop()
    uv.fs_rmdir(dir)
  end)
end)

describe("a token is compared", function()
  -- The hash of what was sent is compared with each token's hash, whole, by a function whose time does not depend on
  -- the bytes.
  it("with every token, all bytes of their hashes, whichever it is and wherever it is wrong", function()
    if os.getenv "TSAN_OPTIONS" then return pending "ThreadSanitizer's build has no library that counts comparisons" end
    local counts = os.tmpname()
    local g <close> = gateway.start { config = { admin = { listen = "127.0.0.1:0", tokens = all_tokens } }, env = {
      LD_PRELOAD = assert(uv.fs_realpath(gateway.binary:match "^(.*)/[^/]*$" .. "/comparisons.so")), MOONPOOL_COMPARISONS = counts,
      ASAN_OPTIONS = (os.getenv "ASAN_OPTIONS" or "") .. ":verify_asan_link_order=0",
    } }
    local function compared(token)
      local comparisons, bytes = ("<i8i8"):unpack(read(counts))
      local status = ask(g, { "GET", "/api/jobs" }, token).status
      local now, now_bytes = ("<i8i8"):unpack(read(counts))
      return { status, now - comparisons, now_bytes - bytes }
    end
    local all = 4
    local right, weak, wrong = { 200, all, all * 32 }, { 403, all, all * 32 }, { 401, all, all * 32 }
    assert.same(right, compared(tokens.view))
    assert.same(right, compared(tokens.operate))
    assert.same(right, compared(all_tokens.operate.eve))
    assert.same(weak, compared(tokens.metrics))
    assert.same(wrong, compared("x" .. tokens.operate:sub(2)))
    assert.same(wrong, compared(tokens.operate:sub(1, -2) .. "x"))
    assert.same(wrong, compared(tokens.operate:sub(1, -2)))
    assert.same(wrong, compared(tokens.operate .. "o"))
    assert.same(wrong, compared(("o"):rep(2000)))
    os.remove(counts)
  end)
end)

describe("moonpool status", function()
  it("uses the token of the variable, and of the configuration", function()
    local g <close> = gateway.start { config = { admin = { listen = "0.0.0.0:0", tokens = all_tokens } } }
    local address = "127.0.0.1:" .. g.admin_port
    local code, out, err = gateway.exec({ "status", "--json", "--admin", address }, { env = { MOONPOOL_ADMIN_TOKEN = tokens.view } })
    assert.equal(0, code, err)
    assert.truthy(out:find('"pid":' .. g.pid, 1, true))
    code, out, err = gateway.exec { "status", "--admin", address }
    assert.equal(1, code, out)
    assert.truthy(err:find("MOONPOOL_ADMIN_TOKEN", 1, true), err)
  end)
end)

-- The request that changes the code of a link for a token.
local function code_request(code)
  local body = ('{"code":"%s"}'):format(code)
  return { method = "POST", path = "/session", body = body,
    headers = { ["Content-Type"] = "application/json", ["Content-Length"] = #body, ["moonpool-admin"] = "1" } }
end

describe("moonpool dashboard", function()
  local function run(g, role, env, ...)
    env.MOONPOOL_ADMIN_TOKEN = tokens[role]
    return gateway.exec({ "dashboard", "--admin", "127.0.0.1:" .. g.admin_port, ... }, { env = env })
  end

  local function change(g, code) return client.request(g, code_request(code), { admin = true }) end

  local function get(g, path, token) return client.request(g, { path = path, headers = { Authorization = "Bearer " .. token } }, { admin = true }).status end

  it("prints a link whose code gives one session, with the caller's name, until the caller's token is gone", function()
    local g <close> = gateway.start { config = { admin = { listen = "127.0.0.1:0", tokens = all_tokens }, log = { audit = "audit.log", level = "debug" } } }
    local code, out, err = run(g, "operate", {})
    assert.equal(0, code, err)
    local link = out:match("^http://127%.0%.0%.1:" .. g.admin_port .. "/#code=(%x+)\n$")
    assert.equal(64, #link)
    assert.equal(401, get(g, "/api/config", link)) -- a code is no token
    local answer = change(g, link)
    assert.equal(200, answer.status, answer.body)
    local token = answer:json().token
    assert.equal(404, change(g, link).status)
    assert.equal(200, get(g, "/api/config", token))
    assert.equal(1, (run(g, "view", {})))
    local again = client.request(g, { method = "POST", path = "/api/code", headers = { Authorization = "Bearer " .. token, ["moonpool-admin"] = "1",
      ["Content-Length"] = 0 } }, { admin = true }):json().code
    local other = change(g, again):json().token
    assert.equal(200, get(g, "/api/config", other))
    local text = g:file "moonpool.yaml"
    local file <close> = assert(io.open(g.dir .. "/moonpool.yaml", "wb"))
    file:write((text:gsub(tokens.operate, ("n"):rep(32))))
    file:close()
    assert.equal(200, g:admin("/reload", "POST").status)
    assert.equal(200, get(g, "/api/config", ("n"):rep(32)))
    assert.equal(401, get(g, "/api/config", token))
    assert.equal(401, get(g, "/api/config", other))
    wait.for_fact("the audit", 20, function()
      local audit = g:file "audit.log"
      return audit:find '"event":"dashboard code made"' and select(2, audit:gsub('"event":"dashboard opened"[^\n]*"caller":"token ', "")) == 2
    end)
    for _, name in ipairs { "audit.log", "stderr" } do
      for _, secret in ipairs { link, again, token, other } do assert.is_nil(g:file(name):find(secret, 1, true), name) end
    end
  end)

  it("keeps sixteen codes, of which new ones replace the oldest; wrong codes count as wrong tokens", function()
    local g <close> = gateway.start { config = { admin = { listen = "127.0.0.1:0", tokens = all_tokens } } }
    local codes = {}
    for i = 1, 17 do
      codes[i] = client.request(g, { method = "POST", path = "/api/code", headers = { Authorization = "Bearer " .. tokens.operate,
        ["moonpool-admin"] = "1", ["Content-Length"] = 0 } }, { admin = true }):json().code
    end
    assert.equal(404, change(g, codes[1]).status)
    assert.equal(200, change(g, codes[2]).status)
    assert.equal(200, change(g, codes[17]).status)
    assert.equal(400, change(g, "").status)
    for i = 1, 9 do assert.equal(404, change(g, ("%064x"):format(i)).status) end
    assert.equal(429, change(g, codes[3]).status)
  end)

  it("keeps a number of them, and of those who are signed in, the newest", function()
    local g <close> = gateway.start { config = { admin = { listen = "127.0.0.1:0", tokens = all_tokens } },
      constants = { admin_codes = 3, admin_sign_ins = 3 } }
    local function code()
      return client.request(g, { method = "POST", path = "/api/code", headers = { Authorization = "Bearer " .. tokens.operate,
        ["moonpool-admin"] = "1", ["Content-Length"] = 0 } }, { admin = true }):json().code
    end
    local codes, signed = {}, {}
    for i = 1, 4 do codes[i] = code() end
    assert.equal(404, change(g, codes[1]).status)
    for i = 2, 4 do signed[i] = change(g, codes[i]):json().token end
    signed[5] = change(g, code()):json().token
    assert.equal(401, get(g, "/api/config", signed[2]))
    for i = 3, 5 do assert.equal(200, get(g, "/api/config", signed[i])) end
    local dropped = g:status().counters.dropped
    assert.same({ 1, 1 }, { dropped.admin_codes, dropped.admin_sign_ins })
  end)

  it("opens the link by a file that only this user can read, which leaves the code in no argument", function()
    local g <close> = gateway.start { config = { admin = { listen = "127.0.0.1:0", tokens = all_tokens } } }
    local dir = gateway.new_folder()
    local file <close> = assert(io.open(dir .. "/xdg-open", "wb"))
    file:write('#!/bin/sh\nstat -c %a "$1" >"' .. dir .. '/new"\ncat "$1" >>"' .. dir .. '/new"\necho "$*" >>"' .. dir .. '/new"\nmv "' .. dir
      .. '/new" "' .. dir .. '/opened"\n')
    file:close()
    uv.fs_chmod(dir .. "/xdg-open", 448)
    local code, out, err = run(g, "operate", { XDG_RUNTIME_DIR = dir, PATH = dir .. ":" .. os.getenv "PATH" }, "--open")
    assert.equal(0, code, err)
    local link = out:match "#code=(%x+)"
    wait.for_fact("the browser", 20, function() return uv.fs_stat(dir .. "/opened") end)
    local mode, page, arguments = read(dir .. "/opened"):match "^(%d+)\n([^\n]*)\n([^\n]*)\n$"
    assert.equal("600", mode)
    assert.truthy(page:find("url=http://127.0.0.1:" .. g.admin_port .. "/#code=" .. link, 1, true))
    assert.equal(dir .. "/moonpool/dashboard.html", arguments)
    code, out, err = run(g, "operate", { XDG_RUNTIME_DIR = "" }, "--open")
    assert.equal(1, code)
    assert.matches("^http://", out)
    assert.matches("XDG_RUNTIME_DIR", err)
    code, out, err = gateway.exec { "dashboard", "--admin", "unix:/tmp/no.sock" }
    assert.same({ 2, "" }, { code, out })
    assert.matches("browsers cannot open a Unix socket", err)
    os.execute("rm -r '" .. dir .. "'")
  end)
end)

-- Starts a gateway on a terminal, in a folder of its own, with more variables. Returns the process, the folder, the
-- port of its admin listener and the code of its link; nil without the program `script`. The process ends when the last
-- value is closed.
local function on_terminal(env)
  local script = uv.fs_stat "/usr/bin/script" and "/usr/bin/script"
  if not script then return nil end
  local dir = gateway.new_folder()
  local function write(name, text)
    local file <close> = assert(io.open(dir .. "/" .. name, "w"))
    file:write(text)
  end
  assert(uv.fs_mkdir(dir .. "/scripts", 448))
  write("moonpool.yaml", "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nlog: {file: log}\n")
  local binary = uv.fs_realpath(gateway.binary)
  env.SHELL = "/bin/sh"
  if env.RUNTIME_DIRECTORY then env.RUNTIME_DIRECTORY = dir end
  local process = gateway.spawn(script, { "-qfec", ("echo $$ >pid; exec '%s' run moonpool.yaml"):format(binary), "/dev/null" }, dir,
    { cwd = dir, env = env })
  local at_end = setmetatable({}, { __close = function()
    local pid = not process.code and uv.fs_stat(dir .. "/pid") and tonumber(read(dir .. "/pid"))
    if pid then uv.kill(pid, "sigkill") end
  end })
  local port, code
  wait.for_fact("the link", 60, function()
    port, code = read(dir .. "/stdout"):match "dashboard: http://127%.0%.0%.1:(%d+)/#code=(%x+) [^\n]*\n"
    return port
  end)
  return process, dir, port, code, at_end
end

-- Ends that gateway, and waits for its end.
local function end_on_terminal(process, dir)
  uv.kill(tonumber(read(dir .. "/pid")), "sigterm")
  wait.for_fact("the end", 20, function() return process.code end)
end

describe("a gateway that is started on a terminal", function()
  it("prints a link to its dashboard, with a code that is valid once, and that no log has", function()
    local process, dir, port, code, at_end <close> = on_terminal { RUNTIME_DIRECTORY = "its folder" } -- luacheck: ignore 211
    if not process then return pending "there is no script: apt-get install bsdutils" end
    assert.equal(64, #code)
    assert.matches("once, within a minute; later: moonpool dashboard", read(dir .. "/stdout"))
    local function change() return client.request({ admin_port = tonumber(port) }, code_request(code), { admin = true }) end
    local answer = change()
    assert.equal(200, answer.status, answer.body)
    local token = answer:json().token
    assert.equal(64, #token)
    assert.equal(404, change().status)
    wait.for_fact("the gateway to use the token", 20, function() -- only the role operate may change the level
      return gateway.exec({ "log", "--admin", "127.0.0.1:" .. port, "--level", "info", "--for", "1s" }, { env = { MOONPOOL_ADMIN_TOKEN = token } }) == 0
    end)
    end_on_terminal(process, dir)
    for _, secret in ipairs { token, code } do assert.is_nil(read(dir .. "/log"):find(secret, 1, true)) end
    assert.equal(1, select(2, read(dir .. "/stdout"):gsub("dashboard:", "")))
    assert.is_nil(uv.fs_stat(dir .. "/admin.token"))
    os.execute("rm -r '" .. dir .. "'")
  end)

  it("prints it where it has no folder for a token, too, and commands open the dashboard and show records there", function()
    local process, dir, port, code, at_end <close> = on_terminal {} -- luacheck: ignore 211
    if not process then return pending "there is no script: apt-get install bsdutils" end
    assert.equal(64, #code)
    assert.matches("once, within a minute; later: moonpool dashboard", read(dir .. "/stdout"))
    local status, out, err = gateway.exec { "dashboard", "--admin", "127.0.0.1:" .. port }
    assert.same({ 0, "" }, { status, err })
    assert.matches("#code=%x+\n$", out)
    status, out, err = gateway.exec { "replay", "--admin", "127.0.0.1:" .. port }
    assert.is_nil(err:find("needs a token", 1, true), err)
    assert.is_number(status, out)
    end_on_terminal(process, dir)
    os.execute("rm -r '" .. dir .. "'")
  end)
end)
