-- The rules about folders that #include lines can prove: a module of core/ includes other modules by their public
-- headers only and only modules below it, and each foreign library is included by the modules named here.
local lfs = require "lfs"

local ladder = { base = 1, telemetry = 2, json = 3, nodes = 4, mcp = 5, loop = 6, os = 7, net = 8, redis = 9, postgres = 10, trace = 11,
  data = 12, vm = 13, rpc = 14, upstream = 15, lib = 16, config = 17, admin = 18, gateway = 19, cli = 20 }

-- Patterns for the headers of foreign libraries, and the modules that may include each.
local foreign = {
  { "^h2o[./]", "loop net" }, { "^h2o$", "loop net" }, { "^lua%.h$", "vm lib" }, { "^lualib%.h$", "vm lib" }, { "^lauxlib%.h$", "vm lib" },
  { "^yaml%.h$", "config gateway" }, { "^pcre2%.h$", "lib" }, { "^curl/", "net" }, { "^picohttpparser%.h$", "net" },
  { "^hiredis/", "redis" }, { "^libpq%-fe%.h$", "postgres" },
  { "^sqlite3%.h$", "data" }, { "^zlib%.h$", "trace lib admin gateway" }, { "^openssl/", "net redis data rpc lib" },
}

-- Further headers, and the only modules that may include them: the Lua states of the engine are for the libraries
-- alone, and a loop is libh2o's only for the two modules whose sockets and programs it turns.
local second = { ["vm/engine.h"] = "lib", ["loop/state.h"] = "os net", ["loop/queue.h"] = "os net", ["loop/h2o_abi.h"] = "net" }

-- Modules whose public header is several, by noun, beside MODULE.h.
local also_public = { ["rpc/call.h"] = true, ["rpc/session.h"] = true, ["rpc/observe.h"] = true }

local MOST_LINES = 700 -- a file above 400 lines gives the reason in its first comment (docs/dev/style.md)

-- The folders inside a module, lowest first. A file includes headers of its own folder and of lower ones.
local folders = {
  gateway = { certificates = 1, listeners = 2, start = 3, reload = 4, upgrade = 5 },
  net = { tls = 1, curl = 2, client = 3, server = 4, http2 = 5 },
  lib = { modules = 1, upstream = 2, shortcut = 3, work = 4 },
  upstream = { transport = 1, pending = 2, channel = 3, catalogue = 4 },
  rpc = { observe = 1, request = 2, session = 3, stream = 4, call = 5, auth = 6, transport = 7 },
}

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

