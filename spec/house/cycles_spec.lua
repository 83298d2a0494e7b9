-- Which C files need each other: read from the symbols of the object files. A module may have small knots of files that
-- share a secret (the table of commands and its help), and no large ones: a file of a large knot cannot be read, tested
-- or replaced alone.
local lfs = require "lfs"
local plan = require "spec.helpers.plan"

local MAX_FILES = 4

local build = (os.getenv "MOONPOOL" or "build/debug/moonpool"):match "^(.*)/[^/]*$"
local objects = build .. "/CMakeFiles/core.dir/core"

-- The object files of the sources that there are: { "loop/loop.c", … }. A build folder may have older ones.
local function each_source(folder, list)
  for name in lfs.dir("core/" .. folder) do
    local path = folder == "" and name or folder .. "/" .. name
    if name:sub(1, 1) == "." then -- luacheck: ignore 542
    elseif lfs.attributes("core/" .. path, "mode") == "directory" then
      each_source(path, list)
    elseif name:find "%.c$" and lfs.attributes(objects .. "/" .. path .. ".o") then
      list[#list + 1] = path
    end
  end
  return list
end

-- symbol -> the file that defines it; file -> the symbols that it needs. Only names of moonpool: a name of libh2o that
-- the executable defines in its place is called by libh2o.
local function symbols(files)
  local defined, needed, paths = {}, {}, {}
  for i, file in ipairs(files) do
    needed[file] = {}
    paths[i] = ("'%s.o'"):format(file)
  end
  local nm <close> = assert(io.popen(("cd '%s' && nm -P -A %s"):format(objects, table.concat(paths, " "))))
  for line in nm:lines() do
    local file, name, kind = line:match "^([^:]+)%.o: (mp_[%w_]+) (%a)"
    if kind == "U" then
      table.insert(needed[file], name)
    elseif name and not name:find "^mp_stat_" and kind:find "[TDBRV]" then
      defined[name] = file
    end
  end
  return defined, needed
end

-- The files of one module that need each other, each list sorted.
local function knots(files)
  local defined, needed = symbols(files)
  local function module_of(file) return file:match "^[^/]+" end
  local arrows = {}
  for _, file in ipairs(files) do
    arrows[file] = {}
    for _, name in ipairs(needed[file]) do
      local other = defined[name]
      if other and other ~= file and module_of(other) == module_of(file) then arrows[file][other] = true end
    end
  end
  return plan.circles(files, arrows)
end

describe("the files of a module", function()
  it("need each other in knots of at most " .. MAX_FILES, function()
    local files = each_source("", {})
    assert.is_true(#files > 150, "no object files in " .. objects)
    local complaints, pairs_of_files = {}, 0
    for _, knot in ipairs(knots(files)) do
      if #knot > 1 then pairs_of_files = pairs_of_files + 1 end
      if #knot > MAX_FILES then complaints[#complaints + 1] = #knot .. " files need each other: " .. table.concat(knot, " ") end
    end
    assert.equal("", table.concat(complaints, "\n"))
    assert.is_true(pairs_of_files > 0, "nm has found no two files that need each other: it cannot have read them")
  end)
end)
