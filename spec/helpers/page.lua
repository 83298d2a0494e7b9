-- Plays a page of the documentation from top to bottom in a folder of its own: writes its files, runs its commands, and
-- compares their output with the output that the page shows. docs/README.md has the rules for writers under "How these
-- pages are checked".
--   local played <close> = page.play "docs/tutorial.md"
local certificates = require "spec.helpers.certificates"
local cjson = require "cjson"
local example = require "spec.helpers.example"
local free_port = require "spec.helpers.free_port"
local gateway = require "spec.helpers.gateway"
local shell = require "spec.helpers.shell"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local write = shell.write

local page = {}

--- The blocks of a page in order: { language, text, line, reason }. `reason` says why a block is not run.
function page.blocks(path)
  local list, block, reason, number = {}, nil, nil, 0
  for line in (example.read(path) .. "\n"):gmatch "([^\n]*)\n" do
    number = number + 1
    if block then
      if line:match "^%s*```%s*$" then
        block.text = table.concat(block, "\n") .. "\n"
        list[#list + 1], block = block, nil
      else
        block[#block + 1] = line
      end
    elseif line:find "^```" then
      block, reason = { language = line:match "^```(%w*)", line = number, reason = reason }, nil
    elseif line ~= "" then
      reason = line:match "^<!%-%- not run: (.-) %-%->$"
    end
  end
  assert(not block, path .. ": a block without an end")
  return list
end

--- The links of a page that lead nowhere. `path` may be absolute.
function page.broken_links(path)
  local file <close> = assert(io.open(path, "rb"))
  local folder, broken = path:match "^(.*/)" or "", {}
  for target in file:read "a":gsub("```.-```", ""):gmatch "%]%(([^%s)]+)%)" do
    local linked, anchor = target:match "^([^#]*)#?(.*)$"
    if not target:find "^https?:" then
      local full = linked == "" and path or folder .. linked
      local is_there = uv.fs_stat(full) ~= nil
      if is_there and anchor ~= "" then
        is_there = false
        local other <close> = assert(io.open(full, "rb"))
        for title in ("\n" .. other:read "a"):gmatch "\n#+ ([^\n]+)" do
          if title:lower():gsub("[^%w %-_]", ""):gsub(" ", "-") == anchor then is_there = true end
        end
      end
      if not is_there then broken[#broken + 1] = path .. ": " .. target end
    end
  end
  return broken
end

--- The files in a block that begins with a path, as { { path, text }, … }. The path of a file is its first line, in a
--- comment.
function page.files_of(block)
  local at, files = {}, {}
  local lua = block.language == "lua"
  for here, path in block.text:gmatch(lua and "()%-%- (%S+%.lua)[^\n]*\n" or "()# (%S+%.%w+)\n") do
    if here == 1 or lua and block.text:sub(here - 1, here - 1) == "\n" then at[#at + 1] = { here, path } end
  end
  if not at[1] or at[1][1] ~= 1 then return nil end
  for i, one in ipairs(at) do files[i] = { one[2], block.text:sub(one[1], at[i + 1] and at[i + 1][1] - 1 or -1) } end
  return files
end

local player = {}
player.__index = player

local function is_there(path)
  local file <close> = io.open(path, "rb")
  return file ~= nil
end

-- A pattern for text in which "…" stands for any text within a line, and "…" alone on a line for any lines. Times are
-- not compared.
local function pattern_of(text)
  text = text:gsub("[%d-]+T[%d:.]+Z", "…"):gsub("%f[%d]%d%d:%d%d:%d%d%.?%d*", "…"):gsub("%f[%d]%d+%.?%d* ms", "… ms"):gsub("ms=[%d.]+", "ms=…")
  return (text:gsub("%s+$", ""):gsub("[%^%$%(%)%%%.%[%]%*%+%-%?]", "%%%0"):gsub("\n…\n", "\n.-\n"):gsub("…", "[^\n]-"))
end

function player:ports(text) return (text:gsub("%f[%d]73[0-9][0-9]%f[%D]", self.by_port)) end

function player:shown(text)
  for port, free in pairs(self.by_port) do text = text:gsub("%f[%d]" .. free .. "%f[%D]", port) end
  return text
end

function player:fail(block, text) error(("%s:%d: %s"):format(self.path, block.line, text), 0) end

function player:shell(line)
  local head = ('PATH="%s:$PATH"; export PATH; cd "%s"; [ ! -f "%s" ] || . "%s"\nset -e\n'):format(self.bin, self.cwd, self.state, self.state)
  local tail = ('\nexport -p >"%s"\npwd >"%s.cwd"\n'):format(self.state, self.state)
  local code, out, err = gateway.run_program("/bin/sh", { "-c", head .. line .. tail }, { cwd = self.cwd, seconds = 60 })
  if code == 0 then self.cwd = example.read(self.state .. ".cwd"):match "[^\n]+" end
  return code, out, err
end

--- Puts a program of sh into the PATH of the page, in the place of one of this name.
function player:put_program(name, text)
  os.remove(self.bin .. "/" .. name) -- it may be a link to the binary
  write(self.bin .. "/" .. name, text)
  uv.fs_chmod(self.bin .. "/" .. name, 493)
end

function player:stop()
  for _, process in ipairs(self.beside) do getmetatable(process).__close(process) end
  self.beside = {}
end

-- Starts a command that ended in "&". A gateway gets ports of its own; its start is awaited, and it replaces a gateway
-- that the page started before.
function player:start(block, line)
  local is_gateway = line:find "moonpool run"
  if is_gateway then
    self:stop()
    self.log_from = is_there(self.log) and #example.read(self.log) + 1 or 1
    local config = line:gsub("%s*&%s*$", ""):match "moonpool run.-%s([^%s-]%S*%.yaml)" or "moonpool.yaml"
    config = config:find "^/" and config or self.cwd .. "/" .. config
    local text = example.read(config)
    if not text:find "%f[^\n\0]listen:" then text = text .. "\nlisten: 127.0.0.1:" .. self.by_port["7300"] end
    if not text:find "%f[^\n\0]admin:" then text = text .. "\nadmin: {listen: \"127.0.0.1:" .. self.by_port["7301"] .. '"}\n' end
    write(config, self:ports(text))
    self.gateway_folder = config:match "^(.*)/"
  end
  local command = ('sh -c \'PATH="%s:$PATH"; [ ! -f "%s" ] || . "%s"; cd "%s"; exec %s\''):format(self.bin, self.state, self.state, self.cwd,
    line:gsub("%s*&%s*$", ""):gsub("'", "'\\''"))
  self.beside[#self.beside + 1] = example.run_beside(command .. (" >>%s 2>&1"):format(self.log), self.dir)
  local process = self.beside[#self.beside]
  if is_gateway then
    local ok = pcall(wait.for_fact, "a gateway", 15, function() return process.code or self:logged():find "\n[^\n]* serving " end)
    if not ok or process.code then self:fail(block, "the gateway does not serve:\n" .. self:logged()) end
    self.serving = true
  end
end

-- The log of the gateway that serves.
function player:logged() return is_there(self.log) and "\n" .. example.read(self.log):sub(self.log_from or 1) or "\n" end

-- The files that a reload would read, with their state.
function player:scripts()
  local _, out = gateway.run_program("/bin/sh", { "-c",
    'find . \\( -name "*.lua" -o -name moonpool.yaml \\) ! -name "*_spec.lua" -print0 | sort -z | xargs -0 cat | cksum' }, { cwd = self.gateway_folder })
  return out
end

function player:reloads()
  local log = self:logged()
  return select(2, log:gsub("reloaded  ", "")) + select(2, log:gsub("change reverted  ", ""))
end

-- Runs `f`, and waits until a gateway that serves has read the scripts that `f` changed.
function player:changing(f)
  local before = self.serving and { self:scripts(), self:reloads() }
  f()
  if before and before[1] ~= self:scripts() then
    wait.for_fact("a reload", 15, function() return self:reloads() > before[2] end)
  end
end

local run = {}

-- Output in a generated page, which another spec compares as a whole.
function run.console() end

-- docs_spec has a spec of its own for it.
function run.nginx() end

function run.sh(self, block)
  local out, pending = {}, {}
  local function flush()
    if #pending == 0 then return end
    self:changing(function()
      local code, said, err = self:shell(self:ports(table.concat(pending, "\n")))
      out[#out + 1] = said .. err
      self.code = code
      if code ~= 0 and not block.may_fail then self:fail(block, ("exit code %d of\n%s\n%s%s"):format(code, table.concat(pending, "\n"), said, err)) end
    end)
    pending = {}
  end
  for line in block.text:gmatch "[^\n]+" do
    line = line:gsub("%s%s+# .*$", "")
    if line:find "[^&]&%s*$" then
      flush()
      self:start(block, self:ports(line))
    else
      pending[#pending + 1] = line
    end
  end
  flush()
  self.out = self:shown(table.concat(out))
end

function run.text(self, block)
  if not self.out or not (self.out .. "\n"):find(pattern_of(block.text)) then self:fail(block, "is not in the output before it:\n" .. tostring(self.out)) end
end

function run.log(self, block)
  for line in block.text:gmatch "[^\n]+" do
    local ok = pcall(wait.for_fact, "a line of the log", 10, function() return self:shown(self:logged()):find(pattern_of(line)) end)
    if not ok then self:fail(block, "is not in the log: " .. line .. "\n" .. self:shown(self:logged())) end
  end
end

function run.lua(self, block)
  local ok, why = load(block.text, "=block", "t")
  if not ok and not load("return " .. block.text, "=block", "t") then self:fail(block, why) end
end

function run.json(self, block)
  for text in block.text:gmatch "%b{}%s*" do
    local ok, why = pcall(cjson.decode, text)
    if not ok then self:fail(block, why) end
  end
  if not block.text:find "^%s*{" then self:fail(block, "is no JSON object") end
end

-- A configuration, or a part of one.
function run.yaml(self, block)
  local dir = gateway.prepare { files = { ["moonpool.yaml"] = block.text, ["scripts/tools/a.lua"] = "--- A.\nreturn function() return 1 end\n" } }
  local code, _, err = gateway.exec({ "check" }, { cwd = dir })
  gateway.run_program("/bin/rm", { "-r", dir })
  if code ~= 0 then self:fail(block, err) end
end

-- -- blocks that are not run -----------------------------------------------------------------------------------------

local apart = { lua = run.lua }

function apart.sh(self, block)
  local code, _, err = gateway.run_program("/bin/sh", { "-n", "-c", block.text })
  if code ~= 0 then self:fail(block, err) end
end

local TOOL <const> = "--- A.\nreturn function() return 1 end\n"

local certificate -- of this machine, and of nodes of the cluster `prod`

-- A configuration whose certificates, secrets, folders and variables are elsewhere: with some in their places it is
-- valid.
function apart.yaml(self, block)
  if block.text:find "\non:" then return end -- a workflow of GitHub
  certificate = certificate or certificates.make { days = 90, sans = "IP:127.0.0.1,DNS:localhost,DNS:moonpool-prod" }
  local here, env = certificate, { SECRETS = ("s"):rep(43) }
  local text = block.text:gsub("[%w/._-]*key%.pem", "KEY"):gsub("[%w/._-]*%.pem", "cert.pem"):gsub("KEY", "key.pem")
    :gsub("folder: /etc/[%w/._-]+", "folder: tls")
    :gsub("%${file:[^}]*}", "${SECRETS}"):gsub("/var/%l+/moonpool/", "")
  for name in text:gmatch "%${([%u_]+)" do env[name] = env[name] or "x" end
  local dir = gateway.prepare { files = {
    ["moonpool.yaml"] = text, ["cert.pem"] = here.certificate, ["key.pem"] = here.key,
    ["tls/mcp.example.com.pem"] = here.certificate, ["tls/mcp.example.com.key"] = here.key, ["rocks/share/lua/5.4/x.lua"] = "return {}\n",
    ["scripts/tools/a.lua"] = TOOL, ["scripts/auth/main.lua"] = 'return auth { function() return nil, "no" end }\n',
  } }
  local code, _, err = gateway.exec({ "check" }, { cwd = dir, env = env })
  gateway.run_program("/bin/rm", { "-r", dir })
  if code ~= 0 then self:fail(block, err) end
end

-- A client's file: `moonpool import` reads it, and the commands in it serve.
function apart.json(self, block)
  run.json(self, block)
  local client = cjson.decode(block.text)
  local servers = client.mcpServers or client.servers
  if not servers then return end
  local dir = gateway.prepare { files = { ["client.json"] = block.text, ["moonpool.yaml"] = "", ["scripts/tools/a.lua"] = TOOL } }
  local code, out, err = gateway.exec({ "import", "client.json", "--dry-run" }, { cwd = dir })
  if code ~= 0 then self:fail(block, out .. err) end
  for _, server in pairs(servers) do
    local words = { "list", "--", gateway.binary }
    for i, word in ipairs(server.args or {}) do words[i + 3] = word:gsub("^.*/moonpool%.yaml$", dir .. "/moonpool.yaml") end
    if server.command then
      code, out, err = gateway.exec(words, { cwd = dir })
      if code ~= 0 or not server.command:find "moonpool$" or not out:find "tool  a" then self:fail(block, out .. err) end
    end
  end
  gateway.run_program("/bin/rm", { "-r", dir })
end

function player:write_files(files)
  if files[1] and not is_there(self.cwd .. "/moonpool.yaml") and not self.serving then write(self.cwd .. "/moonpool.yaml", "") end
  self:changing(function()
    for _, file in ipairs(files) do
      local path = self.cwd .. "/" .. file[1]
      gateway.run_program("/bin/mkdir", { "-p", (path:gsub("/[^/]*$", "")) })
      write(path, self:ports(file[2]))
      if file[1] == "moonpool.yaml" and self.serving then
        write(path, self:ports(file[2]) .. ("\nlisten: 127.0.0.1:%s\nadmin: {listen: \"127.0.0.1:%s\"}\n"):format(self.by_port["7300"], self.by_port["7301"]))
      end
    end
  end)
  for _, file in ipairs(files) do self.has_scripts = self.has_scripts or file[1]:find "^scripts/" ~= nil end
end

function player:play(block)
  if block.reason then
    local f = apart[block.language]
    return f and f(self, block)
  end
  local files = page.files_of(block)
  if files then return self:write_files(files) end
  local f = run[block.language]
  if not f then self:fail(block, "a block of language '" .. block.language .. "' is neither run nor has '<!-- not run: REASON -->' above it") end
  f(self, block)
end

--- Plays a page. The result has `dir`, the folder of its files; closing it ends the page's processes and removes the
--- folder.
function page.play(path, options)
  options = options or {}
  local self = setmetatable({ path = path, dir = gateway.new_folder(), beside = {}, by_port = {} }, player)
  for _, port in ipairs { "7300", "7301", "7380", "7390", "7391" } do self.by_port[port] = tostring(free_port()) end
  self.bin, self.state, self.log = self.dir .. "/.page/bin", self.dir .. "/.page/state", self.dir .. "/.page/log"
  self.cwd = self.dir .. "/work"
  assert(gateway.run_program("/bin/sh", { "-c", ('mkdir -p %s %s && ln -s %s %s/moonpool'):format(self.bin, self.cwd, example.program(), self.bin) }) == 0)
  self:write_files(options.files or {})
  if options.before then options.before(self) end
  local blocks = page.blocks(path)
  for i, block in ipairs(blocks) do
    -- The block after a command that fails shows the command's output.
    local next_block = blocks[i + 1]
    block.may_fail = next_block ~= nil and next_block.language == "text"
    self:play(block)
  end
  return self
end

--- Ends with an error unless the files of the page load together.
function player:check()
  local code, out, err = self:shell "moonpool check"
  if code ~= 0 then error(self.path .. ": moonpool check: " .. out .. err, 0) end
  return out, err
end

function player:__close()
  self:stop()
  gateway.run_program("/bin/rm", { "-rf", self.dir })
end

return page