-- Every C file of core/: { path, module (nil for core/main.c), text }.
local function sources(folder, module, list)
  list = list or {}
  for name in lfs.dir(folder) do
    local path = folder .. "/" .. name
    if name:sub(1, 1) == "." then -- luacheck: ignore 542
    elseif lfs.attributes(path, "mode") == "directory" then
      sources(path, module or name, list)
    elseif name:find "%.[ch]$" then
      list[#list + 1] = { path = path, module = module, text = read(path) }
    end
  end
  return list
end

local all_sources = sources "core"

-- Calls `check(source, included, is_quoted)` for each #include line of core/. Returns the complaints that `check`
-- returned, one per line.
local function complaints(check)
  local list = {}
  for _, source in ipairs(all_sources) do
    local n = 0
    for line in (source.text .. "\n"):gmatch "(.-)\n" do
      n = n + 1
      local open, included = line:match '^%s*#%s*include%s*(["<])([^">]+)[">]'
      local complaint = included and check(source, included, open == '"')
      if complaint then
        list[#list + 1] = ("%s:%d: includes %s: %s"):format(source.path, n, included, complaint)
      end
    end
  end
  return table.concat(list, "\n")
end

-- The module of a quoted include: json for "json/json.h", the module of `source` for "text.h".
local function module_of(source, included)
  return included:match "^([^/]+)/" or source.module
end

describe("the modules of core/", function()
  it("are those that `ladder` lists, each with one public header", function()
    for _, source in ipairs(all_sources) do
      assert(source.module == nil or ladder[source.module], source.path .. " is in no module that `ladder` lists")
      assert(source.module or source.path == "core/main.c", source.path .. " is in no module")
    end
    for module in pairs(ladder) do
      local header = ("core/%s/%s.h"):format(module, module)
      assert(lfs.attributes(header), "there is no " .. header)
    end
  end)

  it("include other modules by their public headers only", function()
    assert.equal("", complaints(function(source, included, is_quoted)
      local module = module_of(source, included)
      local may_include = " " .. (second[included] or "") .. " "
      local is_public_header = module and included == ("%s/%s.h"):format(module, module) or also_public[included]
        or may_include:find(" " .. tostring(source.module) .. " ", 1, true)
      if is_quoted and ladder[module] and module ~= source.module and not is_public_header then
        return ("the public header of that module is %s/%s.h"):format(module, module)
      elseif is_quoted and module and not ladder[module] then
        return "no such module"
      end
    end))
  end)

  it("include only modules below them", function()
    assert.equal("", complaints(function(source, included, is_quoted)
      local module = module_of(source, included)
      if is_quoted and source.module and ladder[module] and ladder[module] > ladder[source.module] then
        return ("%s is above %s"):format(module, source.module)
      end
    end))
  end)

  it("are in the order of their folders inside", function()
    local function level_of(module, path)
      local order = folders[module]
      local folder = order and path:match("^" .. module .. "/([^/]+)/")
      return folder and (order[folder] or error(path .. " is in no folder of " .. module .. "'s order")) or 0, folder
    end
    local highest = 100
    for _, source in ipairs(all_sources) do
      if folders[source.module] then level_of(source.module, (source.path:gsub("^core/", ""))) end
    end
    assert.equal("", complaints(function(source, included, is_quoted)
      if not is_quoted or not folders[source.module] then return end
      local own, inside = level_of(source.module, (source.path:gsub("^core/", "")))
      local other, folder = level_of(source.module, included)
      local is_door = source.path == ("core/%s/%s.h"):format(source.module, source.module) -- it gathers what other modules may know
      if is_door or not inside and source.path:find "%.c$" then own = highest end
      if other > own then return ("%s is above"):format(folder) end
    end))
  end)

  it("are included by main.c through cli/cli.h alone", function()
    assert.equal("", complaints(function(source, included, is_quoted)
      if is_quoted and source.path == "core/main.c" and included ~= "cli/cli.h" then
        return "core/main.c may include only cli/cli.h"
      end
    end))
  end)

  -- The door of a room: the headers of the room that other rooms include, and the headers of the room that these include.
  -- Counted are the lines of the files: what a reader of the room above has to know. The numbers only go down.
  local widest = { admin = 250, base = 610, cli = 150, config = 552, data = 543, gateway = 100, json = 200, lib = 259, loop = 250, mcp = 200,
    net = 478, nodes = 130, os = 450, postgres = 110, redis = 90, rpc = 774, telemetry = 650, trace = 150, upstream = 449, vm = 453 }

  it("have small doors", function()
    local by_path, lines, seen, waiting = {}, {}, {}, {}
    for _, source in ipairs(all_sources) do by_path[source.path] = source end
    -- The source in core/ that an #include names: from core/, from the folder of the file that has it, or from its room.
    local function find(source, included)
      return by_path["core/" .. included] or by_path[source.path:gsub("[^/]+$", "") .. included]
        or by_path[("core/%s/%s"):format(source.module, included)]
    end
    local function add(header)
      if seen[header] then return end
      seen[header], waiting[#waiting + 1] = true, header
      lines[header.module] = (lines[header.module] or 0) + select(2, header.text:gsub("\n", ""))
    end
    local included_by = {}
    for _, source in ipairs(all_sources) do
      included_by[source] = {}
      for line in source.text:gmatch "[^\n]+" do
        local included = line:match '^%s*#%s*include%s*"([^"]+)"'
        local header = included and find(source, included)
        if header then table.insert(included_by[source], header) end
      end
      for _, header in ipairs(included_by[source]) do
        if source.module and header.module ~= source.module then add(header) end
      end
    end
    while #waiting > 0 do
      local header = table.remove(waiting)
      for _, other in ipairs(included_by[header]) do
        if other.module == header.module then add(other) end
      end
    end
    local wide = {}
    for module in pairs(ladder) do
      local most = widest[module] or error(module .. " has no bound for its door")
      if (lines[module] or 0) > most then wide[#wide + 1] = ("the door of %s has %d lines, more than %d"):format(module, lines[module], most) end
    end
    assert.equal("", table.concat(wide, "\n"))
  end)

  it("keep each foreign library in its folders", function()
    assert.equal("", complaints(function(source, included, is_quoted)
      for _, rule in ipairs(foreign) do
        if not is_quoted and included:find(rule[1]) and not (" " .. rule[2] .. " "):find(" " .. tostring(source.module) .. " ", 1, true) then
          return ("only core/%s may"):format(rule[2])
        end
      end
    end))
  end)

  it("have files of at most " .. MOST_LINES .. " lines", function()
    local long = {}
    for _, source in ipairs(all_sources) do
      local _, lines = source.text:gsub("\n", "")
      if lines > MOST_LINES then
        long[#long + 1] = ("%s has %d lines, %d is the most"):format(source.path, lines, MOST_LINES)
      end
    end
    assert.equal("", table.concat(long, "\n"))
  end)
end)
