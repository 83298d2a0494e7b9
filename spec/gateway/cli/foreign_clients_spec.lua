-- Mistakes at the command line, of clients at the wrong path or with the wrong protocol, and of programs that do not
-- start: each report says where, what, and what to do next.
local gateway = require "spec.helpers.gateway"
local uv = require "luv"

local scripts = { ["tools/x.lua"] = "return tool { 'X.', input = { n = t.optional(t.integer) }, function() return 'x' end }" }

-- { words of the command, exit code, parts of stderr }
local commands = {
  { "serve", 2, "unknown command 'serve'", "did you mean 'run'?" },
  { "init", 2, "unknown command 'init'", "did you mean 'new'?" },
  { "validate", 2, "unknown command 'validate'", "did you mean 'check'?" },
  { "stop", 2, "unknown command 'stop'", "did you mean 'drain'?" },
  { "-v", 2, "unknown option '-v'", "did you mean '--version'?" },
  { "run --port 8080", 2, "unknown option '--port'", "did you mean '--listen'?" },
  { "run --host 0.0.0.0", 2, "unknown option '--host'", "did you mean '--listen'?" },
  { "run --verbose", 2, "unknown option '--verbose'", "did you mean '--trace'?" },
  { "call --args {} x", 2, "unknown option '--args'", "did you mean '--json'?" },
  { "call --token abc x", 2, "unknown option '--token'", "did you mean '--bearer-env'?" },
  { "call", 2, "call takes the name of a tool", "as in moonpool call greet name=Ann" },
  { "call y", 2, "there is no tool 'y'", "did you mean 'x'?" },
  { "call x m=1", 2, "'x' has no argument 'm'", "did you mean 'n'?" },
  { "call x other=1", 2, "'x' has no argument 'other'", "its arguments are n" },
  { "call x n", 2, "'n' is not an argument", "write KEY=VALUE" },
  { "call x --json 1", 2, "--json needs an object", "as in --json" },
  { "check nothing.yaml", 78, "nothing.yaml: cannot read the configuration", "is the path right?" },
  { "check .", 78, "cannot read the configuration", "this is a folder; name the file in it" },
  { "new toool x", 2, "there is no kind of script 'toool'", "did you mean 'tool'?" },
  { "import nothing.json", 1, "nothing.json: No such file", "name the JSON file of a client" },
  { "import moonpool.yaml", 1, "moonpool.yaml: the file is empty", "name the JSON file of a client" },
  { "import servers.json", 1, "servers.json has no MCP servers", "they are in `mcpServers`" },
  { "key", 2, "key takes 'new', 'password' or 'pair'", "as in moonpool key new ci" },
  { "add https://127.0.0.1:9/mcp", 2, "add takes a name and a URL", "as in moonpool add" },
  { "doctor missing", 1, "there is no such program in PATH", "hint: " },
  { "doctor node", 1, "exit 1: Error: no API key", "hint: " },
  { "doctor npm", 1, "exit 1: npm error 404 Not Found - GET https://registry.example/none", "hint: " },
  { "doctor npx", 1, "exit 1: Error: no API key", "hint: " },
  { "doctor python", 1, "exit 1: ModuleNotFoundError: No module named 'x'", "hint: " },
}

-- What Node, npm and Python print when a program ends by an error.
local endings = {
  node = "/srv/x.js:2\nthrow new Error(\"no API key\");\n^\n\nError: no API key\n    at Object.<anonymous> (/srv/x.js:2:7)\n\nNode.js v20.20.2\n",
  npm = "npm error code E404\nnpm error 404 Not Found - GET https://registry.example/none - Not found\nnpm error 404\n"
    .. "npm error A complete log of this run can be found in: /home/ann/.npm/x.log\n",
  npx = "Error: no API key\nnpm error code 1\nnpm error path /srv\nnpm error command failed\n"
    .. "npm error A complete log of this run can be found in: /home/ann/.npm/x.log\n",
  python = "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\n    import x\nModuleNotFoundError: No module named 'x'\n",
}

local function upstreams(dir)
  local list = { missing = { command = { "does-not-exist-here" } } }
  for name, text in pairs(endings) do
    local file <close> = assert(io.open(dir .. "/" .. name .. ".txt", "wb"))
    file:write(text)
    list[name] = { command = { "sh", "-c", "cat " .. name .. ".txt >&2; exit 1" } }
  end
  return list
