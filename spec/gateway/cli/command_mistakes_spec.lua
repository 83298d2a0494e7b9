-- Mistakes of newcomers at the command line: words and options of other programs, arguments in the wrong place, wrong
-- files, ports and schemes. Each report says what is wrong, and what to write next.
local certificates = require "spec.helpers.certificates"
local gateway = require "spec.helpers.gateway"
local write = require "spec.helpers.shell".write

local behind = "options stand behind the command, as in moonpool run --config moonpool.yaml"
local path_word = "The word after the command is the path of the configuration"
local no_dashes = "arguments are KEY=VALUE without dashes, as in name=Ann"
local script = "leave the word out in the folder of moonpool.yaml, or name that file"

-- { exit code, words of the command line, what is wrong, what next }
local mistakes = {
  -- commands of other programs
  { 2, "install x", "unknown command 'install'", "did you mean 'add'?" },
  { 2, "serve", "unknown command 'serve'", "did you mean 'run'?" },
  { 2, "init", "unknown command 'init'", "did you mean 'new'?" },
  { 2, "logs", "unknown command 'logs'", "did you mean 'log'?" },
  { 2, "stop", "unknown command 'stop'", "did you mean 'drain'?" },
  { 2, "restart", "unknown command 'restart'", "did you mean 'upgrade'?" },
  { 2, "remove github", "unknown command 'remove'", "an upstream is an entry in moonpool.yaml and a tool a file: remove that" },
  { 2, "build", "unknown command 'build'", "nothing is built" },
  { 2, "deploy", "unknown command 'deploy'", "a file that is saved below scripts/ serves" },
  { 2, "set listen", "unknown command 'set'", "keys are written into moonpool.yaml" },
  { 2, "inspect", "unknown command 'inspect'", "`moonpool dashboard` and `moonpool tap`" },
  -- options of other programs, or in the wrong place
  { 2, "--verbose run", "unknown option '--verbose'", behind }, { 2, "-c moonpool.yaml", "unknown option '-c'", behind },
  { 2, "run --port 8080", "unknown option '--port'", "did you mean '--listen'?" },
  { 2, "run --debug", "unknown option '--debug'", "did you mean '--log-level'?" },
  { 2, "run -d", "unknown option '-d'", "moonpool run --help lists" },
  { 2, "run --log-level verbose", "'log.level' cannot be 'verbose'", "allowed: debug, info, warn, error" },
  { 2, "call greet --name Ann", "unknown option '--name'", no_dashes }, { 2, "call -n Ann greet", "unknown option '-n'", no_dashes },
  { 2, "prompt review --tone kind", "unknown option '--tone'", no_dashes },
  { 2, "add files npx -y some-server", "unknown option '-y'", "a program and its options stand behind --" },
  { 2, "test --filter x", "unknown option '--filter'", "moonpool test --help lists" },
  { 2, "tap --tools x", "unknown option '--tools'", "did you mean '--tool'?" },
  { 2, "call greet -u", "missing value after '-u'", "moonpool call --help lists" },
  -- addresses
  { 2, "run --listen 8080", "'8080' is not an address: the host is missing", "as in 127.0.0.1:7300" },
  { 2, "run --listen 127.0.0.1:99999", "is not an address", "the port must be 0 to 65535" },
  { 78, "run --listen 0.0.0.0:0", "0.0.0.0:0 is reachable from other machines", "moonpool new auth main" },
  { 2, "status --admin 7301", "not an address: '7301'", "as in 127.0.0.1:7301" },
  { 2, "call -u 7300 greet", "not an address: '7300'", "as in 127.0.0.1:7300" },
  { 2, "call -u http://127.0.0.1:9/mcp --ca cert.pem greet", "--ca is for a URL that begins with https://", "leave --ca out" },
  { 2, "call -u ftp://x/mcp greet", "not a URL: 'ftp://x/mcp'", "as in http://127.0.0.1:7300/mcp" },
  -- files and words
  { 78, "run none.yaml", "none.yaml: cannot read the configuration: No such file", "is the path right?" },
  { 78, "check .", ".: cannot read the configuration: Is a directory", "name the file in it, as in ./moonpool.yaml" },
  { 2, "run scripts/tools/greet.lua", "a script is no configuration: 'scripts/tools/greet.lua'", script },
  { 2, "check scripts/tools/greet.lua", "a script is no configuration", script },
  { 2, "list tools", "there is no file 'tools'", path_word }, { 2, "reload greet", "there is no file 'greet'", path_word },
  { 2, "drain now", "there is no file 'now'", path_word },
  { 2, "log debug", "there is no file 'debug'", "moonpool log --level debug sets a level" },
  { 2, "log --level loud", "'loud' is no level", "the levels are debug, info, warn and error" },
  { 2, "log --level debug --for ever", "'ever' is not a duration", "as in --for 5m" },
  { 2, "config get listen", "config takes no arguments: 'get'", "they are set in moonpool.yaml" },
  { 2, "completion powershell", "no completions for the shell 'powershell'", "there are some for bash, zsh and fish" },
  { 2, "test nowhere_spec.lua", "nowhere_spec.lua is not below scripts", "specs stand beside the scripts" },
  { 1, "import none.json", "none.json: No such file", "name the JSON file of a client" },
  { 1, "import scripts/tools/greet.lua", "not JSON", "name the JSON file of a client" },
  { 1, "import moonpool.yaml", "moonpool.yaml has no MCP servers", "they are in `mcpServers`, or in `servers` for VS Code" },
  { 1, "import empty.json", "nothing to import from empty.json", "its list of servers is empty" },
  { 1, "import cmd.json", "a is left out: it has neither 'command' nor 'url'", "a server has a command, or a url" },
  { 1, "import other.json", "other.json has no MCP servers", "they are in `mcpServers`" },
  -- new, call, read, key, switch, explain
  { 2, "new greet", "there is no kind of script 'greet'", "as in moonpool new tool greet" },
  { 2, "new tool tools/x", "'tools/x' would be in a folder of its own below scripts/tools", "moonpool new tool x" },
  { 2, "new tool scripts/tools/x.lua", "'scripts/tools/x' would be in a folder of its own", "moonpool new tool x" },
  { 2, "new job nightly now", "new takes a kind and one name", "as in moonpool new job greet" },
  { 2, "call greet Ann", "'Ann' is not an argument", "write KEY=VALUE, as in greet name=Ann" },
  { 2, "call greet name=Ann name=Bob", "'name' is given twice", "name='[1, 2]'" },
  { 2, "call --json [1] greet", "--json needs an object", "as in --json '{\"a\": 1}'" },
  { 2, "call greet -H X-Team:blue", "--header is for a gateway at a URL", "name it with --url" },
  { 2, "call -u http://127.0.0.1:9/mcp -H X-Api-Key greet", "a header needs a name, ':' and a value", "as in --header 'X-Team: blue'" },
  { 2, "read notes", "'notes' is not a URI", "moonpool list shows them" },
  { 1, "read notes://1", "this server has no resources", "moonpool list shows what there is" },
  { 1, "complete orders://{id} id=1", "this server has no completions", "moonpool list shows what there is" },
  { 1, "prompt review", "this server has no prompts", "moonpool list shows what there is" },
  { 2, "key list", "key has no action 'list'", "each key is a line of the file that auth.keys names" },
  { 2, "key revoke ann", "key has no action 'revoke'", "remove the key's line from the file" },
  { 1, "key new ann --file nowhere/keys", "nowhere/keys: No such file", "the folder of the file must exist" },
  { 2, "key new ann --expires tomorrow", "'tomorrow' is not a duration", "as in --expires 90d" },
  { 2, "switch greet off", "switch needs on or off, a kind and a name", "as in moonpool switch off tool refund" },
  { 1, "explain greet", "'greet' is served here, and the first word is the principal", "moonpool explain anonymous greet" },
  { 1, "doctor github", "there is no upstream 'github'", "the configuration has none" },
}

