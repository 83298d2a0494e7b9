-- resource { … }: checks its options, compiles its URI or template, and makes its entry in the list.

local apps = require "moonpool.protocol.apps"
local content = require "moonpool.things.tool_result"
local frozen = require "moonpool.runtime.frozen"
local options = require "moonpool.things.options"
local suggest = require "moonpool.runtime.suggest"
local template = require "moonpool.things.template"
local uris = require "moonpool.runtime.uris"

local resource = {}

local MAX_FIXED_BYTES = 65536        -- limit of a fixed text that C stores with its result and that is encoded in advance

local written = { name = "moonpool.things.resource", what = "a resource" }

--- The function `resource` of scripts. It checks nothing: the path and name of the file are not known here.
function resource.new(spec) return frozen.new(written, {}, { spec = spec }) end

function resource.is(value) return frozen.is(value, written) end

local kind = {
  word = "resource", handler = "function or string", form = "as in resource { \"What it is.\", uri = \"orders://{id}\", function(vars) … end }",
  own = {
    uri = "string", mime = "string", ttl = "number", public = "boolean", complete = "table", size = "integer", ui = "table",
    audience = "table", priority = "number", modified = "string", list = "function",
  },
  order = {
    "uri", "mime", "ttl", "public", "complete", "title", "timeout", "requires", "scopes", "visible", "enabled", "icons", "meta", "ui",
    "size", "audience", "priority", "modified", "list",
  },
}

local orders = {
  uri = { __order = { "uri", "name", "title", "description", "mimeType" } },
  uriTemplate = { __order = { "uriTemplate", "name", "title", "description", "mimeType" } },
}

-- The compiled template, if the URI is one.
local function read_uri(spec, complain)
  local uri = spec.uri
  if type(uri) ~= "string" then
    if uri == nil then complain("resource", "the resource has no 'uri'", kind.form) end
    return nil
  end
  if not uri:find "^%a[%w+.-]*:" or uri:find "[%c ]" or not utf8.len(uri) then
    complain("uri", "'" .. uri .. "' is not a URI", "it begins with its scheme, as in uri = \"orders://{id}\"")
    return nil
  end
  local made, why, hint = template.compile(uris.normal(uri, true))
  if not made then complain("uri", "the URI template is not valid: " .. why, hint) end
  return made
end

local function check(spec, made, complain)
  if type(spec.ttl) == "number" and not (spec.ttl >= 0 and spec.ttl <= 366 * 86400) then
    complain("ttl", "'ttl' must be at least 0 and at most a year", "as in ttl = 30 * seconds")
  end
  if type(spec.priority) == "number" and not (spec.priority >= 0 and spec.priority <= 1) then complain("priority", "'priority' must be from 0 to 1") end
  if math.type(spec.size) == "integer" and spec.size < 0 then complain("size", "'size' must be at least 0") end
  for _, who in ipairs(type(spec.audience) == "table" and spec.audience or {}) do
    if who ~= "user" and who ~= "assistant" then complain("audience", "'audience' may contain only \"user\" and \"assistant\"") end
  end
  for name, source in pairs(type(spec.complete) == "table" and spec.complete or {}) do
    if made and not made.has[name] then
      complain("complete", "the URI has no value '" .. tostring(name) .. "' to complete", suggest.hint(name, made.names))
    elseif type(source) ~= "table" and type(source) ~= "function" then
      complain("complete", "'" .. tostring(name) .. "' needs a list or a function to complete it, got a " .. type(source))
    end
  end
  if spec.public and (spec.scopes or spec.visible) then
    complain("public", "a resource with 'scopes' or 'visible' cannot be 'public'", "leave out 'public', or 'scopes' and 'visible'")
  end
  if made and not made.names[1] and spec.list ~= nil then
    complain("list", "only a template, whose URI has values, can have 'list'", "as in uri = \"notes://{id}\"; this resource is in the list by itself")
  end
  if made and made.names[1] and spec.size then complain("size", "a template has no 'size'") end
  if made and apps.is_page(made.text) then
    if spec.mime and spec.mime ~= apps.mime then complain("mime", "a ui:// resource is '" .. apps.mime .. "'", "leave 'mime' out") end
  elseif made and spec.ui then
    complain("ui", "only a page can have 'ui'", "their URI begins with ui://")
  end
end

--- Prepares the resource that a file returned. Calls complain(word or line, what, hint) for each error.
function resource.build(name, value, _, complain)
  local spec = frozen.content(value).spec
  if not options.check(kind, spec, complain) then return nil end
  local made = read_uri(spec, complain)
  check(spec, made, complain)
  if not made then return nil end
  local mime = spec.mime or apps.is_page(made.text) and apps.mime or nil
  local ui = apps.of_page(spec.ui, complain)
  local key = made.names[1] and "uriTemplate" or "uri"
  local annotations = content.annotations { audience = options.list(spec.audience), priority = spec.priority, modified = spec.modified }
  local handler = spec[2]
  return options.guard({
    name = name,
    description = spec[1],
    uri = made.text,
    template = made.names[1] and made or nil,
    mime = mime,
    meta = ui and { ui = ui },
    ttl = type(spec.ttl) == "number" and math.floor(spec.ttl * 1000 + 0.5) or 0,
    scope = spec.public and "public" or "private",
    complete = spec.complete,
    list = spec.list,
    is_fixed = type(handler) == "string" and #handler <= MAX_FIXED_BYTES,
    handler = type(handler) == "string" and function() return handler end or handler,
    definition = setmetatable({
      [key] = spec.uri, name = name, title = spec.title, description = spec[1], mimeType = mime, size = spec.size, annotations = annotations,
      icons = options.list(spec.icons), _meta = options.meta(spec, ui),
    }, orders[key]),
  }, spec)
end

return resource