end

local function written(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

describe("a mistake at the command line", function()
  it("is reported with what to do next", function()
    local dir = gateway.prepare { scripts = scripts }
    written(dir .. "/moonpool.yaml", "")
    written(dir .. "/servers.json", "{}")
    local wrong = {}
    for _, row in ipairs(commands) do
      local words = {}
      for word in row[1]:gmatch "%S+" do words[#words + 1] = word end
      if words[1] == "doctor" then written(dir .. "/moonpool.yaml", require "cjson".encode { upstreams = upstreams(dir) }) end
      local code, out, err = gateway.exec(words, { cwd = dir })
      local told = out .. err
      if code ~= row[2] then wrong[#wrong + 1] = row[1] .. ": exit code " .. code .. "\n" .. told end
      for i = 3, #row do
        if not told:find(row[i], 1, true) then wrong[#wrong + 1] = row[1] .. "\n  wants: " .. row[i] .. "\n" .. told end
      end
    end
    os.execute("rm -rf '" .. dir .. "'")
    assert.equal("", table.concat(wrong, "\n\n"))
  end)
end)

describe("moonpool check of many scripts", function()
  it("sums them up at the end", function()
    local many = {}
    for i = 1, 30 do many["tools/x" .. i .. ".lua"] = "return tool { 'X.', function() end }" end
    many["tools/x1.lua"] = "return tool { 'X.', function() return nothing_here end }"
    local dir = gateway.prepare { scripts = many }
    written(dir .. "/moonpool.yaml", "")
    local _, out = gateway.exec({ "check" }, { cwd = dir })
    os.execute("rm -rf '" .. dir .. "'")
    assert.equal("30 tools: 1 warning\n", out:sub(-20))
  end)
end)

-- { request, status, part of the body }
local json = "content-type: application/json\r\n"
local function post(path, body, headers)
  return ("POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n%scontent-length: %d\r\n\r\n%s"):format(path, headers or json, #body, body)
end
local function get(path, headers) return ("GET %s HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n%s\r\n"):format(path, headers or "") end
local initialize = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'
local requests = {
  { "an event stream of 2024-11-05 at /mcp", get("/mcp", "accept: text/event-stream\r\n"), 400, "the event stream of 2024-11-05 is at /sse" },
  { "Streamable HTTP at /sse", post("/sse", initialize), 405, "later revisions are at /mcp" },
  { "no path", post("/", initialize), 404, "nothing is served at this path: MCP is at /mcp" },
  { "a wrong path", post("/v1/mcp", initialize), 404, "MCP is at /mcp" },
  { "/messages without a session", post("/messages", initialize), 400, "POST to the URL from the endpoint event" },
  { "a wrong content type", post("/mcp", "x", "content-type: text/plain\r\n"), 415, "Content-Type must be application/json" },
}

-- What a server at `port` answers to `bytes`, until it closes.
local function answer_to(port, bytes)
  local parts, is_over = {}, false
  local socket, timer = uv.new_tcp(), uv.new_timer()
  timer:start(10000, 0, function() is_over = true end)
  socket:connect("127.0.0.1", port, function(failed)
    assert(not failed, failed)
    socket:write(bytes)
    socket:read_start(function(_, part)
      parts[#parts + 1] = part
      is_over = is_over or part == nil
    end)
  end)
  while not is_over do uv.run "once" end
  socket:close()
  timer:close()
  return table.concat(parts)
end

describe("a client with the wrong path or protocol", function()
  it("is told where MCP is", function()
    local g <close> = gateway.start { workers = 1, scripts = scripts }
    for _, row in ipairs(requests) do
      local answer = answer_to(g.port, row[2])
      assert.equal(row[3], tonumber(answer:match "^HTTP/1.1 (%d+)"), row[1] .. "\n" .. answer)
      assert.truthy(answer:find(row[4], 1, true), row[1] .. "\n" .. answer)
    end
  end)

  it("leaves a line and a count if it sends TLS to a plain address", function()
    local g <close> = gateway.start { workers = 1, scripts = scripts }
    answer_to(g.port, "\22\3\1\0\5\1\0\0\1\0\r\n\r\n")
    g:wait_log("refused", { cause = "scheme", why = "TLS was sent to a listener that speaks plain HTTP: http:// is its scheme", address = "127.0.0.1" })
    assert.equal(1, g:status().counters.refused.client_hello)
  end)
end)
