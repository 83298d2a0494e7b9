-- Loads all scripts into the registry. The folder gives the kind of a thing, the path its name. All errors are
-- reported, not only the first.

local host = require "moonpool.host"
local lazy = require "moonpool.runtime.lazy"
local auth = lazy "moonpool.access.auth"
local deciding = lazy "moonpool.sign_in.deciding"
local characters = lazy "moonpool.runtime.characters"
local exec = lazy "moonpool.lib.exec"
local grants = require "moonpool.runtime.grants"
local job = lazy "moonpool.things.job"
local json = require "moonpool.json"
local library = require "moonpool.registry.require"
local policy = require "moonpool.things.policy"
local problem = require "moonpool.runtime.diagnostic"
local prompt = lazy "moonpool.things.prompt"
local registry = require "moonpool.registry.registry"
local resource = lazy "moonpool.things.resource"
local rocks = require "moonpool.registry.rocks"
local sandbox = require "moonpool.registry.sandbox"
local show = require "moonpool.runtime.show"
local sorted = require "moonpool.runtime.sorted_keys"
local suggest = require "moonpool.runtime.suggest"
local switches = require "moonpool.registry.switches"
local template = require "moonpool.things.template"
local tool = require "moonpool.things.tool"
local upstream = lazy "moonpool.upstream.scripts"
local upstream_config = require "moonpool.upstream.config"
local uris = require "moonpool.runtime.uris"

local loader = {}

local folders = { "tools", "lib", "resources", "prompts", "auth", "policy", "jobs", "upstreams", "sign_in" }

-- What other projects call these folders.
local other_words = {
  libs = "lib", utils = "lib", util = "lib", helpers = "lib", shared = "lib", common = "lib", modules = "lib", functions = "tools", commands = "tools",
  handlers = "tools", policies = "policy", middleware = "policy", guards = "policy", cron = "jobs", schedules = "jobs", tasks = "jobs", servers = "upstreams",
}

local problems, texts, broken      -- `broken`: the paths of the scripts that have the errors

local function shown(path) return host.script.root .. "/" .. path end

local function with_article(word) return (word:find "^[aeiou]" and "an " or "a ") .. word end

