-- Links of upstreams: a client can read a resource that no list names, for an hour, if a result of the upstream has
-- given its principal the URI. A link never opens a resource that `only` and `hide` leave out, nor one that is listed
-- and withheld.

local catalogue = require "moonpool.upstream.catalogue"
local config = require "moonpool.upstream.config"
local host = require "moonpool.host"
local json = require "moonpool.json"
local served_names = require "moonpool.upstream.served_names"
local principal = require "moonpool.access.principal"
local scripts = require "moonpool.upstream.scripts"
local template = require "moonpool.things.template"
local make_things = require "moonpool.upstream.make_things"
local uris = require "moonpool.runtime.uris"
local wrapping = require "moonpool.upstream.wrapping"

local result_links = {}

local KEPT_S <const> = 3600
-- most new links in KEPT_S seconds
local MAX_OF_PRINCIPAL <const>, MAX_OF_UPSTREAM <const> = host.limits.upstreams.links, host.limits.upstreams.links_per_upstream
local MAX_URI_BYTES <const> = 1024
local MAX_OF_RESULT <const> = host.limits.upstreams.links_per_result

local function hashed(text) return host.base64.encode(host.digest.sum("sha256", text)) end

local function key_of(call, uri) return "callers:link:" .. hashed(principal.key(call.principal) .. "\0" .. uris.normal(uri)) end

local function may_add(record, call)
  return host.store.take("l:upstream links:" .. hashed(principal.key(call.principal)), KEPT_S / MAX_OF_PRINCIPAL, MAX_OF_PRINCIPAL)
    and host.store.take("l:upstream links of:" .. record.name, KEPT_S / MAX_OF_UPSTREAM, MAX_OF_UPSTREAM)
end

local given = setmetatable({}, { __mode = "k" })       -- call -> number of links of its result

function wrapping.on_link(record, call, uri, own)
  if #uri > MAX_URI_BYTES or not uri:find "^%a[%w+.-]*:" or wrapping.is_served(uri) then return end
  given[call] = (given[call] or 0) + 1
  if given[call] > MAX_OF_RESULT then return host.upstream.count_refused "links" end
  local key, value = key_of(call, uri), json.encode { record.name, own }
  if host.store.get(key) == value or may_add(record, call) then
    host.store.set(key, value, KEPT_S)
  else
    host.upstream.count_refused "links"
  end
end

-- True if the upstream lists this URI, or a template that matches it is not shown: a link does not show it then.
local function is_kept_back(record, own)
  for _, entry in ipairs(catalogue.of(record.name, catalogue.class).entries) do
    if entry.kind == "resources" and uris.normal(entry.key) == uris.normal(own) then return true end
    if entry.kind == "templates" then
      local compiled = template.compile(uris.normal(entry.key, true))
      if template.match(compiled and compiled.names[1] and compiled or template.any(entry.key), uris.normal(own)) then return true end
    end
  end
  return false
end

-- The resource with an upstream's URI that no list names; nil if `only` and `hide`, or its list, keep it from clients.
local function resource_of(record, own)
  if not served_names.is_shown(record, own) or is_kept_back(record, own) then return nil end
  local entry = { kind = "resources", key = own, facts = {}, definition = json.encode { uri = own, name = own } }
  local thing = make_things.of(record, entry, scripts.of(record.name))
  if thing then thing.is_linked = true end
  return thing
end

--- The resource that holds the page of a tool, by the upstream's URI. It need not be in the upstream's lists.
result_links.page = resource_of

--- The resource for a URI, normalized, that no list names, if a result gave it to the principal of `call`; else nil.
function result_links.open(call, uri)
  local value = #uri <= MAX_URI_BYTES and json.decode(host.store.get(key_of(call, uri)) or "null")
  local record = type(value) == "table" and config.by_name[value[1]]
  return record and resource_of(record, value[2]) or nil
end

return result_links