-- A configuration is refused with all of its errors, each with its place and a hint, before anything starts.
local gateway = require "spec.helpers.gateway"
local cjson = require "cjson"

-- Runs a command beside a moonpool.yaml of this text: returns exit code, stdout, stderr.
local function with(text, args, options)
  options = options or {}
  local dir = gateway.prepare { config = text, files = options.files }
  local code, out, err = gateway.exec(args or { "run" }, { cwd = dir, env = options.env })
  os.execute("rm -rf '" .. dir .. "'")
  return code, out, err
end

-- Removes the warning that these folders have no scripts.
local function without_nothing_served(text) return (text:gsub("^nothing is served: [^\n]*\n  hint: [^\n]*\n", "")) end

local function lines(...)
  return table.concat({ ... }, "\n") .. "\n"
end

-- Each row: a name, the file, the first line of the report. `env` is { SECRET = "hunter2" }.
local refusals = {
  { "an unknown key", "listen: 127.0.0.1:0\nworker: 4\n", lines(
    "moonpool.yaml:2:1: unknown key 'worker'",
    "    worker: 4",
    "    ^",
    "  hint: did you mean 'workers'?") },
  { "an unknown key in a section", "limits:\n  call: {tiem: 3s}\n", lines(
    "moonpool.yaml:2:10: unknown key 'tiem' in 'limits.call'",
    "    call: {tiem: 3s}",
    "           ^",
    "  hint: did you mean 'time'?") },
  { "a key of another section", "idle: 3s\n", lines(
    "moonpool.yaml:1:1: unknown key 'idle'",
    "    idle: 3s",
    "    ^",
    "  hint: 'idle' belongs in 'sessions'") },
  { "a duplicate key", "workers: 1\nheartbeat: 1s\nworkers: 2\n", lines(
    "moonpool.yaml:3:1: duplicate key 'workers'",
    "    workers: 2",
    "    ^",
    "  hint: it is already set in line 1") },
  { "a list where a value belongs", "workers: [1]\n", "moonpool.yaml:1:10: 'workers' must be a single value, not a list" },
  { "a mapping where a value belongs", "heartbeat: {a: 1s}\n", "moonpool.yaml:1:12: 'heartbeat' must be a single value, not keys and values" },
  { "a value where a mapping belongs", "limits: 4MiB\n", "moonpool.yaml:1:9: 'limits' must be keys and values, not a single value" },
  { "a mapping inside a list", "hosts: [{a: b}]\n", "moonpool.yaml:1:9: an item of 'hosts' must be a single value" },
  { "a list as the whole", "- a\n", "moonpool.yaml:1:1: a configuration must be keys and values, not a list" },
  { "a key without a value", "heartbeat:\n", "moonpool.yaml:1:11: 'heartbeat' has no value" },
  { "an empty list", "hosts: []\n", "moonpool.yaml:1:8: 'hosts' is empty" },
  { "a number in quotes", 'workers: "4"\n', "moonpool.yaml:1:10: 'workers' is not a whole number: '4'" },
  { "a float for a count", "workers: 2.0\n", "moonpool.yaml:1:10: 'workers' is not a whole number: '2.0'" },
  { "a number for a text", "server: {name: 1.10}\n", "moonpool.yaml:1:16: 'name' must be text, not a number" },
  { "a time without a unit", "heartbeat: 30\n", lines(
    "moonpool.yaml:1:12: 'heartbeat' needs a unit: '30'",
    "    heartbeat: 30",
    "               ^",
    "  hint: add a unit: ms, s, m, h, d, as in 30s") },
  { "a unit of time nobody knows", "heartbeat: 3w\n", "moonpool.yaml:1:12: 'heartbeat' is not a time: '3w'" },
  { "a unit of size of another house", "limits: {body: 4MB}\n", lines(
    "moonpool.yaml:1:16: 'body' is not a size: '4MB'",
    "    limits: {body: 4MB}",
    "                   ^",
    "  hint: did you mean '4MiB'?") },
  { "too small a number", "workers: 0\n", "moonpool.yaml:1:10: 'workers' is too small: '0'" },
  { "too large a time", "limits: {drain: 2h}\n", "moonpool.yaml:1:17: 'drain' is too large: '2h'" },
  { "a number beyond all integers", "workers: 99999999999999999999999\n", "moonpool.yaml:1:10: 'workers' is too large" },
  { "a choice that is none", "log: {level: inof}\n", lines(
    "moonpool.yaml:1:14: 'log.level' cannot be 'inof'",
    "    log: {level: inof}",
    "                 ^",
    "  hint: did you mean 'info'? allowed: debug, info, warn, error") },
  { "a short form that is none", "auth: nobody\n", "moonpool.yaml:1:7: 'auth.mode' cannot be 'nobody'" },
  { "a URL without a scheme", "public_url: mcp.example.com\n", "moonpool.yaml:1:13: 'mcp.example.com' is not an address: the scheme is missing" },
  { "a port alone", "listen: 7300\n", lines(
    "moonpool.yaml:1:9: '7300' is not an address: the host is missing",
    "    listen: 7300",
    "            ^",
    "  hint: write host and port, as in 127.0.0.1:7300") },
  { "a port above 65535", "listen: 127.0.0.1:70000\n", "moonpool.yaml:1:9: '127.0.0.1:70000' is not an address: the port" },
  { "an address that has five parts", "listen: 127.0.0.1.1:0\n", "moonpool.yaml:1:9: '127.0.0.1.1:0' is not an address: the host must be" },
  { "a listener at every address, as other servers write it", "listen: '*:80'\n", lines(
    "moonpool.yaml:1:9: '*:80' is not an address: the host is missing",
    "    listen: '*:80'",
    "            ^",
    "  hint: 0.0.0.0 listens on every IPv4 address of this machine, [::] on every IPv4 and IPv6 address") },
  { "an IPv6 address without brackets", 'listen: "::1:7300"\n', "moonpool.yaml:1:9: '::1:7300' is not an address: more than one ':'" },
  { "a relative socket", "listen: unix:moonpool.sock\n", "moonpool.yaml:1:9: 'unix:moonpool.sock' is not an address: the path" },
  { "an address named twice", "listen: [127.0.0.1:1, 127.0.0.1:1]\n", "moonpool.yaml:1:23: '127.0.0.1:1' is named twice" },
  { "one address for clients and operators", "listen: 127.0.0.1:7301\n", "moonpool.yaml:1:9: 'admin.listen' and 'listen' are the same" },
  { "a proxy that is a name", "listen: {address: 127.0.0.1:0, trusted_proxies: [proxy.example.com]}\n", lines(
    "moonpool.yaml:1:50: 'proxy.example.com' is not an address or a network",
    "    listen: {address: 127.0.0.1:0, trusted_proxies: [proxy.example.com]}",
    "                                                     ^",
    "  hint: as in 10.1.2.3, 10.1.0.0/16, fd00::/8, or unix for the peers of a Unix socket") },
  { "a network of proxies with host bits", "listen: {address: 127.0.0.1:0, trusted_proxies: 10.1.2.3/16}\n", lines(
    "moonpool.yaml:1:49: '10.1.2.3/16' is not an address or a network: its host bits are not 0",
    "    listen: {address: 127.0.0.1:0, trusted_proxies: 10.1.2.3/16}",
    "                                                    ^",
    "  hint: the network is 10.1.0.0/16; a single address has no '/'") },
  { "a network of proxies that is too small", "listen: {address: 127.0.0.1:0, trusted_proxies: ['10.1.0.0/33']}\n",
    "moonpool.yaml:1:50: '10.1.0.0/33' is not an address or a network: after the '/' there is a number from 0 to 32" },
  { "no proxies", "listen: {address: 127.0.0.1:0, trusted_proxies: []}\n", "moonpool.yaml:1:49: 'trusted_proxies' is empty" },
  { "proxies at the top", "trusted_proxies: 10.1.2.3\n", lines(
    "moonpool.yaml:1:1: unknown key 'trusted_proxies'",
    "    trusted_proxies: 10.1.2.3",
    "    ^",
    "  hint: 'trusted_proxies' belongs in 'listen'") },
  { "the PROXY protocol of any client", "listen: {address: 127.0.0.1:0, proxy_protocol: on}\n", lines(
    "moonpool.yaml:1:48: 'proxy_protocol' at 127.0.0.1:0 needs 'trusted_proxies': any client could write a PROXY header with an address of its choice",
    "    listen: {address: 127.0.0.1:0, proxy_protocol: on}",
    "                                                   ^",
    "  hint: name the proxies, as in trusted_proxies: [10.1.2.3]; 0.0.0.0/0 and ::/0 trust every peer, where only proxies can connect") },
  { "the PROXY protocol from a Unix socket over TCP", "listen: {address: 127.0.0.1:0, proxy_protocol: on, trusted_proxies: unix}\n",
    "moonpool.yaml:1:48: 'proxy_protocol' at 127.0.0.1:0 needs 'trusted_proxies'" },
  { "the PROXY protocol of addresses over a Unix socket", "listen: {address: 'unix:/tmp/x', proxy_protocol: on, trusted_proxies: 10.1.2.3}\n", lines(
    "moonpool.yaml:1:50: 'proxy_protocol' at unix:/tmp/x needs 'trusted_proxies': any client could write a PROXY header with an address of its choice",
    "    listen: {address: 'unix:/tmp/x', proxy_protocol: on, trusted_proxies: 10.1.2.3}",
    "                                                     ^",
    "  hint: trusted_proxies: [unix] trusts every process that may open the socket") },
  { "an endpoint without a slash", "endpoints: {mcp: mcp}\n", "moonpool.yaml:1:18: 'mcp' is not a path: it must begin with '/'" },
  { "two endpoints at one path", "endpoints: {mcp: /sse}\n", "moonpool.yaml:1:18: 'mcp' and 'sse' have the same path" },
  { "a prefix that is nothing", "endpoints: {prefix: /}\n", "moonpool.yaml:1:21: 'prefix' cannot be '/': name a path, or remove the key" },
  { "no endpoint", "endpoints: {mcp: off, sse: off}\n", "moonpool.yaml:1:28: no endpoint is enabled" },
  { "a star for a whole top-level domain", 'hosts: ["*.com"]\n',
    "moonpool.yaml:1:9: '*.com' is not a host: *. stands before a domain of your own, of two parts or more" },
  { "a star before an address", 'hosts: ["*.0.0.1"]\n',
    "moonpool.yaml:1:9: '*.0.0.1' is not a host: *. stands before a domain of your own, of two parts or more" },
  { "a star before nothing", 'hosts: ["*.a..b"]\n',
    "moonpool.yaml:1:9: '*.a..b' is not a host: the domain has an empty part" },
  { "a star within a name", 'hosts: ["mcp-*.example.com"]\n',
    "moonpool.yaml:1:9: 'mcp-*.example.com' is not a host: '*' must stand alone, or before a domain as in *.example.com" },
  { "a star before a bracket", 'admin: {hosts: ["*.[::1]"]}\n', "moonpool.yaml:1:17: '*.[::1]' is not a host: a name has letters, digits, '-' and '.'" },
  { "a host with a port", 'hosts: ["a:80"]\n', "moonpool.yaml:1:9: 'a:80' is not a host: write only the name, without a port" },
  { "a variable that is not set", "server: {name: '${NOT_SET}'}\n", "moonpool.yaml:1:17: the environment variable NOT_SET is not set" },
  { "a variable with a message", "server:\n  name: x ${NOT_SET:?ask Ann}\n", lines(
    "moonpool.yaml:2:11: the environment variable NOT_SET is not set: ask Ann",
    "    name: x ${NOT_SET:?ask Ann}",
    "            ^",
    "  hint: set it, or write ${NOT_SET:-default}") },
  { "an expansion that never ends", 'server: {name: "${SECRET"}\n', "moonpool.yaml:1:17: '${' is never closed" },
  { "an expansion that is none", 'server: {name: "${SE CRET}"}\n', "moonpool.yaml:1:17: '${SE CRET}' is not a variable" },
  { "a secret file that is missing", 'server: {name: "${file:nowhere}"}\n',
    "moonpool.yaml:1:17: cannot read the file nowhere: No such file or directory" },
  { "a folder as a secret file", 'server: {name: "${file:scripts}"}\n', "moonpool.yaml:1:17: scripts is not a regular file" },
  { "an anchor", "listen: &a 127.0.0.1:0\n", "moonpool.yaml:1:9: anchors, aliases and tags" },
  { "an alias", "listen: *a\n", "moonpool.yaml:1:9: anchors, aliases and tags" },
  { "a tag", "workers: !!int 3\n", "moonpool.yaml:1:10: anchors, aliases and tags" },
  { "a second document", "workers: 1\n---\nworkers: 2\n", "moonpool.yaml:2:1: a second YAML document" },
  { "a zero byte", 'server: {name: "a\\0b"}\n', "moonpool.yaml:1:16: a NUL byte in a value" },
  { "a tab as indentation", "limits:\n\tbody: 1MiB\n", lines(
    "moonpool.yaml:2:1: not valid YAML: found character that cannot start any token",
    "     body: 1MiB",
    "    ^",
    "  hint: YAML indents with spaces, not with tabs") },
  { "a quote that is never closed", "server:\n  name: \"abc\nworkers: 2\n", lines(
    "moonpool.yaml:4:1: not valid YAML: found unexpected end of stream",
    "moonpool.yaml:2:9: the error occurred while scanning a quoted scalar that begins here",
    "    name: \"abc",
    "          ^") },
  { "braces around an expansion without quotes", "server: {name: ${SECRET}}\n", lines(
    "moonpool.yaml:1:17: not valid YAML: did not find expected ',' or '}'",
    "    server: {name: ${SECRET}}",
    "                    ^",
    "  hint: inside { } and [ ] put quotes around ${...}") },
  { "a file that is not UTF-8", "server:\n  name: \xff\xfe\n", "moonpool.yaml:2:9: not valid YAML: invalid leading UTF-8 octet" },
  { "more than 16 levels", ("["):rep(5000), "moonpool.yaml:1:17: nested deeper than 16 levels" },
  { "more than 1 MiB", ("#"):rep(1024 * 1024 + 1), "moonpool.yaml: larger than 1MiB" },
}

