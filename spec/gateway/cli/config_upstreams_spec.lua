-- The section `upstreams` of moonpool.yaml: what is accepted, what is refused and where, and what Lua gets of it. Rule
-- B-34.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local trusted = require "spec.helpers.trusted"

-- Runs `moonpool check` beside a moonpool.yaml of this text: returns exit code, stdout, stderr without the warning
-- about missing scripts.
local function check(text, args, options)
  local dir = gateway.prepare { config = text, files = options and options.files }
  local code, out, err = gateway.exec(args or { "check" }, { cwd = dir, env = options and options.env })
  os.execute("rm -rf '" .. dir .. "'")
  return code, out, (err:gsub("^nothing is served: [^\n]*\n  hint: [^\n]*\n", ""))
end

local function one(keys) return "upstreams:\n  a: {" .. keys .. "}\n" end

-- Each row: a name, the file, the error with its place, a part of the hint.
local refusals = {
  { "a name with capitals", "upstreams: {Git: https://x}\n", "1:13: 'Git' cannot be the name of an upstream", "github or my%-files" },
  { "a name of 33 bytes", "upstreams: {" .. ("n"):rep(33) .. ": https://x}\n", "1:13: '" .. ("n"):rep(33) .. "' cannot be the name" },
  { "two upstreams of one name", "upstreams:\n  a: https://x\n  a: https://y\n", "3:3: duplicate key 'a'" },
  { "a text instead of the map", "upstreams: https://x\n", "1:12: 'upstreams' must be names and their keys" },
  { "an upstream that is nowhere", one "timeout: 3s", "2:3: 'a' needs 'url' or 'command'", "npx" },
  { "an upstream without anything", "upstreams:\n  a:\n", "2:3: 'a' needs 'url' or 'command'" },
  { "an upstream in two places", one "url: https://x, command: [y]", "2:3: 'a' has both 'url' and 'command'", "two entries" },
  { "a key nobody knows", one "url: https://x, timeuot: 3s", "2:23: unknown key 'timeuot' in 'upstreams.NAME'", "did you mean 'timeout'" },
  { "a URL of another scheme", one "url: ftp://x", "2:12: 'ftp://x' is not a URL: it must begin with https://", "command" },
  { "a URL with a password", one "url: https://u:p@h/", "2:12: 'https://***@h/' is not a URL: a user or password", "auth: {basic" },
  { "a URL with a password and a query", one "url: https://u:p@h/?key=p", "'https://***@h/?***' is not a URL: a user or password", "auth: {basic" },
  { "a wrong URL with a query", one "url: https://h:0/m?p", "'https://h:0/m?***' is not a URL: the port" },
  { "a query without a scheme", one "url: h/m?key=p", "'h/m?***' is not a URL: it must begin", "https://" },
  { "a URL with a fragment", one "url: \"https://h/#x\"", "is not a URL: a fragment" },
  { "a URL without a host", one "url: https:///x", "is not a URL: the host is missing" },
  { "a URL with a line break", one "url: \"https://h/x\\r\\ny: z\"", "is not a URL: spaces and other characters" },
  { "a command that wants a shell", one "command: npx -y server", "2:7: 'command' must be a list", "each argument by itself" },
  { "headers for a program", one "command: [x], headers: {b: c}", "2:21: 'headers' needs 'url': 'a' is a program", "process.env" },
  { "credentials for a program", one "command: [x], auth: {bearer: b}", "'auth' needs 'url': 'a' is a program", "process.env" },
  { "passed headers for a program", one "command: [x], pass: [x-y]", "'pass' needs 'url': 'a' is a program", "nothing of the caller's" },
  { "an address of a program", one "command: [x], private: true", "'private' needs 'url': 'a' is a program", "about addresses" },
  { "TLS to a program", one "command: [x], tls: {ca: x.pem}", "'tls' needs 'url': 'a' is a program", "encrypted" },
  { "a program's folder for a URL", one "url: https://x, process: {cwd: /srv}", "'cwd' needs 'command': 'a' is no program", "starts no program" },
  { "a program's variables for a URL", one "url: https://x, process: {env: {B: c}}", "'env' needs 'command': 'a' is no program", "headers and auth" },
  { "programs of a URL", one "url: https://x, process: {most: 3}", "'most' needs 'command': 'a' is no program", "limits.upstreams.channels" },
  { "memory of a URL", one "url: https://x, process: {memory: 1GiB}", "'memory' needs 'command': 'a' is no program", "starts no program" },
  { "HTTP+SSE with a program", one "command: [x], revision: sse", "'sse' is a transport over HTTP" },
  { "TLS without TLS", one "url: http://x, tls: {ca: x.pem}", "'tls' needs a url that begins with https://" },
  { "a certificate without its key", one "url: https://x, tls: {certificate: x.pem}", "'certificate' needs 'key'" },
  { "times in the wrong order", one "url: https://x, circuit: {open: 5s..1s}", "'open' begins above its end: '5s..1s'", "1s..60s" },
  { "times without units", one "url: https://x, circuit: {open: 1..5}", "'open' needs a unit: '1..5'" },
  { "a timeout above the whole", one "url: https://x, timeout: 5m, timeout_total: 1m", "'timeout' is above 'timeout_total'" },
  { "two names for one", one "url: https://x, rename: {b: d, c: d}", "'b' and 'c' are renamed to 'd'" },
  { "URIs wrapped with a name that is no scheme", "upstreams:\n  my_files: {url: https://x, uris: wrap}\n",
    "2:30: URIs cannot be wrapped with the name 'my_files'", "my%-files" },
  { "URIs wrapped with a digit", "upstreams: {7up: {url: https://x, uris: wrap}}\n", "URIs cannot be wrapped with the name '7up'" },
  { "another form of URIs", one "url: https://x, uris: wrapped", "'upstreams.NAME.uris' cannot be 'wrapped'", "as_is, wrap" },
  { "a name that no tool may have", one "url: https://x, rename: {b: \"c d\"}", "'c d' is not names: allowed are letters" },
  { "the word Bearer", one "url: https://x, auth: {bearer: Bearer x}", "is not a token: the word Bearer is added", "only the token" },
  { "the word Basic", one "url: https://x, auth: {basic: Basic dTpw}", "the gateway adds the word Basic", "user:password" },
  { "a user without a password", one "url: https://x, auth: {basic: ann}", "a ':' separates the user from the password",
    "as in auth: {basic: \"${USER}:${PASSWORD}\"}" },
  { "a header of two lines", one "url: https://x, auth: {header: \"${TRICK}\"}", "a header has no line breaks" },
  { "two credentials", one "url: https://x, auth: {basic: \"u:p\", header: k}", "'auth' has 'basic' and 'header'", "remove the others" },
  { "authorization among the headers", one "url: https://x, headers: {Authorization: k}", "the gateway sends this header itself", "auth: {bearer" },
  { "a token with a line break", one "url: https://x, auth: {bearer: \"${TRICK}\"}", "'${TRICK}' is not a token" },
  { "a header with a line break", one "url: https://x, headers: {b: \"${TRICK}\"}", "'${TRICK}' is not texts: a header has no line breaks" },
  { "one header twice", one "url: https://x, headers: {b: c, B: d}", "the header 'b' is set twice" },
  { "a header set and passed on", one "url: https://x, headers: {b: c}, pass: [B]", "'b' is also in 'headers'" },
  { "a number for a variable", one "command: [x], process: {env: {PORT: 1}}", "'PORT' must be text, not a number", "put quotes" },
  { "a variable of the gateway itself", one "command: [x], process: {env: {MOONPOOL_HOPS: x}}", "'MOONPOOL_HOPS' is not allowed in 'env'" },
  { "a variable with '='", one "command: [x], process: {env: {\"A=B\": x}}", "'A=B' is not allowed in 'env'" },
}

