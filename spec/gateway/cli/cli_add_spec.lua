-- moonpool add and moonpool import: they write entries at the end of `upstreams:`, keep every other byte of the file,
-- and copy no secret.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a"
end

-- Runs `use(dir, run)` in a folder with this moonpool.yaml (nil: none) and these files; run(args...) returns exit code,
-- stdout, stderr.
local function in_folder(text, files, use)
  local dir = gateway.prepare { config = text or "", files = files }
  if not text then os.remove(dir .. "/moonpool.yaml") end
  use(dir, function(...) return gateway.exec({ ... }, { cwd = dir }) end)
  os.execute("rm -rf '" .. dir .. "'")
end

local URL <const> = "https://mcp.example.com/mcp"

-- Each row: a name, the file before, the file after `add files -- npx -y server /srv`; nil: the file is refused.
local entry = "  files:\n    command: [npx, -y, server, /srv]\n"
local layouts = {
  { "an empty file", "", "upstreams:\n" .. entry },
  { "a file of comments", "# mine\n", "# mine\n\nupstreams:\n" .. entry },
  { "a file without upstreams", "listen: 127.0.0.1:0 # here\n", "listen: 127.0.0.1:0 # here\n\nupstreams:\n" .. entry },
  { "a file without its last line break", "log: {level: info}", "log: {level: info}\n\nupstreams:\n" .. entry },
  { "an empty section", "upstreams:\nlog: {level: info}\n", "upstreams:\n" .. entry .. "log: {level: info}\n" },
  { "a section of comments", "upstreams:\n  # none yet\n\nlog: {level: info}\n", "upstreams:\n  # none yet\n" .. entry .. "\nlog: {level: info}\n" },
  { "empty braces", "upstreams: {}   # none\nlog: {level: info}\n", "upstreams:   # none\n" .. entry .. "log: {level: info}\n" },
  { "a null", "upstreams: ~\n", "upstreams:\n" .. entry },
  { "other upstreams, comments and blank lines",
    "# a\nupstreams:\n\n  # one\n  one: https://x # c\n\n  two: {url: https://y,\n    timeout: 3s}\n  # end\n\n# log\nlog: {}\n",
    "# a\nupstreams:\n\n  # one\n  one: https://x # c\n\n  two: {url: https://y,\n    timeout: 3s}\n  # end\n" .. entry .. "\n# log\nlog: {}\n" },
  { "deeper indentation", "upstreams:\n      one: https://x\n",
    "upstreams:\n      one: https://x\n" .. entry:gsub("  files", "      files"):gsub("    command", "        command") },
  { "line breaks of Windows", "upstreams:\r\n  one: https://x\r\n", "upstreams:\r\n  one: https://x\r\n" .. entry:gsub("\n", "\r\n") },
  { "variables that are not set", 'listen: "${NOT_SET}"\nupstreams: \n  one: {url: "${NOT_SET:?x}"}\n',
    'listen: "${NOT_SET}"\nupstreams: \n  one: {url: "${NOT_SET:?x}"}\n' .. entry },
  { "a block of text", "server:\n  instructions: |\n    upstreams:\n      x: y\nupstreams:\n  one: https://x\n",
    "server:\n  instructions: |\n    upstreams:\n      x: y\nupstreams:\n  one: https://x\n" .. entry },
  { "braces around all", '{"listen": "127.0.0.1:0"}\n' },
  { "braces around upstreams", "upstreams: {one: https://x}\n" },
  { "an error", "upstreams:\n  one: nothing\n" },
  { "the name already", "upstreams:\n  files: https://x\n" },
  { "a marked end", "log: {level: info}\n...\n" },
}

