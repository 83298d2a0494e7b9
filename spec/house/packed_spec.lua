-- Modules of lua/moonpool are compressed in the binary if a start with plain scripts loads none of them. One that each
-- start loads would be unpacked in each Lua state, and the pages of all its neighbours be read: of these only the largest
-- are compressed, where they lie.
local BUILD <const> = (os.getenv "MOONPOOL" or "build/debug/moonpool"):match "^(.*)/[^/]*$"

-- The modules in the binary by their names: the path of each, and those that are compressed.
local function embedded()
  local file <close> = assert(io.open(BUILD .. "/mp_embedded.S"))
  local text = file:read "a"
  local paths, is_packed = {}, {}
  for number, flag in text:gmatch "%.Lmp_embedded%d+_end %- %.Lmp_embedded(%d+), (%d)" do
    local name = text:match("%.Lmp_embedded" .. number .. '_name0: %.asciz "([^"]*)"')
    paths[name] = text:match("%.Lmp_embedded" .. number .. '_name1: %.asciz "([^"]*)"')
    is_packed[name] = flag ~= "0"
  end
  return paths, is_packed
end

-- The largest that each start loads: moonpool_large of core/lib/embed.cmake.
local LARGE <const> = {}
for _, name in ipairs { "access.auth", "access.principal", "calls.client_request", "registry.loader", "registry.sandbox", "tasks.tasks",
  "things.job", "things.policy", "things.type_builder" } do LARGE["moonpool." .. name] = true end

-- Adds the module, and all that it loads as it is loaded itself, to `loaded`. Those that it names by `lazy`, or loads in a
-- function, are not among them.
local function load(name, paths, loaded)
  if loaded[name] or not paths[name] then return end
  loaded[name] = true
  for line in io.lines(paths[name]) do
    local needed = line:match '^local [%w_]+ = require "(moonpool[^"]*)"'
    if needed then load(needed, paths, loaded) end
  end
end

it("no module is compressed that each start loads", function()
  local paths, is_packed = embedded()
  local loaded, wrong, count = {}, {}, 0
  load("moonpool", paths, loaded)
  for name in pairs(loaded) do
    count = count + 1
    if is_packed[name] and not LARGE[name] then wrong[#wrong + 1] = name end
  end
  assert(count > 80, "only " .. count .. " modules were found that a start loads: this spec does not see how they are loaded")
  table.sort(wrong)
  assert(#wrong == 0, "each start loads these modules, which core/lib/embed.cmake compresses: load them with lazy where they are needed, "
    .. "or leave them out of its list: " .. table.concat(wrong, ", "))
end)
