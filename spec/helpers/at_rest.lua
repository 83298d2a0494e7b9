-- The gauges that need not be 0 in a gateway at rest: they count memory, stored entries, open databases, calls that have
-- ended and what is kept for the next requests to other servers, which outlive the clients.
--   local AT_REST <const> = at_rest { upstream_channels = true }
--   local left = at_rest.left(g:status().gauges, AT_REST)
local at_rest = {}

local usual <const> = {
  lua_bytes = true, page_bytes = true, vms = true, connections = true, store_entries = true, store_bytes = true,
  store_room_entries = true, store_room_bytes = true, databases = true, sqlite_heap_bytes = true, ended_calls = true,
  auth_files_bytes = true, redis_connections = true, postgres_connections = true, http_handles = true, http_lanes = true,
  cluster_nodes = true, sign_ins_ended = true, cluster_hashes = true, hop_connections = true, inner_connections = true,
}

--- A set of the names of these gauges, and of those of `more`.
function at_rest.__call(_, more)
  local set = {}
  for _, names in ipairs { usual, more } do
    for name in pairs(names) do set[name] = true end
  end
  return set
end

--- The first of the gauges of a status that is not 0 and is not in the set, as text; nil if there is none.
function at_rest.left(gauges, set)
  for family, value in pairs(gauges) do
    for label, n in pairs(not set[family] and (type(value) == "table" and value or { [""] = value }) or {}) do
      if n ~= 0 then return ("%s%s is %s"):format(family, label ~= "" and "{" .. label .. "}" or "", n) end
    end
  end
end

return setmetatable(at_rest, at_rest)
