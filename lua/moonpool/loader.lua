-- Reads every script into a registry. The folder says the kind, the path the name; all problems are told, not the first.

local host = require "moonpool.host"
local json = require "moonpool.json"
local library = require "moonpool.library"
local problem = require "moonpool.problem"
local registry = require "moonpool.registry"
local sandbox = require "moonpool.sandbox"
local suggest = require "moonpool.suggest"
local tool = require "moonpool.tool"

local loader = {}

local later = { resources = true, prompts = true, auth = true, policy = true, jobs = true }
local folders = { "tools", "lib", "resources", "prompts", "auth", "policy", "jobs" }

local problems, texts

local function shown(path) return host.root .. "/" .. path end

-- Lua cuts long chunk names to "...tail".
local function text_of(path)
  if texts[path] then return path, texts[path] end
  local tail = path:match "^%.%.%.(.+)$"
  if tail then
    for known, text in pairs(texts) do
      if known:sub(-#tail) == tail then return known, text end
    end
  end
  return path, nil
end

local function complain(path, line, what, hint)
  local known, text = text_of(path)
  local told = problem.text(known, line, what, hint, text)
  for _, before in ipairs(problems) do
    if before == told then return end
  end
  problems[#problems + 1] = told
end

-- A message handler: any error of a script at load, as { path, line, what, hint }.
local function located(value)
  if type(value) == "table" and value.located then return value end
  local hint, message
  if problem.is_trouble(value) then
    hint, message = value.hint, value.where .. value.what
  else
    local told, text = pcall(tostring, value)
    message = told and text or "an error value that cannot be told"
  end
  local path, line, what = problem.split(message)
  return { located = true, path = path, line = line, what = what, hint = hint }
end

local function complain_about(path, found)
  found = located(found)
  complain(found.path or shown(path), found.line, found.what, found.hint)
end

local function compile(path, text, env)
  local chunk, why, hint = host.load(text, "@" .. shown(path), env)
  if chunk then return chunk end
  if why:find "^C stack overflow" then     -- what Lua's parser says of it, and it names no line
    why, hint = shown(path) .. ":1: expressions or blocks are nested too deep", "take some of them apart, into locals"
  end
  local found = located(why)
  found.hint = hint
  complain_about(path, found)
end

local function add(tools, name, value, path, text)
  local function about(at, what, hint)
    complain(shown(path), type(at) == "string" and problem.find(text, at) or type(at) == "number" and at or 1, what, hint)
  end
  if not name:find "^[%w_.-]+$" or #name > 128 then
    return about(1, "'" .. name .. "' is not a name for a tool", "1 to 128 letters, digits, '_', '-' and '.'; the name comes from the file's path")
  end
  if type(value) ~= "function" and not tool.is_tool(value) then
    return about(name, "'" .. name .. "' is a " .. type(value) .. ", not a tool", "a tool is a function, or tool { … }")
  end
  if tools[name] then
    return about(1, "the name '" .. name .. "' is taken by " .. shown(tools[name].path), "rename one of them")
  end
  local before = #problems
  local ok, made = xpcall(tool.build, located, name, value, text, about)
  if not ok then return complain_about(path, made) end
  if made then
    made.path = path
    tools[name] = made
    if #problems > before then return end
    local fine, why = pcall(json.encode, made.definition)
    if not fine then about("input", "the tool cannot be listed: " .. tostring(why)) end
  end
end

local function read_tools(tools, path, text)
  local chunk = compile(path, text, sandbox.new(library.find))
  if not chunk then return end
  local ok, value = xpcall(chunk, located)
  if not ok then return complain_about(path, value) end
  local folder, file = path:match "^tools/(.-)([^/]+)%.lua$"
  folder = folder:gsub("/", "_")
  if type(value) ~= "table" or tool.is_tool(value) then
    if value == nil then
      return complain(shown(path), nil, "the file returns nothing", "end it with 'return function(…) … end' or 'return tool { … }'")
    end
    return add(tools, folder .. file, value, path, text)
  end
  if #value > 0 or next(value) == nil then
    return complain(shown(path), problem.find(text, "return"), "the file returns a table that is not a tool",
      "write 'return tool { … }', or a table of named tools")
  end
  local names = {}
  for name in pairs(value) do names[#names + 1] = tostring(name) end
  table.sort(names)
  for _, name in ipairs(names) do add(tools, folder .. name, value[name], path, text) end
end

--- Loads host.scripts into the registry. Gives true, or the list of problems as texts.
function loader.load()
  problems, texts = {}, {}
  local tools, waiting = {}, {}
  for _, script in ipairs(host.scripts) do texts[shown(script.path)] = script.text end
  for _, script in ipairs(host.scripts) do
    local path, text = script.path, script.text
    local folder = path:match "^([^/]+)/"
    if path:find "_spec%.lua$" then
      goto continue
    elseif folder == "lib" then
      library.add(path, function(env) return compile(path, text, env) end, located)
    elseif folder == "tools" then
      waiting[#waiting + 1] = script
    elseif later[folder] then
      host.log("warn", "script not served", { file = shown(path), why = folder .. " are not served by this version" })
    elseif folder then
      complain(shown(path), nil, "folder '" .. folder .. "' is not a kind of script",
        suggest.hint(folder, folders) or "folders are " .. table.concat(folders, ", "))
    else
      complain(shown(path), nil, "the file is in no folder", "a tool goes into " .. shown("tools/" .. path))
    end
    ::continue::
  end
  library.run_all(complain_about)
  for _, script in ipairs(waiting) do read_tools(tools, script.path, script.text) end
  local found = problems
  problems, texts = nil, nil
  if #found > 0 then return found end
  registry.set(tools)
  return true
end

return loader
