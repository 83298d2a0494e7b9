-- Reads every script into a registry. The folder says the kind, the path the name; all problems are told, not the first.

local host = require "moonpool.host"
local auth = require "moonpool.auth"
local grants = require "moonpool.grants"
local job = require "moonpool.lib.job"
local json = require "moonpool.json"
local library = require "moonpool.library"
local policy = require "moonpool.policy"
local problem = require "moonpool.problem"
local prompt = require "moonpool.prompt"
local registry = require "moonpool.registry"
local resource = require "moonpool.resource"
local sandbox = require "moonpool.sandbox"
local sorted = require "moonpool.sorted"
local suggest = require "moonpool.suggest"
local switches = require "moonpool.switches"
local template = require "moonpool.template"
local tool = require "moonpool.tool"
local uris = require "moonpool.uris"

local loader = {}

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
    hint = problem.hint(message)
  end
  local path, line, what = problem.split(message)
  return { located = true, path = path, line = line, what = what, hint = hint }
end

-- `return limit { … }` is a tail call, which leaves no line behind: the words of its problem begin with its name.
local function line_of_tail_call(path, what)
  local text, name = texts[shown(path)], what:match "^%l[%l._]*"
  return text and name and text:find(name .. "%s*[({]") and problem.find(text, name) or nil
end

local function complain_about(path, found)
  found = located(found)
  if not found.path then found.line = line_of_tail_call(path, found.what) end
  complain(found.path or shown(path), found.line, found.what, found.hint)
end

local function compile(path, text, env)
  local chunk, why, hint = host.load(text, "@" .. shown(path), env)
  if chunk then return chunk end
  if why:find "^C stack overflow" then     -- what Lua's parser says of it, and it names no line
    why, hint = shown(path) .. ":1: expressions or blocks are nested too deep", "take some of them apart, into locals"
  end
  local found = located(why)
  if found.what:find "^'}' expected" and not found.what:find "<eof>$" then hint = hint or "is a comma missing before it?" end
  found.hint = hint
  complain_about(path, found)
end

-- Per folder: what its files return, and the words for a value that is something else.
local kinds = {
  tools = { word = "tool", library = tool, form = "a tool is a function, or tool { … }", ending = "'return function(…) … end' or 'return tool { … }'" },
  resources = { word = "resource", library = resource, form = "a resource is resource { … }", ending = "'return resource { … }'" },
  auth = { word = "auth", library = auth, form = "auth is auth { … }", ending = "'return auth { … }'" },
  policy = { word = "policy", library = policy, form = "a policy is policy { … }, limit { … } or quota { … }", ending = "'return policy { … }'" },
  jobs = { word = "job", library = job, form = "a job is job { … }", ending = "'return job { … }'" },
  prompts = { word = "prompt", library = prompt, form = "a prompt is prompt { … }", ending = "'return prompt { … }'" },
}

local function add(kind, found, name, value, path, text)
  local function about(at, what, hint)
    complain(shown(path), type(at) == "string" and problem.find(text, at) or type(at) == "number" and at or 1, what, hint)
  end
  local word = kind.word
  if not name:find "^[%w_.-]+$" or #name > 128 then
    return about(1, "'" .. name .. "' is not a name for a " .. word, "1 to 128 letters, digits, '_', '-' and '.'; the name comes from the file's path")
  end
  if not kind.library.is(value) and not (word == "tool" and type(value) == "function") then
    return about(name, "'" .. name .. "' is a " .. type(value) .. ", not a " .. word, kind.form)
  end
  if found[name] then
    return about(1, "the name '" .. name .. "' is taken by " .. shown(found[name].path), "rename one of them")
  end
  local before = #problems
  local ok, made = host.guarded(kind.library.build, located, name, value, text, about)
  if not ok then return complain_about(path, made) end
  if made then
    made.path, made.about = path, about
    found[name] = made
    if #problems > before then return end
    local fine, why = pcall(json.encode, made.definition)
    if not fine then about("input", "the " .. word .. " cannot be listed: " .. tostring(why)) end
  end
end

local function is_made(value)
  return tool.is(value) or resource.is(value) or prompt.is(value) or job.is(value) or auth.is(value) or policy.is(value)
