-- The servers of spec/servers/list.lua: what each lists, and what a call of it returns, directly and behind the gateway.
--   servers.describe("npm", it, function(why) pending(why) end)     -- specs for all servers of npm
--   lua5.4 -e 'require("spec.helpers.servers").print "npm"'     -- for ./dev: the packages, as npm and pip read them
local servers = {}

local list = require "spec.servers.list"

--- Prints NAME@VERSION of all packages for npm, or NAME NAME==VERSION NEEDS of each for pip, a line each.
function servers.print(registry)
  for _, row in ipairs(list[registry]) do
    print(registry == "npm" and row[1] .. "@" .. row[2] or ("%s %s==%s %s"):format(row[1], row[1], row[2], row.needs or ""))
  end
end

local function command_of(registry, row)
  local folder = require("luv").cwd() .. "/build/servers/" .. registry .. "/"
  if registry == "pypi" then return { folder .. row[1] .. "/bin/" .. row[1] } end
  return { require("spec.helpers.node").path, folder .. "node_modules/" .. row[1] .. "/" .. (row.program or "dist/index.js") }
end

local function with_folder(value, dir)
  if type(value) == "string" then return (value:gsub("DIR", dir)) end
  if type(value) ~= "table" then return value end
  local made = {}
  for key, one in pairs(value) do made[key] = with_folder(one, dir) end
  return made
end

-- What means the same has one form: a list that a server does not have is empty, a tool that is not said to run as a
-- task does not, and SDK 1.x puts a prefix before the message of an error, which some servers have
-- in their own message, too.
local function in_one_form(found)
  for _, name in ipairs { "tools", "prompts", "resources", "resourceTemplates" } do found.lists[name] = found.lists[name] or {} end
  for _, tool in pairs(found.lists.tools) do
    if tool.execution and tool.execution.taskSupport == "forbidden" then tool.execution = nil end
  end
  while found.error and found.error:find "^MCP error %-%d+: " do found.error = found.error:match "^MCP error %-%d+: (.*)" end
  return found
end

-- What spec/clients/inventory.mjs finds with the official SDK of that version; `row` is of one folder.
local function inventory(version, row, env, ...)
  local cjson, gateway, node = require "cjson", require "spec.helpers.gateway", require "spec.helpers.node"
  local given = next(row.call[2]) and cjson.encode(row.call[2]) or "{}"
  local words = { node.folder .. "/inventory.mjs", tostring(version), row.call[1], given, ... }
  local code, out, err = gateway.run_program(node.path, words, { env = env, seconds = 60, cwd = require("luv").cwd() })
  assert(code == 0, out .. err)
  return in_one_form(cjson.decode(out)), err
end

-- What a stranger sees of a difference: where it is, and both values.
local function difference(directly, through, at)
  if type(directly) ~= "table" or type(through) ~= "table" then
    return directly ~= through and ("%s: %s directly, %s through the gateway"):format(at, tostring(directly), tostring(through)) or nil
  end
  for key, value in pairs(directly) do
    local found = difference(value, through[key], at .. "." .. key)
    if found then return found end
  end
  for key in pairs(through) do
    if directly[key] == nil then return ("%s.%s: through the gateway alone"):format(at, key) end
  end
end

local function compare(registry, row)
  local gateway, shell = require "spec.helpers.gateway", require "spec.helpers.shell"
  local dir = gateway.new_folder()
  local _ <close> = setmetatable({}, { __close = function() os.execute("rm -rf '" .. dir .. "'") end })
  shell.run(("git init -q '%s'"):format(dir))
  local made = with_folder(row, dir)
  made.env = made.env or {}
  made.env.HOME = dir
  local command = command_of(registry, row)
  table.move(made.args or {}, 1, #(made.args or {}), #command + 1, command)
  local env = { PATH = os.getenv "PATH", STDERR = dir .. ".stderr" }
  for name, value in pairs(made.env) do env[name] = value end
  local directly = inventory(1, made, env, "stdio", table.unpack(command))
  assert(directly.result or directly.error)
  local entry = { command = command, process = { env = made.env }, prefix = "", list_wait = "20s" }
  for version in ipairs { "1.x", "2.x" } do
    local g <close> = gateway.start { config = { upstreams = { one = entry } } }
    if version == 2 then -- its newest revision has no `execution`
      for _, tool in pairs(directly.lists.tools) do tool.execution = nil end
    end
    local through, complaints = inventory(version, made, { PATH = os.getenv "PATH" }, "http", g.url)
    local why = difference(directly, through, row[1])
    assert(not why, why and ("for the official client %d.x: %s\n%s%s"):format(version, why, complaints, g:log()))
  end
  return directly
end

--- Specs for each server of `registry`: "npm" or "pypi".
function servers.describe(registry, it, pending)
  local uv = require "luv"
  for _, row in ipairs(list[registry]) do
    it(row[1] .. " " .. row[2] .. " lists and answers behind the gateway as it does directly", function()
      local command = command_of(registry, row)
      if not uv.fs_stat(command[#command]) then return pending(command[#command] .. " is not there: ./dev test servers installs it") end
      assert(next(compare(registry, row).lists.tools), "it has no tools")
    end)
  end
end

return servers
