-- Gateways that are upstreams of each other. Each request names the gateways that it has come through (the header
-- moonpool-hops; core/rpc refuses one that comes back), and a gateway that reads lists learns for each thing through
-- which gateways it has come: a thing that has come through the reader itself is left out.
--   hops   the instances of gateways, the first one first

local config = require "moonpool.upstream.config"
local host = require "moonpool.host"
local json = require "moonpool.json"

local hops = {}

local HEADER <const>, MEMBER <const> = "moonpool-hops", "dev.moonpool/hops"
local MAX_HOPS <const> = 8
local MAX_BYTES <const> = 512           -- of the header; a longer one is not from a gateway
local own = host.upstream.instance
local is_child = host.upstream.hops ~= own

-- The header of a call that a gateway has sent; nil for another client.
local function given(call) return config.has_any and call and (host.call.header(call, HEADER)) or nil end

--- Adds the header for a request that a call causes, if a gateway has sent the call.
function hops.add_header(list, call)
  local before = given(call)
  if before and #before <= MAX_BYTES and before:find "^[%x, ]+$" then list[#list + 1] = HEADER .. ": " .. before .. ", " .. host.upstream.hops end
end

--- True if the client of a call is a gateway, and could be an upstream of this one.
function hops.is_gateway(call) return config.has_any and (is_child or given(call) ~= nil) end

--- Writes into the definitions of a list the gateways that they have passed. `things`: key -> thing; `key`: the member
--- that is the key.
function hops.mark(list, things, key)
  for _, definition in ipairs(list) do
    local thing = things[definition[key]]
    local made = json.array {}
    for i, hop in ipairs(thing and thing.facts and thing.facts.hops or {}) do made[i] = hop end
    made[#made + 1] = own
    local meta = {}
    for name, value in pairs(type(definition._meta) == "table" and definition._meta or {}) do meta[name] = value end
    meta[MEMBER] = made
    definition._meta = meta
  end
end

--- Takes the hops out of a definition that an upstream has listed: a list, or nil if the upstream is no gateway; and
--- true if the thing is one of this gateway, or has passed too many.
function hops.take(definition)
  local meta = definition._meta
  local found = type(meta) == "table" and meta[MEMBER]
  if type(found) ~= "table" then return nil, false end
  meta[MEMBER] = nil
  if next(meta) == nil then definition._meta = nil end
  local list = {}
  for i, hop in ipairs(found) do
    if type(hop) ~= "string" or #hop ~= 32 or i >= MAX_HOPS or hop == own then return nil, true end
    list[i] = hop
  end
  return list[1] and list, false
end

return hops
