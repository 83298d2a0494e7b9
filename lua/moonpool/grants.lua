-- What each script may touch, as moonpool.yaml grants it: to all, to a folder of scripts, to one file.

local host = require "moonpool.host"

local grants = {}

local kinds = { "net", "read", "write", "run", "env" }

local deeds = { net = "connect to", read = "read", write = "write", run = "run", env = "see the environment variable" }

--- Whether a grant to `where` is one to the file at `path`.
function grants.covers(where, path)
  return where == "" or where == path or where:sub(-1) == "/" and path:sub(1, #where) == where
end

--- What the file at `path` (below the scripts' folder) is granted: { net = {…}, read = {…}, … }, as the operator wrote it.
function grants.of(path)
  local all = {}
  for _, kind in ipairs(kinds) do all[kind] = {} end
  for _, grant in ipairs(host.grants) do
    if grants.covers(grant.path, path) then
      for _, kind in ipairs(kinds) do table.move(grant[kind] or {}, 1, #(grant[kind] or {}), #all[kind] + 1, all[kind]) end
    end
  end
  return all
end

local function quoted(text) return '"' .. text:gsub('[\\"]', "\\%0"):gsub("%c", "?") .. '"' end

--- Why `wanted` was refused, and the line of YAML that would allow it.
function grants.refusal(kind, wanted, path)
  return ("%s may not %s %s: no grant allows it (moonpool.yaml: scripts: {grants: {%s: {%s: [%s]}}})"):format(path, deeds[kind],
    wanted:gsub("%c", "?"), quoted(path), kind, quoted(wanted))
end

return grants
