-- Prints boxes, floors and arrows back of folders: `./dev plan [FOLDER…]`. Without a folder, of all folders of core/
-- and lua/moonpool; with some, the arrows back, too. `pictures` writes the pictures of docs/dev instead.
local lfs = require "lfs"
local plan = dofile "spec/helpers/plan.lua"

if arg[1] == "pictures" then
  for _, picture in ipairs(dofile "spec/helpers/plan_picture.lua") do picture.write() end
  return
end

local folders = { table.unpack(arg) }
if not folders[1] then
  local function add(folder)
    folders[#folders + 1] = folder
    for _, inner in ipairs(plan.folders(folder)) do add(inner) end
  end
  add "core"
  add "lua/moonpool"
end
print(("%-28s %5s %6s %6s"):format("folder", "boxes", "floors", "back"))
for _, folder in ipairs(folders) do
  if lfs.attributes(folder, "mode") ~= "directory" then
    io.stderr:write(("dev: plan: there is no folder '%s'\n"):format(folder))
    os.exit(2)
  end
  local line, measured = plan.line(folder)
  print(line)
  for _, arrow in ipairs(arg[1] and measured.back or {}) do print(("  %s -> %s: %s"):format(table.unpack(arrow))) end
end
