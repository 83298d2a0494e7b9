-- The gauges that need not be 0 in a gateway at rest: they count memory, stored entries, open databases, calls that have
-- ended and what is kept for the next requests to other servers, which outlive the clients.
--   local AT_REST <const> = at_rest { upstream_channels = true }
local usual <const> = {
  lua_bytes = true, page_bytes = true, vms = true, connections = true, store_entries = true, store_bytes = true,
  store_room_entries = true, store_room_bytes = true, databases = true, sqlite_heap_bytes = true, ended_calls = true,
  auth_files_bytes = true, redis_connections = true, postgres_connections = true, http_handles = true, http_lanes = true,
  cluster_nodes = true, cluster_hashes = true,
}

--- A set of the names of these gauges, and of those of `more`.
return function(more)
  local set = {}
  for _, names in ipairs { usual, more } do
    for name in pairs(names) do set[name] = true end
  end
  return set
end