-- The name of a chunk. Lua shortens long names of chunks to "...end of the path".
local function text_of(path)
  if texts[path] then return path, texts[path] end
  local tail = path:match "^%.%.%.(.+)$"
  if tail then
    for known, text in pairs(texts) do
      if known:sub(-#tail) == tail then return known, text end
    end
  end
  local whole, text = rocks.source(path)
  return whole or path, text
end

local function complain(path, line, what, hint)
  local known, text = text_of(path)
  local described = problem.text(known, line, what, hint, text):gsub("[^\n\t]+", characters.shown)
  for _, before in ipairs(problems) do
    if before == described then return end
  end
  problems[#problems + 1] = described
end

-- As `complain`, for an error of the script at `path`.
local function refuse(path, line, what, hint)
  broken[path] = true
  complain(shown(path), line, what, hint)
end

-- The message handler for errors at load: any error value as { path, line, what, hint }.
local function located(value)
  if type(value) == "table" and rawget(value, "located") then return value end
  local hint, message
  if problem.is_trouble(value) then
    if value.file then return { located = true, path = shown(value.file), what = value.what, hint = value.hint } end
    hint, message = value.hint, value.where .. value.what
  else
    local ok, text = pcall(show, value)
    message = ok and text or "an error value that cannot be shown as text"
    hint = problem.hint(message)
  end
  local path, line, what = problem.split(message)
  return { located = true, path = path, line = line, what = what, hint = hint }
end

-- `return limit { … }` is a tail call, which leaves no line in the traceback: the line is found by the first word of
-- the error text.
local function line_of_tail_call(path, what)
  local text, name = texts[shown(path)], what:match "^%l[%l._]*"
  return text and name and text:find(name .. "%s*[({]") and problem.find(text, name) or nil
end

local function complain_about(path, found)
  broken[path] = true
  found = located(found)
  if not found.path then found.line = line_of_tail_call(path, found.what) end
  complain(found.path or shown(path), found.line, found.what, found.hint)
end

local function compile(path, text, env)
  local chunk, why, hint = host.script.load(text, "@" .. shown(path), env)
  if chunk then return chunk end
  if why:find "^C stack overflow" then     -- the parser's error for code that is nested too deep; it names no line
    why, hint = shown(path) .. ":1: expressions or blocks are nested too deep", "move parts of them into local variables"
  end
  local found = located(why)
  found.hint = hint or require "moonpool.registry.hint_syntax" (found.what, found.line, text)
  complain_about(path, found)
end

-- For each folder: the things that its files return, and the error text for any other value.
local kinds = {
  tools = { word = "tool", library = tool, form = "a tool is a function, or tool { … }", ending = "'return function(…) … end' or 'return tool { … }'" },
  resources = { word = "resource", library = resource, form = "a resource is resource { … }", ending = "'return resource { … }'" },
  auth = { word = "auth", library = auth, form = "auth is auth { … }", ending = "'return auth { … }'" },
  policy = { word = "policy", library = policy, form = "a policy is policy { … }, limit { … } or quota { … }", ending = "'return policy { … }'" },
  jobs = { word = "job", library = job, form = "a job is job { … } or listen { … }", ending = "'return job { … }' or 'return listen { … }'" },
  upstreams = { word = "upstream", library = upstream, form = "an upstream is upstream { … }", ending = "'return upstream { … }'" },
  sign_in = { word = "function", library = deciding, form = "sign_in/main.lua returns a function", ending = "'return function(claims) … end'",
    is_alone = true },         -- not several things in one file
  prompts = { word = "prompt", library = prompt, form = "a prompt is prompt { … }", ending = "'return prompt { … }'" },
}

local function add(kind, found, name, value, path, text)
  local function about(at, what, hint)
    refuse(path, type(at) == "string" and problem.find(text, at) or type(at) == "number" and at or 1, what, hint)
  end
  local word = kind.word
  if not name:find "^[%w_.-]+$" or #name > 128 then
    return about(1, "'" .. name .. "' is not a valid name for a " .. word, "1 to 128 letters, digits, '_', '-' and '.'; the name comes from the file's path")
  end
  if not kind.library.is(value) and not (word == "tool" and type(value) == "function") then
    return about(name, "'" .. name .. "' is a " .. type(value) .. ", not " .. with_article(word), kind.form)
  end
  if found[name] then
    return about(1, "the name '" .. name .. "' is taken by " .. shown(found[name].path), "rename one of them")
  end
  local before = #problems
  local ok, made = host.script.guarded(kind.library.build, located, name, value, text, about)
  if not ok then return complain_about(path, made) end
  if made then
    made.path, made.about = path, about
    found[name] = made
    if #problems > before then return end
    local fine, why = pcall(json.encode, made.definition)
    if not fine then about("input", "the " .. word .. " cannot be listed: " .. tostring(why)) end
  end
end

-- The modules of which a script may have made something.
local makers = {
  "things.tool", "things.resource", "things.prompt", "things.job", "access.auth", "things.policy", "upstream.scripts",
}

local function is_made(value)
  for _, name in ipairs(makers) do
    local maker = package.loaded["moonpool." .. name]
    if maker and maker.is(value) then return true end
  end
  return false
end

-- False if the several things of a file have the file's name as a prefix. The things of tools/note/tools.lua and
-- tools/note/init.lua have the folder's: note_add and so on.
local function is_unnamed(path, file) return file == "init" or file == path:match "^[%w_]+" end

-- Adds the thing or the named things that a file returned. The value may have metamethods, so it is only read with raw
-- access.
local function read(kind, found, path, text)
  local chunk = compile(path, text, sandbox.new(library.find, path, text))
  if not chunk then return end
  local ok, value = host.script.guarded(chunk, located)
  if not ok then return complain_about(path, value) end
  local folder, file = path:match "^[%w_]+/(.-)([^/]+)%.lua$"
  folder = folder:gsub("/", "_")
  if value == nil then return refuse(path, nil, "the file returns nothing", "end it with " .. kind.ending) end
  if type(value) ~= "table" or is_made(value) then
    return add(kind, found, folder .. file, value, path, text)
  end
  if rawlen(value) > 0 or next(value) == nil then
    return refuse(path, problem.find(text, "return"), "the file returns a table that is not " .. with_article(kind.word),
      kind.is_alone and "end it with " .. kind.ending or "write 'return " .. kind.word .. " { … }', or a table of named " .. kind.word .. "s")
  end
  local prefix = is_unnamed(path, file) and folder or folder .. file .. "_"
  for _, name in ipairs(sorted(value)) do add(kind, found, prefix .. name, rawget(value, name), path, text) end
end

-- Adds the things of a file within the time limit for loading: reading a key or value may run the file's code.
local function read_guarded(path, ...)
  local ok, value = host.script.guarded(read, located, ...)
  if not ok then complain_about(path, value) end
end

-- Sorts resources into those with a URI and those with a template.
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

-- Checks that each page (`ui`) which a tool names is a resource that is served.
local function check_pages(tools, fixed, templates)
  for _, name in ipairs(sorted(tools)) do
    local made, page = tools[name], tools[name].ui and uris.normal(tools[name].ui)
    local served = not page or fixed[page]
    for _, candidate in pairs(templates) do served = served or template.match(candidate.template, page) end
    if not served then made.about("ui", "no resource serves '" .. page .. "'", suggest.hint(page, fixed) or "'uri' of a file in resources/ says it") end
  end
end

-- Checks that each file of upstreams/ is about an upstream of the configuration. In specs of scripts, the configuration
-- may be another one.
local function check_upstreams(found)
  for _, name in ipairs(sorted(found)) do
    if not upstream_config.by_name[name] then
      found[name].about(1, "there is no upstream '" .. name .. "'", suggest.hint(name, upstream_config.by_name) or "`upstreams:` in the config names them")
    end
  end
end

local function place_of(line) return (host.config.name or "moonpool.yaml") .. (line and line > 0 and ":" .. line or "") end

-- Grants that match no script, and programs that do not exist, are only warnings: a script or a package may be
-- installed later. A misspelt name has the same effect.
local function check_grants()
  for _, grant in ipairs(host.config.grants) do
    local is_used, names = false, {}
    for _, script in ipairs(host.script.list) do
      is_used = is_used or grants.covers(grant.path, script.path)
      names[#names + 1] = script.path
    end
    if not is_used and grant.path ~= "" then
      local inner = grant.path:match("^" .. host.script.root:gsub("%W", "%%%0") .. "/(.+)$")
      host.log.write("warn", "unused grant: no script has this path", {
        at = place_of(grant.line), path = grant.path,
        hint = inner and "paths are relative to " .. host.script.root .. "/: write " .. inner or suggest.hint(grant.path, names)
          or "paths are relative to " .. host.script.root .. "/, as in tools/orders.lua",
      })
    end
    -- exec is loaded when it is first used: not at all if no program is granted
    for _, name in ipairs(grant.run and grant.run[1] and exec.missing(grant.run) or {}) do
      host.log.write("warn", "granted program does not exist", {
        at = place_of(grant.run_line), program = name,
        hint = name:find("/", 1, true) and "paths are relative to the configuration's folder" or "install it, or correct the name: it is looked up in PATH",
      })
    end
  end
end

-- The folders from which a start may leave out scripts with errors: each of these scripts serves alone. Scripts of
-- other folders (auth, policy) guard them, and are never left out. A library may be left out only where no script
-- guards, and a resource only where there are no upstreams, since it may replace a resource of one.
local is_alone = { tools = true, prompts = true, jobs = true, resources = not upstream_config.has_any }

-- The paths of the broken scripts, if the others may serve without them; else nil.
local function dispensable()
  local has_guards = false
  for _, script in ipairs(host.script.list) do
    local folder = script.path:match "^[^/]+"
    has_guards = has_guards or folder == "auth" or folder == "policy" or folder == "upstreams" or folder == "sign_in"
  end
  local paths = sorted(broken)
  for _, path in ipairs(paths) do
    local folder = path:match "^[^/]+"
    if not (is_alone[folder] or folder == "lib" and not has_guards) then return nil end
  end
  return paths
end

-- True for x.spec.lua, x.test.lua, and for x_test.lua and test_x.lua that describe something.
local function is_misnamed_spec(path, text)
  if path:find "%.spec%.lua$" or path:find "%.test%.lua$" then return true end
  return (path:find "_test%.lua$" or path:find "%f[^/%z]test_[^/]*$") and text:find "%f[%w_]describe%s*[%(\"']"
end

--- Loads host.script.list into the registry, then calls `load_upstreams` if there are upstreams. Returns true; or the
--- list of errors as texts and, if only scripts have errors without which the others may serve, the list of their
--- paths.
function loader.load(load_upstreams)
  collectgarbage() -- the modules' main functions, a fifth of the memory at this point: what the scripts make takes their place
  problems, texts, broken = {}, {}, {}
  local found, waiting = { tools = {}, resources = {}, prompts = {}, jobs = {}, auth = {}, policy = {}, upstreams = {}, sign_in = {} }, {}
  for _, script in ipairs(host.script.list) do texts[shown(script.path)] = script.text end
  for _, script in ipairs(host.script.list) do
    local path, text = script.path, script.text
    local folder = path:match "^([^/]+)/"
    if path:find "_spec%.lua$" then
      goto continue
    elseif is_misnamed_spec(path, text) then
      refuse(path, nil, "the name of a spec ends with _spec.lua", "rename it, as in " .. shown("tools/greet_spec.lua"))
    elseif folder == "lib" then
      library.add(path, text, function(env) return compile(path, text, env) end, located)
    elseif kinds[folder] then
      waiting[#waiting + 1] = script
    elseif folder then
      refuse(path, nil, "folder '" .. folder .. "' is not a kind of script",
        suggest.hint(other_words[folder] or folder, folders) or "folders are " .. table.concat(folders, ", "))
    else
      local stem = path:match "^(.-)%.lua$" or path
      local meant = suggest.nearest(other_words[stem] or stem, folders)
      refuse(path, nil, "the file is in no folder", meant and kinds[meant]
        and "the files of this kind go into " .. shown(meant) .. "/, as in " .. shown(meant) .. "/main.lua" or "a tool goes into " .. shown("tools/" .. path))
    end
    ::continue::
  end
  if host.script.is_first_load then check_grants() end
  library.run_all(complain_about)
  for _, script in ipairs(waiting) do
    local folder = script.path:match "^[^/]+"
    read_guarded(script.path, kinds[folder], found[folder], script.path, script.text)
    local is_late, seconds = host.script.is_late()
    if is_late then
      refuse(script.path, nil, ("loading the scripts took longer than %g s of processor time"):format(seconds),
        "a script does work where it loads, at its top level")
      break
    end
  end
  local fixed, templates = by_uri(found.resources)
  check_pages(found.tools, fixed, templates)
  check_upstreams(found.upstreams)
  local errors, paths = problems, dispensable()
  problems, texts, broken = nil, nil, nil
  if #errors > 0 then return errors, paths end
  policy.apply(found.policy, found, upstream_config.has_any)
  registry.set { tools = found.tools, prompts = found.prompts, resources = fixed, templates = templates }
  if next(found.jobs) then job.set(found.jobs) end
  if found.sign_in.main then deciding.set(found.sign_in.main) end
  local own = host.config.sign_in and require("moonpool.sign_in.tokens").entry()
  if own or next(found.auth) then auth.set(found.auth, own) end
  if upstream_config.has_any then
    upstream.set(found.upstreams)
    load_upstreams()
  end
  switches.load()
  return true
end

return loader
