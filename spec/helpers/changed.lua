-- Which specs a change concerns, for `./dev test --changed`:
--   lua5.4 spec/helpers/changed.lua [COMMIT]     prints their files to stdout, and to stderr why each one
-- The change is what differs from the commit at which this branch has left main, or from COMMIT, with what is not
-- committed. Concerned are
--   spec files that have changed, and those that load a changed helper, at one remove or several;
--   those whose path has the noun of a changed file, behind that of its folder in a module: of core/gateway/upgrade/older.c "older" and "upgrade_older",
--     or, if no path has the latter, "upgrade";
--   those that mention a changed file by its path or name, or a name or text of a changed line: a word with an underscore, or what stands in quotes.
--     What more than MANY files mention selects none of them;
--   always spec/house, and the specs of the documentation and of the configuration's reference.
local uv = require "luv"

local changed = {}

local MANY <const> = 25
local SHORTEST <const> = 6 -- bytes of a name or text that is looked for

local always <const> = { "^spec/house/", "^spec/gateway/cli/docs_spec", "^spec/gateway/cli/config[%w_]*_spec" }

-- -- what is looked for ---------------------------------------------------------------------------------------------------

-- Adds the names and texts of a line to `found`.
local function add_names(line, found)
  for word in line:gmatch "[%w_]+" do
    if #word >= SHORTEST and word:find "%a_%a" then found[word] = true end
  end
  for text in line:gmatch '"([^"]+)"' do
    -- placeholders of a format and escaped characters do not occur in the text as it is printed
    for part in text:gsub("%%[%d%.%*]*[a-zA-Z]+", "\0"):gsub("\\.", "\0"):gmatch "[^%z]+" do
      part = part:match "^%s*(.-)%s*$"
      if #part >= SHORTEST and part:find "%a%a%a" then found[part] = true end
    end
  end
end

--- The names and texts that the changed lines of a diff have, as a set; `diff` is that of git.
function changed.names(diff)
  local found = {}
  for line in diff:gmatch "[^\n]+" do
    local text = line:match "^[-+]([^-+].*)$"
    if text then add_names(text, found) end
  end
  return found
end

-- The noun of a file: its name without its endings.
local function noun_of(path) return (path:match "[^/]+$":gsub("%..*$", ""):gsub("_spec$", "")) end

-- The nouns of a file that has changed: the name of a file in a folder of a module does not repeat that of the folder.
local function nouns_of(path)
  local noun, folder = noun_of(path), path:match "^core/[^/]+/([^/]+)/"
  if noun == "init" then return { path:match "([^/]+)/[^/]+$" } end
  return { noun, folder and folder .. "_" .. noun }
end

