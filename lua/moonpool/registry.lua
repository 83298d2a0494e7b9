-- What is served: tools and prompts by name, resources by URI and by template; and their lists as bytes, page by page, once
-- per era. What is switched off is known here and served to nobody.

local apps = require "moonpool.apps"
local content = require "moonpool.content"
local errors = require "moonpool.errors"
local json = require "moonpool.json"
local page = require "moonpool.page"
local sorted = require "moonpool.sorted"
local template = require "moonpool.template"

local registry = { tools = {}, prompts = {}, resources = {}, templates = {} }

registry.tasks_extension = "io.modelcontextprotocol/tasks"

-- How long a client may keep a list, in ms (Q-1): short, because a saved script is served at once.
local keep = 5000

-- Per list: its method, the member that holds it, the sorted names, and the pages told to each era.
local lists = {
  tools = { method = "tools/list", member = "tools" },
  prompts = { method = "prompts/list", member = "prompts" },
  resources = { method = "resources/list", member = "resources" },
  templates = { method = "resources/templates/list", member = "resourceTemplates" },
}

local everything = {}       -- per list, what is on and what is off
local by_word = {}          -- "tool", "prompt", "resource" -> name -> the thing
local by_fit = {}           -- templates, the one that fixes most of a URI first
local offered = {}          -- capabilities: what is switched off counts too

local function any(things, member)
  for _, thing in pairs(things) do
    if thing[member] then return true end
  end
  return false
end

local function has_pages(things)
  for uri in pairs(things) do
    if apps.is_page(uri) then return true end
  end
  return false
end

--- Makes the lists anew, after `off` of things has changed.
function registry.refresh()
  for kind, list in pairs(lists) do
    local on = {}
    for name, thing in pairs(everything[kind]) do
      if not thing.off then on[name] = thing end
    end
    registry[kind] = on
    list.names, list.told = sorted(on), {}
  end
  by_fit = {}
  for i, uri in ipairs(lists.templates.names) do by_fit[i] = registry.templates[uri] end
  table.sort(by_fit, function(a, b)
    local left, right = a.template.literals, b.template.literals
    if left ~= right then return left > right end
    return a.uri < b.uri
  end)
end

--- Puts a whole new set in place: { tools, prompts, resources, templates }, by name or URI.
function registry.set(found)
  for kind in pairs(lists) do everything[kind] = found[kind] or {} end
  by_word = { tool = everything.tools, prompt = everything.prompts, resource = {} }
  for _, kind in ipairs { "resources", "templates" } do
    for _, thing in pairs(everything[kind]) do by_word.resource[thing.name] = thing end
  end
  offered = {
    tools = true, logging = true,
    prompts = next(everything.prompts) ~= nil,
    resources = next(by_word.resource) ~= nil,
    completions = any(everything.prompts, "complete") or any(everything.templates, "complete"),
    tasks = any(everything.tools, "task"),
    apps = has_pages(everything.resources) or has_pages(everything.templates),
  }
  registry.refresh()
end

--- What scripts call "tool", "prompt" or "resource": name -> thing, on or off; nil for other words.
function registry.all(word) return by_word[word] end

--- What is on and what is off of a kind, and its names, sorted.
function registry.everything(kind) return everything[kind], sorted(everything[kind]) end

--- Whether a resource has this URI, on or off.
function registry.serves(uri)
  if everything.resources[uri] then return true end
  for _, thing in pairs(everything.templates) do
    if template.match(thing.template, uri) then return true end
  end
  return false
end

--- The names of a kind, sorted: "tools", "prompts", and the URIs of "resources" and "templates".
function registry.names(kind) return lists[kind].names end

--- Whether a capability is declared: "prompts", "resources", "completions", "tasks".
function registry.offers(capability) return offered[capability] end

local details = {
  tools = { listChanged = true }, prompts = { listChanged = true }, resources = { subscribe = true, listChanged = true },
}

--- Our capabilities, as a table of the caller's own.
function registry.capabilities()
  local told, extensions = {}, {}
  for _, name in ipairs { "tools", "prompts", "resources", "completions", "logging" } do
    if offered[name] then told[name] = details[name] or {} end
  end
  if offered.apps then extensions[apps.extension] = {} end
  if offered.tasks then extensions[registry.tasks_extension] = {} end
  if next(extensions) then told.extensions = extensions end
  return told
end

--- The resource that serves `uri`, and the values in it; nil when none does.
function registry.resource(uri)
  local fixed = registry.resources[uri]
  if fixed then return fixed, {} end
  for i = 1, #by_fit do
    local values = template.match(by_fit[i].template, uri)
    if values then return by_fit[i], values end
  end
end

local function copy(value)
  if type(value) ~= "table" then return value end
  local made = {}
  for k, v in pairs(value) do made[k] = copy(v) end
  return setmetatable(made, debug.getmetatable(value))
end

-- The entries from `first` on, as bytes.
local function tell(kind, first, down)
  local list = lists[kind]
  local result = { [list.member] = json.array {}, ttlMs = keep, cacheScope = "public", resultType = "complete", _meta = content.meta }
  local last = math.min(first + page.size - 1, #list.names)
  for i = first, last do result[list.member][i - first + 1] = copy(registry[kind][list.names[i]].definition) end
  if last < #list.names then result.nextCursor = page.cursor(list.method, list.names[last]) end
  if down then down(result) end
  return json.raw(json.encode(result))
end

--- One page of a list as an era tells it: bytes, or nil and an error. Pages that a client reads in turn are made once.
function registry.page(kind, era, cursor)
  local list, first = lists[kind], 1
  if cursor ~= nil and cursor ~= json.null then
    local name = page.open(list.method, cursor)
    if not name then return nil, errors.new("invalid_params", "unknown cursor") end
    first = page.behind(list.names, name)
  end
  local down = era.methods[list.method].down
  if first % page.size ~= 1 then return tell(kind, first, down) end
  local pages = list.told[era.date]
  if not pages then
    pages = {}
    list.told[era.date] = pages
  end
  if not pages[first] then pages[first] = tell(kind, first, down) end
  return pages[first]
end

registry.set {}

return registry
