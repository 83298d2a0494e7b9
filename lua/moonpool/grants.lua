-- What each script may touch, as moonpool.yaml grants it.

local host = require "moonpool.host"

local grants = {}

local kinds = { "net", "read", "write", "run", "env" }

local function covers(where, path)
  return where == "" or where == path or where:sub(-1) == "/" and path:sub(1, #where) == where
end

--- What the file at `path` (below the scripts' folder) is granted: { net = {…}, read = {…}, … }.
function grants.of(path)
  local all = {}
  for _, kind in ipairs(kinds) do all[kind] = {} end
  for _, grant in ipairs(host.grants or {}) do
    if covers(grant.path, path) then
      for _, kind in ipairs(kinds) do table.move(grant[kind] or {}, 1, #(grant[kind] or {}), #all[kind] + 1, all[kind]) end
    end
  end
  return all
end

--- Why `wanted` was refused, and the line of YAML that would allow it.
function grants.refusal(kind, wanted, path)
  return ("%s may not touch %s: no grant allows it (moonpool.yaml: scripts: {grants: {\"%s\": {%s: [\"%s\"]}}})"):format(path, wanted, path, kind, wanted)
end

return grants
