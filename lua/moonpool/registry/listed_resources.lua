-- Makes entries of resources/list from the rows that a template's function `list` returns.
--   row      from the script: { id = …, name =, title =, description =, mime =, size = }: values for the template's URI, or `uri` instead
--   entry    { uri =, name =, … }, as in resources/list

local host = require "moonpool.host"
local failure = require "moonpool.runtime.outcome"
local options = require "moonpool.things.options"
local run = require "moonpool.calls.run"
local template = require "moonpool.things.template"
local uris = require "moonpool.runtime.uris"

local listed_resources = {}

local words = { name = "string", title = "string", description = "string", mime = "string" }
local order = { __order = { "uri", "name", "title", "description", "mimeType" } }

-- The URI of a row. It must match the template; otherwise nil and why.
local function uri_of(thing, row)
  local uri, why = row.uri, nil
  if uri == nil then
    uri, why = template.expand(thing.template, row)
  elseif type(uri) ~= "string" then
    return nil, "'uri' is a " .. type(uri) .. ", not a string"
  end
  if not uri then return nil, why end
  if not template.match(thing.template, uris.normal(uri)) then return nil, "'" .. uri:sub(1, 128) .. "' is not a URI of " .. thing.uri end
  return uri
end

-- The entry of a row; or nil and why. The row is copied first, so that the values that are checked are the values that
-- are used.
local function entry_of(thing, given)
  if type(given) ~= "table" then return nil, "it is a " .. type(given) .. ", not a table" end
  local row = {}
  for name, value in next, given do row[name] = value end
  local uri, why = uri_of(thing, row)
  if not uri then return nil, why end
  for name, want in pairs(words) do
    if row[name] ~= nil and thing.template.has[name] == nil and (type(row[name]) ~= want or not utf8.len(row[name])) then
      return nil, "'" .. name .. "' is a " .. type(row[name]) .. ", not a UTF-8 string"
    end
  end
  if row.size ~= nil and not thing.template.has.size and (math.type(row.size) ~= "integer" or row.size < 0) then
    return nil, "'size' is not a number of bytes"
  end
  local function word(name) return (type(row[name]) == "string") and row[name] or nil end
  local is_size = math.type(row.size) == "integer" and row.size >= 0
  return setmetatable({
    uri = uri, name = word "name" or uri:match "([^/]+)/*$" or uri, title = word "title", description = word "description" or thing.description,
    mimeType = word "mime" or thing.mime, size = is_size and row.size or nil, icons = options.list(thing.definition.icons),
    annotations = thing.definition.annotations, _meta = thing.definition._meta,
  }, order)
end

local function warn(thing, why, hint)
  host.log.write("warn", "resource list incomplete", { name = thing.name, file = host.script.root .. "/" .. thing.path, why = why, hint = hint })
end

-- Adds the entries of one template to `list`. A failure is logged, and the template or row left out; the other entries
-- stay.
local function add(list, seen, thing, call, era)
  local ok, rows, err = run.handler(thing, "list of resources failed", call, era, nil, thing.list, call)
  if not ok then return err and warn(thing, err.message) end
  if rows == nil then return end
  if type(rows) ~= "table" then return warn(thing, "'list' returned a " .. type(rows),
      "it must return a list of rows, as in { { id = 1, name = \"Cars\" } }") end
  for i, row in ipairs(rows) do
    if i > host.limits.listed then
      host.call.count_listed()
      return warn(thing, "'list' returned more than " .. host.limits.listed .. " rows", "let the client narrow the list by an argument of the template")
    end
    local entry, why = entry_of(thing, row)
    if not entry then return warn(thing, "row " .. i .. " of 'list': " .. failure.words(why)) end
    local normal = uris.normal(entry.uri)
    if not seen[normal] then
      seen[normal] = true
      list[#list + 1] = entry
    end
  end
end

--- The entries of `things`, templates with `list`. URIs in `seen`, a set of normalized URIs, are left out.
function listed_resources.of(things, seen, call, era)
  local list = {}
  for _, thing in ipairs(things) do add(list, seen, thing, call, era) end
  return list
end

return listed_resources