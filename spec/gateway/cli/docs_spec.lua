-- The pages of docs/, the first page and the README files: each is played from top to bottom (spec/helpers/page.lua),
-- every link leads to a page, every page is in the index, generated pages equal the output of `./dev docs`; statements
-- about an example are true.
local certificates = require "spec.helpers.certificates"
local docker = require "spec.helpers.docker"
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"
local haproxy = require "spec.helpers.haproxy"
local nginx = require "spec.helpers.nginx"
local operator = require "spec.helpers.operator"
local page_player = require "spec.helpers.page"
local reference = require "spec.helpers.reference"
local write = require "spec.helpers.shell".write

local function has(text, part) assert.truthy(text:find(part, 1, true), part .. " is not in: " .. text) end

-- The files of a page, by their paths. A block may contain several.
local function files_of(page)
  local files, count = {}, 0
  for block in example.read(page):gmatch "```lua\n(.-)```" do
    local at = {}
    for here, path in block:gmatch "()%-%- (scripts/%S+%.lua)[^\n]*\n" do
      if here == 1 or block:sub(here - 1, here - 1) == "\n" then at[#at + 1] = { here, path } end
    end
    for i, one in ipairs(at) do
      files[one[2]], count = block:sub(one[1], at[i + 1] and at[i + 1][1] - 1 or #block), count + 1
    end
  end
  return files, count
end

local function in_folder(files, f)
  local dir = gateway.prepare { files = files }
  local function moonpool(...) return gateway.exec({ ... }, { cwd = dir }) end
  f(moonpool, dir)
  gateway.run_program("/bin/rm", { "-r", dir })
end

-- The pages for users. The pages that ./dev api and ./dev features write have specs of their own.
local function pages()
  local list = {}
  local _, out = gateway.run_program("/usr/bin/find", { "README.md", "docs", "-name", "*.md", "-not", "-path", "docs/dev/*" })
  for path in out:gmatch "[^\n]+" do list[#list + 1] = path end
  table.sort(list)
  return list
end

-- The words on these pages come from the types, the specs, and the binary.
local GENERATED <const> = { ["docs/reference/libraries.md"] = true, ["docs/reference/features.md"] = true }

-- The files that a page needs before its first block.
local hello = { before = function(player)
  gateway.run_program("/bin/cp", { "-r", "examples/hello", player.dir .. "/hello" })
  player:start({ line = 0 }, "moonpool run " .. player.dir .. "/hello/moonpool.yaml &")
end }

-- Besides, the first page imports the servers of Claude Desktop, from the home folder of its reader.
local first = { before = function(player)
  hello.before(player)
  local home = player.dir .. "/home"
  gateway.run_program("/bin/mkdir", { "-p", home .. "/.config/Claude" })
  write(home .. "/.config/Claude/claude_desktop_config.json",
    ('{"mcpServers": {"github": {"command": "moonpool", "args": ["stdio", "%s/hello/moonpool.yaml"]}}}'):format(player.dir))
  write(player.state, ("export HOME='%s'\n"):format(home))
end }
local OPTIONS <const> = { ["README.md"] = first, ["docs/how-to/monitor.md"] = hello, ["docs/how-to/container.md"] = { before = docker.put },
  ["docs/how-to/admin-access.md"] = { before = operator.put }, ["docs/how-to/profile.md"] = { before = operator.put },
  ["docs/how-to/systemd.md"] = hello }

describe("the documentation", function()
  for _, path in ipairs(pages()) do
    if not GENERATED[path] then
      it(path .. " does what it says", function()
        local played <close> = page_player.play(path, OPTIONS[path])
        if played.has_scripts then played:check() end
      end)
    end
  end

  it("has links that lead somewhere", function()
    local broken, list = {}, pages()
    local _, out = gateway.run_program("/bin/sh", { "-c", "ls CONTRIBUTING.md SECURITY.md docs/dev/*.md examples/*/README.md spec/transcripts/README.md" })
    for path in out:gmatch "[^\n]+" do list[#list + 1] = path end
    for _, path in ipairs(list) do
      for _, link in ipairs(page_player.broken_links(path)) do broken[#broken + 1] = link end
    end
    assert.same({}, broken)
  end)

  it("has an index of all pages", function()
    local index, missing = example.read "docs/README.md", {}
    for _, path in ipairs(pages()) do
      local name = path:match "^docs/(.+)$"
      if name and name ~= "README.md" and not index:find("](" .. name .. ")", 1, true) then missing[#missing + 1] = path end
    end
    assert.same({}, missing)
  end)

  it("has pages about keys and commands as ./dev docs writes them", function()
    assert.equal(reference.config(example.program()), example.read(reference.config_path))
    assert.equal(reference.cli(example.program()), example.read(reference.cli_path))
  end)

  it("names each cause of a refusal on the page about the log", function()
    local page, missing = example.read "docs/reference/logging.md", {}
    for cause in example.read "core/telemetry/refusal.h":gmatch 'X%(%u[%u%d_]*, "([^"]+)"' do
      if not page:find("`" .. cause .. "`", 1, true) then missing[#missing + 1] = cause end
    end
    assert.same({}, missing)
  end)

  it("says of each trouble in the log what to do", function()
    local page, missing = example.read "docs/how-to/troubleshooting.md", {}
    for event in example.read "core/telemetry/troubles.def":gmatch '\nTROUBLE%([%w_]+, "([^"]+)"%)' do
      if not page:find("`" .. event .. "`", 1, true) then missing[#missing + 1] = event end
    end
    assert.same({}, missing)
  end)

  it("has an example of every function of the libraries", function()
    local examples, missing = example.read "docs/reference/library-examples.md", {}
    for line in example.read "lua/types/moonpool.d.lua":gmatch "[^\n]+" do
      local name = line:match "^function ([%l][%w_.]*)%("
      local method = line:match "^function %u%w*:([%w_]+)%("
      if name and not examples:find("%f[%w_.]" .. name:gsub("%.", "%%.") .. "[ ({\"]") then missing[#missing + 1] = name end
      if method and not examples:find(":" .. method .. "[ ({\"]") then missing[#missing + 1] = ":" .. method end
    end
    assert.same({}, missing)
  end)

  it("says of each block that is not run why, and names only specs that are there", function()
    local wrong = {}
    local _, specs = gateway.run_program("/bin/sh", { "-c", "find spec -name '*_spec.lua' -not -path '*/node_modules/*'" })
    for _, path in ipairs(pages()) do
      for line in example.read(path):gmatch "[^\n]+" do
        local reason = line:find "^<!%-%- *not run" and (line:match "^<!%-%- not run: (.-) %-%->$" or "")
        if reason and not reason:find "%w+ %w+" then wrong[#wrong + 1] = path .. ": " .. line end
        for name in (reason or ""):gmatch "[%w_]+_spec" do
          if not specs:find("/" .. name .. ".lua", 1, true) then wrong[#wrong + 1] = path .. ": there is no " .. name end
        end
      end
    end
    assert.same({}, wrong)
  end)

  it("is in plain words", function()
    local found, list = {}, pages()
    local _, out = gateway.run_program("/bin/sh", { "-c", "ls CONTRIBUTING.md SECURITY.md examples/*/README.md" })
    for path in out:gmatch "[^\n]+" do list[#list + 1] = path end
    for _, path in ipairs(list) do
      local line_number = 0
      local is_generated = GENERATED[path] or path == reference.config_path or path == reference.cli_path
      for line in (is_generated and "" or example.read(path)):gmatch "[^\n]*" do
        line_number = line_number + 1
        for _, word in ipairs { "whoever", "nobody", "everybody", "somebody", "anybody", "told", "heard", "called off", "so many", "the house" } do
          if (" " .. line:lower() .. " "):find("%f[%a]" .. word .. "%f[%A]") then found[#found + 1] = ("%s:%d: %s"):format(path, line_number, word) end
        end
      end
    end
    assert.same({}, found)
  end)

  it("has a first page of at most 150 lines", function()
    assert.is_true(select(2, example.read "README.md":gsub("\n", "")) <= 150)
  end)
end)

describe("the page", function()
  for page, least in pairs { ["docs/writing-tools.md"] = 10, ["docs/explanation/policies.md"] = 3 } do
    it(page .. " has files that load", function()
      local files, count = files_of(page)
      assert.is_true(count >= least, count .. " files")
      in_folder(files, function(moonpool)
        local code, out, err = moonpool "check"
        assert.same({ 0, "" }, { code, (err:gsub("[^\n]* warn  policy for no tool [^\n]*\n", ""):gsub("^nothing is served: [^\n]*\n  hint: [^\n]*\n", "")) })
        for path in pairs(files) do
          local tool = path:match "^scripts/tools/(.+)%.lua$"
          if tool then has(out, "tool  " .. tool) end
        end
      end)
    end)
  end

  it("docs/writing-tools.md has tools that answer", function()
    in_folder((files_of "docs/writing-tools.md"), function(moonpool)
      assert.equal("12\n", (select(2, moonpool("call", "area", "width=3", "height=4"))))
      assert.equal("3 paid in cash\n", (select(2, moonpool("call", "pay", "how=cash", "amount=3", "from=[1,2]"))))
      local code, _, err = moonpool("call", "pay", "how=card", "amount=3", "from=[1,2]")
      assert.equal(1, code)
      has(err, "'code'")
    end)
  end)
end)

describe("the page about proxies", function()
  if not nginx.find() then return pending "nginx is not installed" end

  local block = example.read "docs/how-to/behind-a-proxy.md":match "```nginx\n(.-)```"

  it("has a server block that nginx accepts", function()
    local here = certificates.here()
    local dir = gateway.prepare { files = { ["cert.pem"] = here.certificate, ["key.pem"] = here.key } }
    local text = block:gsub("/etc/letsencrypt/live/mcp.example.com/fullchain.pem", dir .. "/cert.pem")
      :gsub("/etc/letsencrypt/live/mcp.example.com/privkey.pem", dir .. "/key.pem")
    local file = assert(io.open(dir .. "/nginx.conf", "wb"))
    file:write(("pid %s/pid;\nerror_log %s/errors;\nevents {}\nhttp {\n%s}\n"):format(dir, dir, text))
    file:close()
    local code, _, err = gateway.run_program(nginx.find(), { "-t", "-p", dir, "-c", dir .. "/nginx.conf", "-e", dir .. "/errors" })
    assert.equal(0, code, err)
    gateway.run_program("/bin/rm", { "-r", dir })
  end)

  it("has a configuration that HAProxy accepts", function()
    if not haproxy.find() then return pending "HAProxy is not installed" end
    local dir = gateway.prepare { files = { ["haproxy.conf"] = example.read "docs/how-to/behind-a-proxy.md":match "```haproxy\n(.-)```" } }
    local code, _, err = gateway.run_program(haproxy.find(), { "-c", "-f", dir .. "/haproxy.conf" })
    assert.equal(0, code, err)
    gateway.run_program("/bin/rm", { "-r", dir })
  end)

  it("has a location through which events pass at once", function()
    local g <close> = gateway.start { scripts = { ["tools/hold.lua"] = [[return tool { "Hold.", timeout = 60, function(_, call)
      call:progress(1, 2, "now")
      sleep(50)
    end }]] } }
    local front <close> = nginx.start(g, (block:match "(  location / .-\n  })":gsub("127%.0%.0%.1:7300", "127.0.0.1:GATEWAY")))
    local line = ("curl -sN --max-time 6 http://127.0.0.1:%d/mcp -H 'content-type: application/json' "):format(front.port)
      .. "-H 'accept: application/json, text/event-stream' -H 'mcp-protocol-version: 2026-07-28' -H 'mcp-method: tools/call' -H 'mcp-name: hold' "
      .. [[-d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold","arguments":{},"_meta":{"progressToken":1,]]
      .. [["io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}' | grep -m1 progressToken]]
    local code, out = gateway.run_program("/bin/sh", { "-c", line }, { seconds = 30 })
    assert.equal(0, code)
    has(out, '"message":"now"')
  end)
end)

describe("the first page", function()
  it("has a tool in full that does what it says", function()
    local block = example.read "README.md":match "```lua\n(return tool {.-)```"
    in_folder({ ["scripts/tools/convert.lua"] = block, ["moonpool.yaml"] = "" }, function(moonpool)
      assert.equal("100\n", (select(2, moonpool("call", "convert", "degrees=212"))))
      assert.same({ 1, "", "nothing is that hot\n" }, { moonpool("call", "convert", "degrees=1e7") })
    end)
  end)
end)
