-- Paths as scripts and grants write them: relative ones begin at the folder of moonpool.yaml. What a path names is decided by
-- its words alone; that no link leads elsewhere is C's part.

local host = require "moonpool.host"

local paths = {}

--- The absolute path without ".", ".." and doubled slashes; nil, why for what is no path.
function paths.absolute(path)
  if type(path) ~= "string" or path == "" then return nil, "a path is needed" end
  if path:find("\0", 1, true) then return nil, "a path holds no NUL" end
  if #path > 4000 then return nil, "the path is too long" end
  if path:sub(1, 1) ~= "/" then path = host.folder .. "/" .. path end
  local names = {}
  for name in path:gmatch "[^/]+" do
    if name == ".." then
      names[#names] = nil
    elseif name ~= "." then
      names[#names + 1] = name
    end
  end
  return "/" .. table.concat(names, "/")
end

--- The roots that these texts grant, the outermost first.
function paths.roots(texts)
  local roots = {}
  for _, text in ipairs(texts) do roots[#roots + 1] = paths.absolute(text) end
  table.sort(roots, function(a, b) return #a < #b end)
  return roots
end

--- The root that `path` (absolute) lies in, and what follows it; nil when none does.
function paths.within(roots, path)
  for _, root in ipairs(roots) do
    local prefix = root == "/" and root or root .. "/"
    if path == root then return root, "" end
    if path:sub(1, #prefix) == prefix then return root, path:sub(#prefix + 1) end
  end
end

--- As an operator would write it.
function paths.shown(path)
  local prefix = host.folder .. "/"
  return path:sub(1, #prefix) == prefix and path:sub(#prefix + 1) or path
end

return paths