describe("moonpool add", function()
  for _, row in ipairs(layouts) do
    it((row[3] and "keeps every byte of a file with " or "refuses, and leaves alone, a file with ") .. row[1], function()
      in_folder(row[2], nil, function(dir, run)
        local code, out, err = run("add", "files", "--untried", "--", "npx", "-y", "server", "/srv")
        assert.equal(row[3] or row[2], read(dir .. "/moonpool.yaml"))
        assert.equal(row[3] and 0 or row[1] == "the name already" and 1 or 78, code, err)
        if row[3] then
          assert.equal("added files to moonpool.yaml\n", out)
          assert.equal("", err)
        else
          assert.truthy(err:find "hint: ", err)
        end
      end)
    end)
  end

  it("writes what check accepts, with variables for credentials", function()
    in_folder("admin: off\n", nil, function(dir, run)
      assert.equal(0, (run("add", "--untried", "git", URL, "-b", "TOKEN", "-H", "x-org: a b", "-r", "modern", "-p", "gh_")))
      local words = { "srv", "two words", 'q"\\', "null", "8080", "--", "-x", "" }
      assert.equal(0, (run("add", "--untried", "odd", "-e", "A=x=y", "-e", "B=${B:-true}", "--", table.unpack(words))))
      assert.equal('admin: off\n\nupstreams:\n  git:\n    url: ' .. URL
        .. '\n    auth: {bearer: "${TOKEN:?set it}"}\n    headers: {x-org: "a b"}\n    revision: modern\n    prefix: gh_\n'
        .. '  odd:\n    command: [srv, "two words", "q\\"\\\\", "null", "8080", "--", -x, ""]\n'
        .. '    process: {env: {A: "x=y", B: "${B:-true}"}}\n', read(dir .. "/moonpool.yaml"))
      assert.equal(0, (gateway.exec({ "check" }, { cwd = dir, env = { TOKEN = "t" } })))
    end)
  end)

  it("names a variable that is not set, and writes nothing", function()
    in_folder("# mine\n", nil, function(dir, run)
      local code, out, err = run("add", "git", URL, "-b", "A_TOKEN_THAT_IS_NOT_SET")
      assert.same({ 78, "" }, { code, out })
      assert.equal("moonpool: the environment variable A_TOKEN_THAT_IS_NOT_SET is not set\n"
        .. "  hint: export A_TOKEN_THAT_IS_NOT_SET=… first; --untried adds the entry without connecting\n", err)
      assert.equal("# mine\n", read(dir .. "/moonpool.yaml"))
    end)
  end)

  it("prints with --dry-run, and writes nothing", function()
    in_folder("# mine\n", nil, function(dir, run)
      local code, out = run("add", "--untried", "-n", "files", "--", "npx", "-y", "server", "/srv")
      assert.equal(0, code)
      assert.equal("upstreams:\n" .. entry, out)
      assert.equal("# mine\n", read(dir .. "/moonpool.yaml"))
    end)
  end)

  it("makes the file, and the folder of scripts beside it", function()
    in_folder(nil, nil, function(dir, run)
      os.execute("rmdir '" .. dir .. "/scripts'")
      assert.equal(0, (run("add", "--untried", "a", URL)))
      assert.equal("upstreams:\n  a: " .. URL .. "\n", read(dir .. "/moonpool.yaml"))
      assert.equal(0, (run "check"))
    end)
  end)

  it("keeps a link and the mode of the file", function()
    in_folder("# mine\n", nil, function(dir, run)
      assert.truthy(os.execute(("cd '%s' && mv moonpool.yaml real.yaml && chmod 640 real.yaml && ln -s real.yaml moonpool.yaml"):format(dir)))
      assert.equal(0, (run("add", "--untried", "a", URL)))
      assert.truthy(os.execute(("cd '%s'; test -L moonpool.yaml && test \"$(stat -c %%a real.yaml)\" = 640 && test ! -e real.yaml.*"):format(dir)))
      assert.truthy(read(dir .. "/real.yaml"):find(URL, 1, true))
    end)
  end)

  -- Each row: the arguments, and a part of the error.
  local misuses = {
    { {}, "takes a name and a URL" }, { { "a" }, "takes a name and a URL" }, { { "A", URL }, "'A' cannot be the name of an upstream" },
    { { "a", "ftp://x" }, "'ftp://x' is not a URL of an MCP server" },
    { { "a", URL, "b" }, "unexpected: 'b'" }, { { "a", URL, "-e", "A=b" }, "--env is for a command" },
    { { "a", "-b", "T", "--", "x" }, "--bearer-env and --header are for a URL" },
    { { "a", URL, "-b", "sk-abc" }, "'sk-abc' is not the name of a variable" },
    { { "a", URL, "-H", "nothing" }, "'nothing' is not a header" }, { { "a", URL, "-r", "2025" }, "there is no revision '2025'" },
    { { "a", URL .. "?api_key=0123456789abcdef" }, "the URL seems to contain a secret" },
    { { "a", URL, "-H", "x-api-key: hunter2-hunter2" }, "x-api-key seems to contain a secret" },
    { { "a", "-e", "API_TOKEN=hunter2-hunter2", "--", "x" }, "API_TOKEN seems to contain a secret" },
    { { "a", "--", "x", "--token", "hunter2-hunter2" }, "argument 3 of the program seems to contain a secret" },
    { { "a", "--", "x", "--token=hunter2-hunter2" }, "argument 2 of the program seems to contain a secret" },
    { { "a", "--", "x", "postgres://u:hunter2@h/d" }, "argument 2 of the program seems to contain a secret" },
    { { "a", "--", "x", "u:hunter2@h/d" }, "argument 2 of the program seems to contain a secret" },
  }

  it("refuses what it cannot write, and secrets, which it does not repeat", function()
    in_folder("# mine\n", nil, function(dir, run)
      for _, row in ipairs(misuses) do
        local code, out, err = run("add", "--untried", table.unpack(row[1]))
        assert.equal(2, code, err)
        assert.truthy(err:find(row[2], 1, true), err)
        assert.truthy(err:find "\n  hint: ", err)
        assert.falsy((out .. err):find "hunter2")
      end
      assert.equal("# mine\n", read(dir .. "/moonpool.yaml"))
    end)
  end)
end)

