-- The grants of moonpool.yaml: hosts, files, programs, variables and stores that all scripts, a folder of scripts or
-- one script may use.

local host = require "moonpool.host"
local outside_hooks = require "moonpool.runtime.outside_hooks"

local grants = {}

local kinds = { "net", "read", "write", "run", "env", "store" }

local deeds = { net = "connect to", read = "read", write = "write", run = "run", env = "see or set the environment variable",
  store = "use the reserved store keys" }

--- True if a grant to the scripts `where` applies to the script at `path`.
function grants.covers(where, path)
  return where == "" or where == path or where:sub(-1) == "/" and path:sub(1, #where) == where
end

--- True if a pattern matches a text. A pattern is a whole name, or a prefix followed by '*'.
function grants.fits(pattern, text)
  if pattern:sub(-1) == "*" then return text:sub(1, #pattern - 1) == pattern:sub(1, -2) end
  return pattern == text
end

--- True if one of the patterns matches a text.
function grants.matches(patterns, text)
  for _, pattern in ipairs(patterns) do
    if grants.fits(pattern, text) then return true end
  end
  return false
end

--- The grants of the script at `path` (below the scripts' folder): { net = {…}, read = {…}, … }, with texts as the
--- operator wrote them.
function grants.of(path)
  local all = {}
  for _, kind in ipairs(kinds) do all[kind] = {} end
  for _, grant in ipairs(host.config.grants) do
    if grants.covers(grant.path, path) then
      for _, kind in ipairs(kinds) do table.move(grant[kind] or {}, 1, #(grant[kind] or {}), #all[kind] + 1, all[kind]) end
    end
  end
  return all
end

--- The patterns of one kind of grant that are granted to folders or single files, and not to all scripts.
function grants.reserved(kind)
  local list = {}
  for _, grant in ipairs(host.config.grants) do
    if grant.path ~= "" then table.move(grant[kind] or {}, 1, #(grant[kind] or {}), #list + 1, list) end
  end
  return list
end

local function quoted(text) return '"' .. text:gsub('[\\"]', "\\%0"):gsub("%c", "?") .. '"' end

--- The line of moonpool.yaml that would grant this to the script at `path`.
function grants.yaml(kind, wanted, path) return ("scripts: {grants: {%s: {%s: [%s]}}}"):format(quoted(path), kind, quoted(wanted)) end

--- The error text for `wanted`, which no grant allows, with the line of YAML that would grant it.
function grants.refusal(kind, wanted, path)
  if outside_hooks.denied then outside_hooks.denied(kind, path) end
  return ("%s may not %s %s: no grant allows it (moonpool.yaml: %s)"):format(path, deeds[kind], (wanted:gsub("%c", "?")),
    grants.yaml(kind, wanted, path))
end

return grants