-- Specs whose path has the noun, or else the noun without its last word, and so on.
local function by_noun(noun, specs)
  local found = {}
  while noun and #noun > 2 and #found == 0 do
    for _, spec in ipairs(specs) do
      local words = "_" .. noun_of(spec) .. "_"
      if words:find("_" .. noun .. "_", 1, true) or spec:find("/" .. noun .. "/", 1, true) then found[#found + 1] = spec end
    end
    noun = noun:match "^(.+)_[^_]+$"
  end
  return #found <= MANY and found or {}
end

-- -- the choice -------------------------------------------------------------------------------------------------------------

-- The name by which Lua loads a file.
local function module_of(path) return (path:gsub("%.lua$", ""):gsub("^lua/", ""):gsub("/init$", ""):gsub("/", ".")) end

-- Helpers that have changed, or load one that has: their names as modules.
local function changed_helpers(paths, helpers, text_of)
  local found, is_more = {}, true
  for _, path in ipairs(paths) do
    if path:find "^spec/.*%.lua$" and not path:find "_spec%.lua$" then found[module_of(path)] = true end
  end
  while is_more do
    is_more = false
    for _, helper in ipairs(helpers) do
      local name = module_of(helper)
      for other in pairs(found) do
        if not found[name] and text_of(helper):find('"' .. other .. '"', 1, true) then
          found[name], is_more = true, true
          break
        end
      end
    end
  end
  return found
end

--- The specs that a change concerns: a map from their path to the reason. `paths`: the changed files. `names`: a set of
--- what their changed lines have. `specs`, `helpers`: all files of these kinds. `text_of(path)`: the text of a file.
function changed.choose(paths, names, specs, helpers, text_of)
  local chosen = {}
  local function choose(spec, why) chosen[spec] = chosen[spec] or why end
  local is_spec = {}
  for _, spec in ipairs(specs) do
    is_spec[spec] = true
    for _, pattern in ipairs(always) do
      if spec:find(pattern) then choose(spec, "always") end
    end
  end
  -- texts that are looked for, and how many files may have them
  local wanted = {}
  for name in pairs(names) do wanted[name] = MANY end
  for _, path in ipairs(paths) do
    if is_spec[path] then
      choose(path, "it has changed")
    elseif not path:find "^spec/helpers/" then
      for _, noun in ipairs(nouns_of(path)) do
        for _, spec in ipairs(by_noun(noun, specs)) do choose(spec, "the noun of " .. path) end
      end
      wanted[path] = math.huge
      if not path:find "/init%.lua$" and not path:find "README%.md$" then wanted[path:match "[^/]+$"] = MANY end
      if path:find "^lua/" then wanted['"' .. module_of(path) .. '"'] = math.huge end
    end
  end
  for helper in pairs(changed_helpers(paths, helpers, text_of)) do wanted['"' .. helper .. '"'] = math.huge end
  for text, most in pairs(wanted) do
    local having = {}
    for _, spec in ipairs(specs) do
      if text_of(spec):find(text, 1, true) then having[#having + 1] = spec end
    end
    for _, spec in ipairs(#having <= most and having or {}) do choose(spec, "it mentions " .. text) end
  end
  return chosen
end

-- -- this checkout ------------------------------------------------------------------------------------------------------------

local function lines_of(command)
  local pipe, list = assert(io.popen(command)), {}
  for line in pipe:lines() do list[#list + 1] = line end
  assert(pipe:close(), command .. " failed")
  return list
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function main(commit)
  if commit and not os.execute(("git rev-parse --verify --quiet '%s^{commit}' >/dev/null"):format(commit)) then
    io.stderr:write(("dev: test --changed: there is no commit '%s' here\n"):format(commit))
    os.exit(2)
  end
  commit = commit or lines_of("git merge-base HEAD main 2>/dev/null || git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD")[1]
  local paths = lines_of(("git diff --name-only --no-renames '%s' -- && git ls-files --others --exclude-standard"):format(commit))
  local diff = lines_of(("git diff --unified=0 '%s' -- core lua cmake packaging dev spec/upstreams spec/clients"):format(commit))
  local names = changed.names(table.concat(diff, "\n"))
  for _, path in ipairs(lines_of "git ls-files --others --exclude-standard -- core lua") do
    for line in read(path):gmatch "[^\n]+" do add_names(line, names) end
  end
  local texts = {}
  local function text_of(path)
    texts[path] = texts[path] or read(path)
    return texts[path]
  end
  local specs = lines_of "find spec -name node_modules -prune -o -name '*_spec.lua' -print | sort"
  local helpers = lines_of "find spec -name node_modules -prune -o -name '*.lua' ! -name '*_spec.lua' -print | sort"
  local chosen = changed.choose(paths, names, specs, helpers, text_of)
  local count = 0
  for _, spec in ipairs(#paths > 0 and specs or {}) do
    if chosen[spec] then
      count = count + 1
      print(spec)
      if chosen[spec] ~= "always" then io.stderr:write(("  %s: %s\n"):format(spec, chosen[spec])) end
    end
  end
  io.stderr:write(("dev: %d changed files since %s concern %d of %d spec files\n"):format(#paths, commit:sub(1, 12), count, #specs))
end

if uv.fs_realpath((arg or {})[0] or "") == uv.fs_realpath "spec/helpers/changed.lua" then main(arg[1]) end

return changed
