-- Paths in scripts and grants. A relative path begins at the folder of moonpool.yaml. These functions look only at the
-- text of a path; C makes sure that no symbolic link leads out of a granted folder.

local host = require "moonpool.host"

local paths = {}

--- The absolute path without ".", ".." and doubled slashes; nil, why if the text is not a valid path.
function paths.absolute(path)
  if type(path) ~= "string" or path == "" then return nil, "the path must be a string that is not empty" end
  if path:find("\0", 1, true) then return nil, "the path must not contain NUL bytes" end
  if #path > 4000 then return nil, "the path is too long" end
  if path:sub(1, 1) ~= "/" then path = host.config.folder .. "/" .. path end
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

--- The absolute paths that the texts of grants name, outermost first.
function paths.roots(texts)
  local roots = {}
  for _, text in ipairs(texts) do roots[#roots + 1] = paths.absolute(text) end
  table.sort(roots, function(a, b) return #a < #b end)
  return roots
end

--- The root that contains the absolute `path`, and the part of `path` after it; nil if no root contains it.
function paths.within(roots, path)
  for _, root in ipairs(roots) do
    local prefix = root == "/" and root or root .. "/"
    if path == root then return root, "" end
    if path:sub(1, #prefix) == prefix then return root, path:sub(#prefix + 1) end
  end
end

--- A path as an operator would write it in moonpool.yaml.
function paths.shown(path)
  local prefix = host.config.folder .. "/"
  return path:sub(1, #prefix) == prefix and path:sub(#prefix + 1) or path
end

return paths