end

-- What one file adds: one thing, or several by name.
local function read(kind, found, path, text)
  local chunk = compile(path, text, sandbox.new(library.find, path))
  if not chunk then return end
  local ok, value = host.guarded(chunk, located)
  if not ok then return complain_about(path, value) end
  local folder, file = path:match "^%w+/(.-)([^/]+)%.lua$"
  folder = folder:gsub("/", "_")
  if value == nil then return complain(shown(path), nil, "the file returns nothing", "end it with " .. kind.ending) end
  if type(value) ~= "table" or is_made(value) then
    return add(kind, found, folder .. file, value, path, text)
  end
  if #value > 0 or next(value) == nil then
    return complain(shown(path), problem.find(text, "return"), "the file returns a table that is not a " .. kind.word,
      "write 'return " .. kind.word .. " { … }', or a table of named " .. kind.word .. "s")
  end
  for _, name in ipairs(sorted(value)) do add(kind, found, folder .. name, value[name], path, text) end
end

-- Resources by what serves them: a URI of their own, or a template.
local function by_uri(found)
  local fixed, templates = {}, {}
  for _, name in ipairs(sorted(found)) do
    local made = found[name]
    local into = made.template and templates or fixed
    if into[made.uri] then
      made.about("uri", "the URI '" .. made.uri .. "' is taken by " .. shown(into[made.uri].path), "change one of them")
    else
      into[made.uri] = made
    end
  end
  return fixed, templates
end

-- Pages that tools show are resources of ours.
local function check_pages(tools, fixed, templates)
  for _, name in ipairs(sorted(tools)) do
    local made, page = tools[name], tools[name].ui and uris.normal(tools[name].ui)
    local served = not page or fixed[page]
    for _, candidate in pairs(templates) do served = served or template.match(candidate.template, page) end
    if not served then made.about("ui", "no resource serves '" .. page .. "'", suggest.hint(page, fixed) or "'uri' of a file in resources/ says it") end
  end
end

-- A grant to nobody is nothing wrong: a script may come later. But a slip of the pen looks the same.
local function check_grants()
  for _, grant in ipairs(host.grants) do
    local is_used, names = false, {}
    for _, script in ipairs(host.scripts) do
      is_used = is_used or grants.covers(grant.path, script.path)
      names[#names + 1] = script.path
    end
    if not is_used and grant.path ~= "" then
      host.log("warn", "grant for no script", { path = grant.path, hint = suggest.hint(grant.path, names) or "no script is there" })
    end
  end
end

--- Loads host.scripts into the registry. Gives true, or the list of problems as texts.
function loader.load()
  problems, texts = {}, {}
  local found, waiting = { tools = {}, resources = {}, prompts = {}, jobs = {}, auth = {}, policy = {} }, {}
  for _, script in ipairs(host.scripts) do texts[shown(script.path)] = script.text end
  for _, script in ipairs(host.scripts) do
    local path, text = script.path, script.text
    local folder = path:match "^([^/]+)/"
    if path:find "_spec%.lua$" then
      goto continue
    elseif folder == "lib" then
      library.add(path, function(env) return compile(path, text, env) end, located)
    elseif kinds[folder] then
      waiting[#waiting + 1] = script
    elseif folder then
      complain(shown(path), nil, "folder '" .. folder .. "' is not a kind of script",
        suggest.hint(folder, folders) or "folders are " .. table.concat(folders, ", "))
    else
      complain(shown(path), nil, "the file is in no folder", "a tool goes into " .. shown("tools/" .. path))
    end
    ::continue::
  end
  check_grants()
  library.run_all(complain_about)
  for _, script in ipairs(waiting) do
    local folder = script.path:match "^[^/]+"
    read(kinds[folder], found[folder], script.path, script.text)
  end
  local fixed, templates = by_uri(found.resources)
  check_pages(found.tools, fixed, templates)
  local told = problems
  problems, texts = nil, nil
  if #told > 0 then return told end
  policy.apply(found.policy, found)
  registry.set { tools = found.tools, prompts = found.prompts, resources = fixed, templates = templates }
  job.set(found.jobs)
  auth.set(found.auth)
  switches.load()
  return true
end

return loader