local claude = [[{"mcpServers": {
  "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/ann/Documents", "npm:x@1"]},
  "GitHub Server": {"command": "docker", "args": ["run", "-i", "ghcr.io/github/github-mcp-server"],
    "env": {"GITHUB_TOKEN": "ghp_hunter2hunter2hunter2", "LOG": "info", "N": 3}},
  "postgres": {"command": "npx", "args": ["server-postgres", "postgresql://u:hunter2@localhost/db"]},
  "slow": {"command": "srv", "args": ["--api-key", "hunter2", "--key=hunter2abc", "--header", "X-Token: hunter2hunter2"], "timeout": 60, "disabled": true}
}}]]

local cursor = [[{"mcpServers": {
  "api": {"url": "https://api.example.com/mcp?key=hunter2&team=a%20b#x",
    "headers": {"Authorization": "Bearer hunter2hunter2", "X-Org": "acme", "x-api-key": "hunter2"}},
  "old": {"url": "https://old.example.com/sse"},
  "env": {"url": "https://env.example.com/mcp", "headers": {"Authorization": "Bearer ${env:ENV_TOKEN}"}}
}}]]

local vscode = [[{
  // servers of this workspace
  "inputs": [{"type": "promptString", "id": "perplexity-key", "description": "API ${key} of \"Perplexity\"", "password": true}],
  "servers": {
    "perplexity": {"type": "stdio", "command": "npx", "args": ["-y", "server-perplexity", "${workspaceFolder}/a", "$${x.y}", "a//b"],
      "env": {"KEY": "${input:perplexity-key}"},},
    "remote": {"type": "sse", "url": "https://r.example.com/events", /* gone */ "headers": null},
    "docs": {"type": "http", "url": "https://d.example.com/@ann/mcp"},
  },
}]]

-- Other programs: an empty command beside the URL, other members for the URL, servers that are switched off, a transport
-- as an object.
local others = [[{"mcpServers": {
  "a": {"isActive": true, "command": "", "args": [], "baseUrl": "https://a.example.com/mcp", "headers": {"Authorization": "Bearer hunter2hunter2"}},
  "b": {"isActive": false, "type": "sse", "url": "", "baseUrl": "https://b.example.com/events"},
  "c": {"transport": {"type": "stdio", "command": "srv", "args": ["x"], "env": {"LOG": "info"}}},
  "d": {"transport": {"type": "sse", "url": "https://d.example.com/events", "headers": null}},
  "e": {"url": "https://e.example.com/mcp", "headers": {"Authorization": "Basic hunter2hunter2"}},
  "f": {"url": "https://f.example.com/mcp", "headers": {"authorization": "ApiKey ${env:F_KEY}"}}
}}]]