local tool = 'return tool { "Greets.", input = { name = t.string }, function(args) return "Hello, " .. args.name end }'

local function words_of(line)
  local words = {}
  for word in line:gmatch "%S+" do words[#words + 1] = word end
  return words
end

describe("a mistake at the command line", function()
  it("is named, with what to write instead", function()
    local dir = gateway.prepare { scripts = { ["tools/greet.lua"] = tool } }
    write(dir .. "/empty.json", '{"mcpServers": {}}')
    write(dir .. "/cmd.json", '{"mcpServers": {"a": {"cmd": "npx"}}}')
    write(dir .. "/other.json", "{}")
    local wrong = {}
    for _, row in ipairs(mistakes) do
      local code, out, err = gateway.exec(words_of(row[2]), { cwd = dir })
      local told = out .. err
      for _, part in ipairs { row[3], row[4] } do
        if not told:find(part, 1, true) then wrong[#wrong + 1] = "moonpool " .. row[2] .. "\n  wants: " .. part .. "\n" .. told end
      end
      if code ~= row[1] then wrong[#wrong + 1] = "moonpool " .. row[2] .. "\n  exit code " .. code .. "\n" .. told end
    end
    os.execute("rm -rf '" .. dir .. "'")
    assert.equal("", table.concat(wrong, "\n\n"))
  end)

  it("such as https:// for a port without TLS names the scheme", function()
    local g <close> = gateway.start { scripts = { ["tools/greet.lua"] = tool } }
    for command, part in pairs { call = "its URL begins with http://", doctor = "its URL begins with http://" } do
      local url = ("https://127.0.0.1:%d/mcp"):format(g.port)
      local code, out, err = gateway.exec(command == "call" and { "call", "-u", url, "greet" } or { "doctor", url }, { cwd = g.dir })
      assert.equal(1, code)
      assert.truthy((out .. err):find(part, 1, true), out .. err)
    end
  end)

  it("such as a name that the certificate does not have is told from one that is not trusted", function()
    local c = certificates.make { sans = "IP:127.0.0.1" }
    local g <close> = gateway.start { scripts = { ["tools/greet.lua"] = tool }, files = { ["cert.pem"] = c.certificate, ["key.pem"] = c.key },
      config = { listen = { { address = "127.0.0.1:0", tls = { certificate = "cert.pem", key = "key.pem" } } } } }
    local _, _, err = gateway.exec({ "call", "-u", ("https://localhost:%d/mcp"):format(g.port), "--ca", "cert.pem", "greet" }, { cwd = g.dir })
    assert.truthy(err:find("is for another name", 1, true) and err:find("must be one of the certificate", 1, true), err)
  end)

  it("such as a host name that is not served is no missing credential to doctor", function()
    local g <close> = gateway.start { scripts = { ["tools/greet.lua"] = tool }, config = { listen = "127.0.0.1:0", hosts = { "mcp.example.com" }, auth = "none",
      public_url = "https://mcp.example.com" } }
    local code, out = gateway.exec({ "doctor", ("http://127.0.0.1:%d/mcp"):format(g.port) }, { cwd = g.dir })
    assert.equal(1, code)
    for _, part in ipairs { "refused, and no credential is configured (status 403)", "does not serve this host name (`hosts` of a gateway" } do
      assert.truthy(out:find(part, 1, true), out)
    end
  end)

  it("such as the port of the admin listener says so", function()
    local g <close> = gateway.start { scripts = { ["tools/greet.lua"] = tool } }
    local url = ("http://127.0.0.1:%d/mcp"):format(g.admin_port)
    for _, words in ipairs { { "call", "-u", url, "greet" }, { "doctor", url } } do
      local code, out, err = gateway.exec(words, { cwd = g.dir })
      assert.equal(1, code)
      assert.truthy((out .. err):find("not that of the admin listener", 1, true), out .. err)
    end
  end)

  it("such as listing what only upstreams offer says which commands list it", function()
    local dir = gateway.prepare { config = { upstreams = { other = { url = "http://127.0.0.1:9/mcp" } } } }
    local code, out, err = gateway.exec({ "list" }, { cwd = dir })
    assert.same({ 0, "" }, { code, out })
    for _, part in ipairs { "nothing is listed: scripts/ has no tools", "`moonpool check --connect` lists what upstreams offer" } do
      assert.truthy(err:find(part, 1, true), err)
    end
    os.execute("rm -rf '" .. dir .. "'")
  end)
end)
