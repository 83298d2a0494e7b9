-- new_file(path, make): calls make(), which writes a configuration, and makes the folder of scripts beside a file that
-- is new: a gateway needs the folder, also an empty one. Returns the results of make().

local wire = require "moonpool.wire"

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

return function(path, make)
  local is_new = not exists(path)
  local made, report = make()
  local folder = (path:match "^(.*/)" or "") .. "scripts"
  if made and is_new and not exists(folder) and wire.mkdir(folder) then print("made " .. folder .. "/, for scripts of your own") end
  return made, report
end