-- The settings of Claude Code, with servers for some folders.
local projects = [[{"numStartups": 3,
  "mcpServers": {"a": {"type": "http", "url": "https://a.example.com/mcp"}},
  "projects": {
    "/home/ann/shop": {"allowedTools": [], "mcpServers": {
      "a": {"url": "https://a.example.com/mcp", "type": "http"}, "b": {"command": "srv", "env": {"API_TOKEN": "hunter2hunter2"}}}},
    "/home/ann/web": {"mcpServers": {"a": {"command": "own"}, "c": {"command": "srv"}}},
    "/srv/web/": {"mcpServers": {"a": {"command": "other"}}}, "/home/ann/none": {"mcpServers": {}}, "/home/ann/old": {}
}}]]

-- Each row: a name, the file, the entries, the variables that the user is told to set.
local imports = {
  { "Claude Desktop", claude, [[
upstreams:
  github-server:
    command: [docker, run, -i, ghcr.io/github/github-mcp-server]
    process: {env: {GITHUB_TOKEN: "${GITHUB_TOKEN:?set it}", LOG: info, N: "3"}}
  filesystem:
    command: [npx, -y, "@modelcontextprotocol/server-filesystem", /Users/ann/Documents, "npm:x@1"]
  postgres:
    command: [npx, server-postgres, "${POSTGRES_ARGUMENT_2:?set it}"]
  # slow:
  #   command: [srv, --api-key, "${SLOW_API_KEY:?set it}", "--key=${SLOW_KEY:?set it}", --header, "X-Token: ${SLOW_X_TOKEN:?set it}"]
]], "GITHUB_TOKEN, POSTGRES_ARGUMENT_2, SLOW_API_KEY, SLOW_KEY, SLOW_X_TOKEN" },
  { "Cursor", cursor, [[
upstreams:
  api:
    url: "https://api.example.com/mcp?key=${API_KEY:?set it}&team=a%20b"
    auth: {bearer: "${API_TOKEN:?set it}"}
    headers: {X-Org: acme, x-api-key: "${API_X_API_KEY:?set it}"}
  env:
    url: https://env.example.com/mcp
    auth: {bearer: "${ENV_TOKEN:?set it}"}
  old:
    url: https://old.example.com/sse
    revision: sse
]], "API_KEY, API_TOKEN, API_X_API_KEY, ENV_TOKEN" },
  { "VS Code", vscode, [[
upstreams:
  docs: "https://d.example.com/@ann/mcp"
  perplexity:
    command: [npx, -y, server-perplexity, "./a", "$$$${x.y}", a//b]
    process: {env: {KEY: "${PERPLEXITY_KEY:?API key of \"Perplexity\"}"}}
  remote:
    url: https://r.example.com/events
    revision: sse
]], "PERPLEXITY_KEY" },
  { "Cherry Studio and others", others, [[
upstreams:
  a:
    url: https://a.example.com/mcp
    auth: {bearer: "${A_TOKEN:?set it}"}
  # b:
  #   url: https://b.example.com/events
  #   revision: sse
  c:
    command: [srv, x]
    process: {env: {LOG: info}}
  d:
    url: https://d.example.com/events
    revision: sse
  e:
    url: https://e.example.com/mcp
    auth: {header: "${E_AUTHORIZATION:?set it}"}
  f:
    url: https://f.example.com/mcp
    auth: {header: "ApiKey ${F_KEY:?set it}"}
]], "A_TOKEN, E_AUTHORIZATION, F_KEY" },
  { "Claude Code with projects", projects, [[
upstreams:
  a: https://a.example.com/mcp
  a-web:
    command: [own]
  a-web-2:
    command: [other]
  b:
    command: [srv]
    process: {env: {API_TOKEN: "${API_TOKEN:?set it}"}}
  c:
    command: [srv]
]], "API_TOKEN" },
}

describe("moonpool import", function()
  for _, row in ipairs(imports) do
    it("reads the file of " .. row[1] .. ", and copies no secret", function()
      in_folder("", { ["servers.json"] = row[2] }, function(dir, run)
        local code, out, err = run("import", "servers.json")
        assert.equal(0, code, err)
        assert.equal(row[3], read(dir .. "/moonpool.yaml"))
        assert.truthy(err:find("set before the gateway starts: " .. row[4] .. "\n", 1, true), err)
        assert.falsy((out .. err .. read(dir .. "/moonpool.yaml")):find "hunter2")
        local env = {}
        for name in row[4]:gmatch "[%w_]+" do env[name] = "v" end
        local checked, _, report = gateway.exec({ "check" }, { cwd = dir, env = env })
        assert.equal(0, checked, report)
        local again = { run("import", "servers.json") }
        assert.equal(0, again[1])
        assert.equal(row[3], read(dir .. "/moonpool.yaml"))
      end)
    end)
  end

  it("takes the named servers, and suggests a name", function()
    in_folder("# mine\n", { ["c.json"] = cursor }, function(dir, run)
      assert.equal(0, (run("import", "c.json", "old")))
      assert.equal("# mine\n\nupstreams:\n  old:\n    url: https://old.example.com/sse\n    revision: sse\n", read(dir .. "/moonpool.yaml"))
      local code, _, err = run("import", "c.json", "apo")
      assert.equal(2, code)
      assert.truthy(err:find("hint: did you mean 'api'?", 1, true))
    end)
  end)

  it("prints with --dry-run, and writes nothing", function()
    in_folder("# mine\n", { ["c.json"] = cursor }, function(dir, run)
      local code, out = run("import", "-n", "c.json")
      assert.equal(0, code)
      assert.equal(imports[2][3], out)
      assert.equal("# mine\n", read(dir .. "/moonpool.yaml"))
    end)
  end)

  it("leaves out what it cannot use, says why, and exits with 1", function()
    local servers = { fine = { url = "https://x/mcp" }, list = { 1 }, nothing = { args = { "x" } }, other = { url = "ws://x" },
      user = { url = "https://u:hunter2@x/" },
      nested = { command = "x", env = { A = { "b" } } } }
    in_folder("", { ["c.json"] = cjson.encode { mcpServers = servers } }, function(dir, run)
      local code, out, err = run("import", "c.json")
      assert.equal(1, code)
      assert.equal("upstreams:\n  fine: https://x/mcp\n", read(dir .. "/moonpool.yaml"))
      for name in pairs(servers) do assert.equal(name ~= "fine", err:find("  " .. name .. " is left out: ", 1, true) ~= nil, name) end
      assert.falsy((out .. err):find "hunter2")
    end)
  end)

  it("lets no text of the file become a key, a variable's file or another upstream", function()
    local evil = '"}\nlisten: 0.0.0.0:1\nx: ${file:secret} $${file:secret} ${A:-${file:secret}} \\ \226\128\168 \194\133 \0 \27[2J # - [}]'
    local servers = {
      ["a\nlisten: x"] = { command = evil, args = { evil, "--x=" .. evil }, env = { A = evil, ["B\nlisten"] = evil }, cwd = evil },
      b = { url = "https://x/${file:secret}?${file:secret}&${file:secret}=1&a=${file:secret}&b", headers = { ["x-a"] = "${file:secret}" } },
      c = { url = "https://x/", headers = { Authorization = "Bearer ${file:secret}" } }, d = { command = "x", disabled = true, args = { evil } },
    }
    for name, server in pairs(servers) do
      in_folder("listen: 127.0.0.1:0\n", { ["c.json"] = cjson.encode { mcpServers = { [name] = server } }, secret = "hunter2" }, function(dir, run)
        local _, out, err = run("import", "c.json")
        local text = read(dir .. "/moonpool.yaml")
        assert.falsy((out .. err .. text):find("hunter2", 1, true))
        for line in text:gmatch "[^\n]+" do assert.truthy(line:find "^listen: 127" or line:find "^upstreams:$" or line:find "^  ", line) end
        assert.falsy(text:gsub("%$%$", ""):find("${file", 1, true), text)
      end)
    end
  end)

  it("refuses files that it cannot read", function()
    local bad = { ["{"] = "not JSON", ["[]"] = "has no MCP servers", ['{"a": 1}'] = "has no MCP servers", [""] = "the file is empty",
      ['{"mcpServers": {}}'] = "nothing to import" }
    for text, words in pairs(bad) do
      in_folder("# mine\n", { ["c.json"] = text }, function(dir, run)
        local code, _, err = run("import", "c.json")
        assert.equal(1, code)
        assert.truthy(err:find(words, 1, true), err)
        assert.equal("# mine\n", read(dir .. "/moonpool.yaml"))
      end)
    end
    in_folder("", nil, function(_, run)
      assert.equal(1, (run("import", "nowhere.json")))
      assert.equal(2, (run "import"))
    end)
  end)
end)
