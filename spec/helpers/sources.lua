-- The source files of the project, for specs that read them.
local lfs = require "lfs"

local sources = {}

--- Calls visit(path, text) for each file below `folder` whose name fits one of the patterns.
function sources.each(folder, visit, ...)
  for name in lfs.dir(folder) do
    local path = folder .. "/" .. name
    if name:sub(1, 1) == "." then -- luacheck: ignore 542
    elseif lfs.attributes(path, "mode") == "directory" then
      sources.each(path, visit, ...)
    else
      local fits = false
      for _, pattern in ipairs { ... } do fits = fits or name:find(pattern) ~= nil end
      local file <close> = fits and io.open(path, "rb") or nil
      if file then visit(path, file:read "a") end
    end
  end
end

return sources