describe("a configuration that is refused", function()
  for _, refusal in ipairs(refusals) do
    local what, text, said = table.unpack(refusal)
    it("reports " .. what, function()
      local code, out, err = with(text, { "run" }, { env = { SECRET = "hunter2" } })
      assert.are.equal(said, err:sub(1, #said))
      assert.are.equal(78, code)
      assert.are.equal("", out)
    end)
  end

  it("names every mistake, in the order of the file", function()
    local _, _, err = with("worker: 4\nlimits: {body: 4MB, drain: 2h}\nhosts: [\"a:1\", \"b:2\"]\nheartbeat: soon\n")
    local places = {}
    for place in err:gmatch "moonpool%.yaml:(%d+:%d+): " do
      places[#places + 1] = place
    end
    assert.are.same({ "1:1", "2:16", "2:28", "3:9", "3:16", "4:12" }, places)
  end)

  it("prints a hundred mistakes and counts the others", function()
    local text = {}
    for i = 1, 130 do
      text[i] = "unknown" .. i .. ": 1\n"
    end
    local _, _, err = with(table.concat(text))
    assert.truthy(err:find("moonpool.yaml: and 30 more\n", 1, true))
    assert.falsy(err:find("unknown101", 1, true))
  end)

  it("sends only printable text to a terminal", function()
    local _, _, err = with("\"a\\e]0;x\\x07b\\u202e\": 1\n")
    assert.are.equal("moonpool.yaml:1:1: unknown key 'a?]0;x?b?'", err:match "^[^\n]+")
    assert.falsy(err:find "[^\n -~]")
  end)
end)

describe("a secret in the environment or in a file", function()
  local secret = "hunter2-7f3a"

  it("is shown by no message", function()
    local every = [[
listen: ["${S}", "${file:s}"]
workers: ${S}
scripts: {trust: "${S}"}
endpoints: {mcp: "${S}", sse: "x${S}"}
hosts: "${S}/${file:s}"
limits: {body: "${S}", drain: "1${S}", call: {time: "${file:s}"}}
log: {level: "${S}"}
admin: {listen: "${S}"}
]]
    local code, out, err = with(every, { "run" }, { env = { S = secret }, files = { s = secret .. "\n" } })
    assert.are.equal(78, code)
    assert.are.equal(12, select(2, err:gsub("moonpool%.yaml:%d+:%d+: ", "")))
    assert.falsy((out .. err):find(secret, 1, true))
  end)
end)

describe("a valid configuration", function()
  local fine = {
    ["an empty file"] = "",
    ["comments alone"] = "# nothing yet\n",
    ["a section whose keys are all commented out"] = "limits:\n#  body: 1MiB\nworkers: 1\n",
    ["a byte order mark"] = "\xef\xbb\xbfworkers: 1\n",
    ["JSON"] = '{"listen": ["127.0.0.1:0"], "scripts": {"path": "scripts"}, "workers": 2}',
    ["scripts as a bare path"] = "scripts: scripts\n",
    ["a variable, quoted or not"] = 'workers: ${N}\nlimits: {calls_in_flight: "${N}", body: "${N}MiB"}\n',
    ["a default for an empty variable"] = "heartbeat: ${EMPTY:-20s}\nlog: {level: \"${NOT_SET:-debug}\"}\n",
    ["a value from a file"] = 'heartbeat: ${file:beat}\n',
    ["dollars that are dollars"] = 'server: {name: "$$ $5 $${N} $"}\n',
    ["a value that looks like YAML once expanded"] = "server: {name: \"${TRICK}\"}\n",
    ["sse switched off, and with it messages"] = "endpoints: {sse: off}\n",
    ["words that are texts in YAML 1.2"] = "server: {name: no, instructions: on}\n",
  }
  local names = {}
  for name in pairs(fine) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    it("may be " .. name, function()
      local code, _, err = with(fine[name], { "check" }, {
        env = { N = "3", EMPTY = "", TRICK = "a, workers: [1]\nlisten: x" }, files = { beat = "20s\n" },
      })
      assert.are.equal("", without_nothing_served(err))
      assert.are.equal(0, code)
    end)
  end

  it("may be what `moonpool config` prints", function()
    local _, printed = gateway.exec { "config" }
    local code, _, err = with(printed, { "check" })
    assert.are.equal("", without_nothing_served(err))
    assert.are.equal(0, code)
  end)
end)

describe("a configuration that cannot be read", function()
  it("is named when it was asked for", function()
    local code, _, err = with("", { "run", "nowhere.yaml" })
    assert.are.equal(78, code)
    assert.are.equal("nowhere.yaml: cannot read the configuration: No such file or directory", err:match "^[^\n]+")
  end)

  it("may be a folder", function()
    local code, _, err = with("", { "check", "scripts" })
    assert.are.equal(78, code)
    assert.equal("scripts: cannot read the configuration: Is a directory\n  hint: this is a folder; name the file in it, as in scripts/moonpool.yaml\n", err)
  end)

  it("is missed when this folder has none", function()
    local code, _, err = gateway.exec({ "run" }, { cwd = "/" })
    assert.are.equal(78, code)
    assert.are.equal("moonpool: no moonpool.yaml in this folder", err:match "^[^\n]+")
    assert.truthy(err:find("\n  hint: name a file, as in moonpool run ", 1, true))
  end)

  it("is missed by commands for a running gateway, which also take its address", function()
    for _, name in ipairs { "drain", "status", "tap" } do
      local code, _, err = gateway.exec({ name }, { cwd = "/" })
      assert.same({ 78, "moonpool: no moonpool.yaml in this folder, to say where the gateway's admin listener is\n"
        .. "  hint: name the listener, as in moonpool " .. name .. " --admin 127.0.0.1:7301, or the file by -c FILE\n" }, { code, err })
    end
  end)
end)

describe("an address that is taken", function()
  it("is named, and the exit code is 1", function()
    local g <close> = gateway.start {}
    local code, _, err = with(("listen: 127.0.0.1:%d\nadmin: {listen: off}\n"):format(g.port))
    assert.are.equal(1, code)
    assert.truthy(err:find("127.0.0.1:" .. g.port, 1, true))
  end)
end)

-- Each row: the arguments, the first line of the output, the hint.
local misuses = {
  { { "rnu" }, "unknown command 'rnu'", "did you mean 'run'?" },
  { { "serve-it" }, "unknown command 'serve-it'", "moonpool --help lists the possibilities" },
  { { "--verzion" }, "unknown option '--verzion'", "did you mean '--version'?" },
  { { "run", "--lisen", "x" }, "unknown option '--lisen'", "did you mean '--listen'?" },
  { { "run", "-q" }, "unknown option '-q'", "moonpool run --help lists the possibilities" },
  { { "check", "--listen", "x" }, "unknown option '--listen'", "moonpool check --help lists the possibilities" },
  { { "run", "--listen" }, "missing value after '--listen'", "moonpool run --help lists the possibilities" },
  { { "run", "--help=3" }, "this option takes no value: '--help=3'", "moonpool run --help lists the possibilities" },
  { { "run", "a", "b" }, "only one configuration file is allowed; unexpected: 'b'", "moonpool run --help lists the possibilities" },
  { { "run", "--ready-fd", "x" }, "--ready-fd needs the number of a descriptor, not 'x'", "moonpool run --help lists the possibilities" },
  { { "run", "--ready-fd", "99" }, "--ready-fd: this descriptor is not open for writing: '99'", "moonpool run --help lists the possibilities" },
  { { "run", "--listen", "nope" }, "--listen: 'nope' is not an address: the port is missing", "write host:port, [IPv6]:port, unix:/path or systemd:NAME" },
  { { "run", "--log-level", "wran" }, "--log-level: 'log.level' cannot be 'wran'", "did you mean 'warn'? allowed: debug, info, warn, error" },
  { { "help", "ru" }, "unknown command 'ru'", "did you mean 'run'?" },
}

-- The options as --help lists them.
local function commands()
  local _, help = gateway.exec { "--help" }
  local list = {}
  for name in help:match "ARGUMENT%]%.%.%.\n\n(.-)\n\n":gmatch "%f[^\n\0] +(%l+)" do
    list[#list + 1] = name
  end
  return list
end

describe("the command line", function()
  for _, misuse in ipairs(misuses) do
    local args, said, hint = table.unpack(misuse)
    it("refuses " .. table.concat(args, " "), function()
      local code, out, err = with("", args)
      assert.are.equal(("moonpool: %s\n  hint: %s\n"):format(said, hint), err)
      assert.are.equal(2, code)
      assert.are.equal("", out)
    end)
  end

  it("without a command prints its help as a complaint", function()
    local code, out, err = gateway.exec {}
    local _, help = gateway.exec { "--help" }
    assert.are.equal(2, code)
    assert.are.equal("", out)
    assert.are.equal(help, err)
  end)

  it("has a help that fits a screen", function()
    local code, help = gateway.exec { "help" }
    local count = 0
    for line in help:gmatch "[^\n]*\n" do
      count = count + 1
      assert.is_true(#line <= 90, line)
    end
    assert.are.equal(0, code)
    assert.is_true(count <= 48)
  end)

  it("has a page of help for each command, and each names its own options", function()
    for _, command in ipairs(commands()) do
      local code, page = gateway.exec { "help", command }
      local _, same = gateway.exec { command, "--help" }
      assert.are.equal(0, code)
      assert.are.equal(page, same)
      assert.are.equal("usage: moonpool " .. command, page:match "^usage: moonpool %a+")
    end
  end)

  it("prints its version", function()
    local _, out = gateway.exec { "--version" }
    local _, same = gateway.exec { "version" }
    assert.truthy(out:find "^moonpool %d+%.%d+%.%d+[%w.+]*\n$")
    assert.are.equal(out, same)
  end)
end)

describe("the manual", function()
  local function read(path)
    local file <close> = assert(io.open(path))
    return file:read "a"
  end

  local function options_of(text)
    local list, seen = {}, {}
    for option in text:gmatch "%f[%w%-](%-%-%l[%l-]+)" do
      if not seen[option] then
        list[#list + 1], seen[option] = option, true
      end
    end
    table.sort(list)
    return list
  end

  it("has help that fits a screen", function()
    for _, command in ipairs { "", table.unpack(commands()) } do
      local _, page = gateway.exec { "help", command ~= "" and command or nil }
      assert.is_true(select(2, page:gsub("\n", "")) <= 48, command)
      for line in page:gmatch "[^\n]+" do assert.is_true(#line <= 100, line) end
    end
  end)

  it("has the commands and options of --help", function()
    local _, pages = gateway.exec { "--help" }
    local manual = read "man/moonpool.1.scd"
    for _, command in ipairs(commands()) do
      local _, page = gateway.exec { "help", command }
      pages = pages .. page
      assert.truthy(manual:find("\n*moonpool* *" .. command .. "*", 1, true), "no synopsis of " .. command)
      assert.truthy(manual:find("\n*" .. command .. "*\n\t", 1, true), "nothing about " .. command)
    end
    assert.are.same(options_of(pages), options_of(manual))
  end)

  it("has the keys as `moonpool config --man` prints them", function()
    local _, keys = gateway.exec { "config", "--man" }
    local page = read "man/moonpool.yaml.5.scd"
    assert.are.equal(keys, page:match "\n; What follows[^\n]*\n(.-); The end of what")
  end)
end)

-- The keys and sections of removed.def, and what holds now.
local function removed_keys()
  local found, file <close> = {}, assert(io.open "core/config/removed.def")
  for path, instead in file:read("a"):gmatch 'REMOVED%("([^"]*)",%s*"([^"]*)"%)' do found[path] = instead end
  return found
end

describe("a key of an earlier version", function()
  it("is named by check with what holds now, and refused by nothing", function()
    local tree, count = {}, 0
    for path in pairs(removed_keys()) do
      local at = tree
      for name, dot in path:gmatch "([^.]+)(%.?)" do
        if dot == "" then at[name] = { of = "earlier" } end
        at[name] = at[name] or {}
        at = at[name]
      end
      count = count + 1
    end
    if tree.upstreams then tree.upstreams.NAME.url, tree.upstreams.name, tree.upstreams.NAME = "http://127.0.0.1:1/", tree.upstreams.NAME, nil end
    local text = cjson.encode(tree)
    local code, _, err = with(text, { "check" })
    assert.equal(0, code, err)
    for path, instead in pairs(removed_keys()) do
      assert.truthy(err:find(("'%s' is no key any more\n  hint: %s\n"):format(path, instead), 1, true), path .. "\n" .. err)
    end
    assert.equal(count, select(2, err:gsub("is no key any more", "")))
    assert.equal(1, (with(text, { "check", "--strict" })))
    local g <close> = gateway.start { config = tree }
    assert.truthy(g:status())
  end)

  it("is no key of this one", function()
    local _, keys = gateway.exec { "config", "--man" }
    for path in pairs(removed_keys()) do assert.is_nil(keys:find("*" .. path:gsub("_", "\\_") .. "*", 1, true), path) end
  end)
end)

-- Lower this number when a key is removed: see Bounds in docs/dev/style.md. What was added since there were 150, for
-- operators who asked: limits.page, upstreams.NAME.auth.basic, upstreams.NAME.auth.header,
-- upstreams.NAME.names, upstreams.NAME.instructions; and what several gateways need to share a server: cluster.name,
-- cluster.node, cluster.redis.url, cluster.redis.sentinels, cluster.redis.password, cluster.redis.timeout,
-- cluster.when_redis_is_down.limits, cluster.when_redis_is_down.quotas; and to reach each other: cluster.listen,
-- cluster.advertise, cluster.tls.certificate, cluster.tls.key, cluster.tls.ca, cluster.tls.name; and to leave: cluster.leave;
-- and for people who sign in: sign_in.provider, sign_in.passwords, sign_in.allow.users, sign_in.tokens.access,
-- sign_in.tokens.refresh, sign_in.tokens.idle; at a provider: sign_in.issuer, sign_in.client, sign_in.secret, sign_in.ask,
-- sign_in.scopes, sign_in.urls.authorize, sign_in.urls.token, sign_in.urls.user, sign_in.allow.emails,
-- sign_in.allow.groups, sign_in.allow.roles, sign_in.allow.tenants, sign_in.tokens.unchecked,
-- sign_in.clients.cimd;
-- and for certificates by name: listen.tls.folder, listen.tls.default, listen.tls.unknown, acme.challenges.
local MOST_KEYS <const> = 195

describe("the table of keys", function()
  it("has no more keys than operators and deployments need", function()
    local file <close> = assert(io.open "docs/reference/config.md")
    local keys = 0
    for row in file:lines() do
      local is_section = row:find "^| `[^|]*|  |  |"
      if row:find "^| `" and not is_section then keys = keys + 1 end
    end
    assert.is_true(keys <= MOST_KEYS, keys .. " keys")
  end)

  it("fills each member of a structure by one key", function()
    local seen = {}
    local text = ""
    for _, name in ipairs { "keys.c", "upstream_keys.def" } do
      local file <close> = assert(io.open("core/config/" .. name))
      text = text .. file:read "a"
    end
    for member in text:gmatch "SLOT%(([%w_.%[%]]+)%)[,}]" do
      assert.is_nil(seen[member], "two keys fill " .. member)
      seen[member] = true
    end
    assert.truthy(seen["http.body"] and seen["lib.sqlite.memory"] and seen["upstream_limits.answer"])
  end)
end)

describe("the short form of a section whose key is a list", function()
  it("is one item, or a list of them", function()
    for _, value in ipairs { '"orders_*"', "orders_*", '["orders_*", total]' } do
      local dir = gateway.prepare { scripts = {}, files = { ["some.yaml"] = "record: " .. value .. "\n" } }
      local code, _, err = gateway.exec({ "check", "some.yaml" }, { cwd = dir })
      os.execute("rm -rf '" .. dir .. "'")
      assert.equal(0, code, err)
    end
    local schema = cjson.decode((select(2, gateway.exec { "config", "--schema" })))
    assert.equal("array", schema.properties.record.anyOf[3].type)
  end)
end)

describe("the JSON Schema", function()
  it("knows every key, with its default and its description", function()
    local _, printed = gateway.exec { "config", "--schema" }
    local _, keys = gateway.exec { "config", "--man" }
    local schema = cjson.decode(printed)
    for path in keys:gmatch "%f[^\n\0]%*([%w\\_.]+)%*" do
      local at = schema
      for name in path:gsub("\\", ""):gmatch "[^.]+" do
        local properties = at.properties or at.anyOf and at.anyOf[2].properties or { NAME = at.additionalProperties }
        at = assert(properties[name], "not in the schema: " .. path)
        assert.is_string(at.description)
      end
    end
    assert.are.equal("30m", schema.properties.sessions.properties.idle.default)
    assert.are.equal(10000, schema.properties.sessions.properties.max.default)
    assert.is_false(schema.properties.limits.additionalProperties)
  end)
end)
