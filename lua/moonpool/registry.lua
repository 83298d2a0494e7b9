-- What is served: tools and prompts by name, resources by URI and by template; and their lists as bytes, page by page, once
-- per era and per view. What is switched off is known here and served to nobody.
--   view     the names that somebody sees, and the pages told of them. Where scopes alone decide, all who may do the same
--            share one; where a `visible` does, nothing is kept

local access = require "moonpool.access"
local apps = require "moonpool.apps"
local content = require "moonpool.content"
local errors = require "moonpool.errors"
local json = require "moonpool.json"
local page = require "moonpool.page"
local principal = require "moonpool.principal"
local sorted = require "moonpool.sorted"
local template = require "moonpool.template"
local uris = require "moonpool.uris"

local registry = { tools = {}, prompts = {}, resources = {}, templates = {} }

registry.tasks_extension = "io.modelcontextprotocol/tasks"

-- How long a client may keep a list, in ms (Q-1): short, because a saved script is served at once.
local keep = 5000

local MOST_VIEWS = 64       -- that are kept of a list

-- Per list: its method, the member that holds it, the sorted names; whether scopes decide who sees what of it, and how; whether
-- a `visible` does; and the views that are kept, by what their principals may do.
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

-- The scopes that things of a list need, each set once.
local function needs_of(list, things)
  local seen = {}
  list.needs, list.has_visible = {}, false
  for _, name in ipairs(list.names) do
    local thing = things[name]
    local key = thing.scopes and table.concat(thing.scopes, " ")
    if key and not seen[key] then seen[key], list.needs[#list.needs + 1] = true, thing.scopes end
    list.has_visible = list.has_visible or thing.visible ~= nil
  end
  list.is_private = list.has_visible or list.needs[1] ~= nil
end

--- Makes the lists anew, after `off` of things has changed.
function registry.refresh()
  local any_visible, any_private = false, false
  for kind, list in pairs(lists) do
    local on = {}
    for name, thing in pairs(everything[kind]) do
      if not thing.off then on[name] = thing end
    end
    registry[kind] = on
    list.names, list.views, list.view_count = sorted(on), {}, 0
    needs_of(list, on)
    any_visible, any_private = any_visible or list.has_visible, any_private or list.is_private
  end
  access.set(any_visible, any_private)
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
  uri = uris.normal(uri)
  if everything.resources[uri] then return true end
  for _, thing in pairs(everything.templates) do
    if template.match(thing.template, uri) then return true end
  end
  return false
end

local function seen_names(kind, p)
  local names = {}
  for _, name in ipairs(lists[kind].names) do
    if access.sees(p, registry[kind][name]) then names[#names + 1] = name end
  end
  return names
end

-- What the principal sees of a list: { names, told = pages by era }.
local function view_of(kind, p)
  local list, key = lists[kind], ""
  if list.has_visible then return { names = seen_names(kind, p), told = {} } end
  for i, scopes in ipairs(list.needs) do key = key .. (principal.allows(p, scopes) and i .. "," or "") end
  local view = list.views[key]
  if view then return view end
  if list.view_count == MOST_VIEWS then list.views, list.view_count = {}, 0 end
  view = { names = list.is_private and seen_names(kind, p) or list.names, told = {} }
  list.views[key], list.view_count = view, list.view_count + 1
  return view
end

--- The names of a kind, sorted: "tools", "prompts", and the URIs of "resources" and "templates". With a principal, those it sees.
function registry.names(kind, p) return p and view_of(kind, p).names or lists[kind].names end

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

--- The resource that serves `uri`, a normal one, and the values in it; nil when none does.
function registry.resource(uri)
  local fixed = registry.resources[uri]
  if fixed then return fixed, {} end
  for i = 1, #by_fit do
    local values = template.match(by_fit[i].template, uri)
    if values then return by_fit[i], values end
  end
end

--- The same for a call's principal; nil, or nil and an error, where it may not have that. A URI that may be taken for another
--- resource's is refused to whom that one is.
function registry.open(call, uri)
  local found, values = registry.resource(uri)
  local plain = found and uris.plain(uri)
  if found and plain ~= uri then
    local other = registry.resource(plain)
    local open, forbidden = access.find(call, other)
    if other and not open then return nil, forbidden end
  end
  local open, forbidden = access.find(call, found)
  if open then return open, values end
  return nil, forbidden
end

local function copy(value)
  if type(value) ~= "table" then return value end
  local made = {}
  for k, v in pairs(value) do made[k] = copy(v) end
  return setmetatable(made, debug.getmetatable(value))
end

-- Where the page from `first` on ends, and whether there is more behind it.
local function end_of(names, first)
  local last = math.min(first + page.size - 1, #names)
  return last, last < #names
end

-- The page from `first` on. Where what is behind it is for its owner alone: as text, without the cursor.
local function tell(kind, names, first, era)
  local list = lists[kind]
  local last, has_more = end_of(names, first)
  local result = {
    [list.member] = json.array {}, ttlMs = keep, cacheScope = list.is_private and "private" or "public", resultType = "complete",
    _meta = content.meta,
  }
  for i = first, last do result[list.member][i - first + 1] = copy(registry[kind][names[i]].definition) end
  if has_more and not list.is_private then result.nextCursor = page.cursor(list.method, names[last]) end
  local down = era.methods[list.method].down
  if down then down(result) end
  local text = json.encode(result)
  return has_more and list.is_private and text or json.raw(text)
end

-- The same, made once where a client that reads page by page gets there.
local function told(kind, view, first, era)
  if first % page.size ~= 1 then return tell(kind, view.names, first, era) end
  local pages = view.told[era.date]
  if not pages then
    pages = {}
    view.told[era.date] = pages
  end
  if not pages[first] then pages[first] = tell(kind, view.names, first, era) end
  return pages[first]
end

--- One page of a list as an era tells it to a principal: bytes, or nil and an error. A cursor of a list that is not everybody's
--- is good for who got it.
function registry.page(kind, era, cursor, p)
  local list, first, view = lists[kind], 1, view_of(kind, p)
  local owner = list.is_private and principal.key(p) or nil
  if cursor ~= nil and cursor ~= json.null then
    local name = page.open(list.method, cursor, owner)
    if not name then return nil, errors.new("invalid_params", "unknown cursor") end
    first = page.behind(view.names, name)
  end
  local made = told(kind, view, first, era)
  if type(made) ~= "string" then return made end
  local next_cursor = page.cursor(list.method, view.names[(end_of(view.names, first))], owner)
  return json.raw(made:sub(1, -2) .. ',"nextCursor":' .. json.encode(next_cursor) .. "}")
end

registry.set {}

return registry