local forbidden = { "authorization", "Authorization", "cookie", "set-cookie", "proxy-authorization", "Proxy-Connection", "mcp-session-id",
  "mcp-protocol-version",
  "MCP-Method", "host", "Content-Length", "transfer-encoding", "connection", "last-event-id", "accept", "sec-fetch-site", "moonpool-hops" }
local forbidden_to_pass = { "x-forwarded-for", "X-Forwarded-Host", "forwarded", "x-real-ip", "x-api-key" }

local full = [[
upstreams:
  github:
    url: https://mcp.example.com/mcp
    auth: {bearer: "${TOKEN}"}
    headers: {X-Api-Key: "${TOKEN}"}
    pass: [X-Request-Id]
    prefix: gh_
    only: ["search_*", create_issue]
    hide: [search_code]
    rename: {create_issue: new_issue}
    describe: {create_issue: "Open an issue. Ask the user first."}
    timeout: 60s
    timeout_total: 10m
    open: 30s
    calls: 32
    waiting: 8
    circuit: {failures: 5, open: 1s..60s}
    per: principal
    uris: wrap
    retry: never
    list_wait: 5s
    refresh: 5m
  files:
    command: [npx, -y, -y, "@modelcontextprotocol/server-filesystem", /srv, 8080]
    process: {env: {LOG: quiet, KEY: "${file:secret}"}, cwd: work, idle_stop: 10m, most: 16, memory: 1GiB}
  old: {url: https://legacy.example.com/sse, revision: sse}
  jobs: {url: https://jobs.internal/mcp, private: true, tls: {ca: ca.pem, certificate: me.pem, key: me.key}}
  bare: http://[::1]:8080/mcp
limits: {upstreams: {channels: 10, processes: 5, answer: 1MiB}}
]]

local listens = 'listen: "127.0.0.1:0"\nadmin: {listen: "127.0.0.1:0"}\nscripts: {path: scripts, trust: full}\n'

describe("an upstream in moonpool.yaml", function()
  for _, row in ipairs(refusals) do
    it("may not have " .. row[1], function()
      local code, _, err = check(row[2], nil, { env = { TRICK = "a\r\nb: c" } })
      assert.equal(78, code)
      assert.truthy(err:find(row[3], 1, true), err)
      if row[4] then assert.truthy(err:match("hint: [^\n]*" .. row[4]), err) end
    end)
  end

  it("may neither set nor pass on headers of credentials, of the connection and of the protocol", function()
    for _, name in ipairs(forbidden) do
      for _, keys in ipairs { "headers: {" .. name .. ": x}", "pass: [" .. name .. "]" } do
        local code, _, err = check(one("url: https://x, " .. keys))
        assert.equal(78, code, keys)
        assert.truthy(err:find("'" .. name .. "' is not", 1, true), err)
      end
    end
    for _, name in ipairs(forbidden_to_pass) do
      assert.equal(78, (check(one("url: https://x, pass: [" .. name .. "]"))), name)
    end
  end)

  it("may have every key that the reference names", function()
    local code, _, err = check(full, nil, { env = { TOKEN = "hunter2" }, files = { secret = "hunter3\n" } })
    assert.equal("", err)
    assert.equal(0, code)
  end)

  it("may be left out, with its section or all below it", function()
    for _, text in ipairs { "upstreams:\n", "upstreams: {}\n" } do
      local code, _, err = check(text)
      assert.equal("", err)
      assert.equal(0, code)
    end
  end)

  it("is warned of where its command shows a secret, and the warning does not quote it", function()
    local secret = "hunter2-hunter2-hunter2"
    local options = { env = { API_TOKEN = secret }, files = { secret = secret } }
    local items = { "--token=" .. secret, "--api-key, " .. secret, '"${API_TOKEN}"', '"${file:secret}"', "ghp_" .. secret, '"X_SECRET=' .. secret .. '"' }
    for _, item in ipairs(items) do
      local code, out, err = check(one("command: [x, " .. item .. "]"), nil, options)
      assert.equal(0, code, err)
      assert.truthy(err:match "moonpool.yaml:2:%d+: 'command' of 'a' seems to contain a secret\n  hint: [^\n]*process.env", item .. err)
      assert.falsy((out .. err):find(secret, 1, true))
      assert.equal(1, (check(one("command: [x, " .. item .. "]"), { "check", "--strict" }, options)))
    end
    local _, _, err = check(one "command: [npx, -y, '@scope/token-server', --port, '8080', '${HOME}']")
    assert.equal("", err)
  end)

  it("reaches Lua in the order of the file, without its secrets", function()
    local g <close> = trusted.start { config = listens .. full:gsub("\nlimits:[^\n]*", ""), env = { TOKEN = "hunter2" }, files = { secret = "hunter3\n" } }
    local me = g:client "2026-07-28"
    local list = trusted.run(me, "return host.config.upstreams")
    local names = {}
    for i, entry in ipairs(list) do names[i] = entry.name end
    assert.same({ "github", "files", "old", "jobs", "bare" }, names)
    assert.same({
      name = "github", line = 5, kind = "url", revision = "auto", prefix = "gh_", only = { "search_*", "create_issue" }, hide = { "search_code" },
      rename = { create_issue = "new_issue" }, describe = { create_issue = "Open an issue. Ask the user first." }, pass = { "x-request-id" }, per = "principal",
      asks = { "elicitation", "sampling", "roots" },
      retry = "never", calls = 32, waiting = 8, timeout_ms = 60000, timeout_total_ms = 600000, open_ms = 30000, list_wait_ms = 5000,
      refresh_ms = 300000, private = false, wraps_uris = true, keeps_names = false, has_instructions = false,
      circuit_failures = 5, circuit_open_min_ms = 1000, circuit_open_max_ms = 60000,
    }, list[1])
    assert.equal("files_", list[2].prefix)
    assert.equal("command", list[2].kind)
    assert.falsy(cjson.encode(list):find "hunter")
    local limits = trusted.run(me, "return host.limits.upstreams")
    assert.same({ 16777216, 1048576, 10000, 33554432 }, { limits.answer, limits.queue, limits.list_items, limits.list_bytes })
  end)
end)
