-- Pages of MCP Apps at upstreams. A server need not list the `ui://` page that a tool of it names: clients that have
-- the tool can still read the page, by the URI that the tool's definition has for them.

local access = require "moonpool.access.access"
local apps = require "moonpool.protocol.apps"
local auth = require "moonpool.upstream.auth"
local catalogue = require "moonpool.upstream.catalogue"
local config = require "moonpool.upstream.config"
local result_links = require "moonpool.upstream.result_links"
local registry = require "moonpool.registry.registry"
local uris = require "moonpool.runtime.uris"
local wrapping = require "moonpool.upstream.wrapping"

local app_pages = {}

local function put(found, key, thing)
  local own = thing and thing.facts.page
  if not own then return end
  local uri = uris.normal(wrapping.outward(config.by_name[thing.upstream], own))
  local list = found[uri] or {}
  local last = list[#list]
  if last and last.tool == key and last.own == own then return end               -- a variant of the tool names the same page
  found[uri], list[#list + 1] = list, { tool = key, upstream = thing.upstream, own = own }
end

--- The pages that tools name: URI for clients, normalized -> list of { tool, upstream, own }, where `own` is the
--- upstream's URI. `order`: the keys of the tools, in the order in which clients see them.
function app_pages.gather(tools, order)
  local found = {}
  for _, key in ipairs(order) do
    local tool = tools[key]
    put(found, key, tool)
    for _, variant in pairs(tool.variants or {}) do put(found, key, variant) end
  end
  return found
end

--- The resource for the page at a URI, normalized, that a tool names which the client of `call` may use; else nil.
--- Where tools of two upstreams name one URI, it is the page of the first in the configuration.
function app_pages.open(call, found, uri)
  for _, one in ipairs(found[uri] or {}) do
    local tool = access.find(call, registry.thing("tools", one.tool))
    if tool and tool.upstream == one.upstream and tool.facts.page == one.own then return result_links.page(config.by_name[one.upstream], one.own) end
  end
end

local function declares(name, class)
  local can = catalogue.of(name, class).facts.capabilities
  local extensions = type(can) == "table" and can.extensions
  return type(extensions) == "table" and extensions[apps.extension] ~= nil
end

--- True if clients are told that this server has pages: an upstream says so of itself, or a tool of one names a page.
--- `classes`: name of an upstream -> set of the classes whose lists were read.
function app_pages.are_offered(found, classes)
  if next(found) then return true end
  for _, record in ipairs(config.list) do
    if declares(record.name, catalogue.class) then return true end
    for class in pairs(not auth.is_personal(record) and classes[record.name] or {}) do
      if declares(record.name, class) then return true end
    end
  end
  return false
end

return app_pages