-- The order of the folders of lua/moonpool, checked by reading their `require` lines: a module requires its own folder
-- and folders before it in `order`. This excludes circles between folders; circles inside a folder are checked
-- separately.
local lfs = require "lfs"
local plan = require "spec.helpers.plan"

local ROOT = "lua/moonpool"

local order = {
  "runtime",    -- used by all others: diagnostics, outcomes, the bus, caches, error codes
  "lib",        -- libraries that scripts call: http, fs, store, time …
  "protocol",   -- revisions, cursors, capabilities, header names: facts of MCP, without any script
  "schema",     -- JSON Schema
  "access",     -- principals, scopes, authentication
  "sign_in",    -- the authorization server of clients, where the configuration has one
  "things",     -- the things that scripts declare: tools, resources, prompts, policies, jobs, limits
  "calls",      -- running a handler, and asking its client
  "upstream",   -- other MCP servers that this gateway calls
  "registry",   -- loading scripts, and the declared things
  "federation", -- the things of upstreams among those of scripts: reading lists, classes of clients, lists of each caller
  "cluster",    -- what the nodes of a cluster tell each other
  "tasks",      -- MCP tasks
  "methods",    -- requests: dispatch, one file per group of methods, the audit
  "replay",     -- recorded calls: the recorder, and what plays them
  "specs",      -- what spec files of operators can use
  "workbench",  -- commands that are clients
}

-- Modules in C, and folders that any folder may require and that require no other folder.
local c_modules = {
  host = true, json = true, keys = true, events = true, regex = true, wire = true, revisions = true, error_codes = true, config_file = true,
}
local only = { lib = { runtime = true }, workbench = { runtime = true, protocol = true } }

-- The folders inside a folder, lowest first.
local inside = {
  workbench = {
    format = 1,   -- what commands print, write and read: texts, files, durations
    client = 2,   -- who speaks with a gateway or an upstream: sessions, children, credentials, recorded calls
    commands = 3, -- one file for each command; C runs them by their names
  },
}

local MOST_IN_A_CIRCLE = 4

local rank = {}
for i, folder in ipairs(order) do rank[folder] = i end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

-- Every module: name (without "moonpool.") -> { path, folder (nil for init.lua), requires = { { line, name } … } }.
local function modules()
  local found = {}
  local function walk(folder, prefix)
    for name in lfs.dir(folder) do
      local path = folder .. "/" .. name
      if name:sub(1, 1) == "." then -- luacheck: ignore 542
      elseif lfs.attributes(path, "mode") == "directory" then
        walk(path, prefix .. name .. ".")
      elseif name:find "%.lua$" then
        local module = (prefix .. name:sub(1, -5)):gsub("%.?init$", "")
        local requires, n = {}, 0
        for line in (read(path) .. "\n"):gmatch "(.-)\n" do
          n = n + 1
          -- a name that is composed at run time ends with its folder: "moonpool.protocol.era." .. date
          local text = line:gsub('lazy "', 'require "') -- lua/moonpool/runtime/lazy.lua
          for required in text:gmatch 'require%s*%(?%s*"moonpool%.([%w_.-]+)"' do requires[#requires + 1] = { line = n, name = required } end
        end
        found[module] = { path = path, folder = module:match "^([^.]+)", requires = requires }
      end
    end
  end
  walk(ROOT, "")
  return found
end

local all = modules()

describe("the modules of lua/moonpool", function()
  it("are in a folder of the order, but for what C calls", function()
    for name, module in pairs(all) do
      assert(name == "" or rank[module.folder], module.path .. " is in no folder of the order")
    end
  end)

  it("require their own folder and folders before it", function()
    local complaints = {}
    for _, module in pairs(all) do
      for _, required in ipairs(module.requires) do
        local folder = required.name:match "^([^.]+)"
        local is_known = c_modules[required.name] or rank[folder]
        local complaint
        if not is_known then
          complaint = "no such folder, and no module in C"
        elseif module.folder and rank[folder] and folder ~= module.folder then
          if rank[folder] > rank[module.folder] then complaint = folder .. " comes after " .. module.folder .. " in the order" end
          if only[module.folder] and not only[module.folder][folder] then complaint = module.folder .. " must do without " .. folder end
        end
        if complaint then
          complaints[#complaints + 1] = ("%s:%d: requires moonpool.%s: %s"):format(module.path, required.line, required.name, complaint)
        end
      end
    end
    table.sort(complaints)
    assert.equal("", table.concat(complaints, "\n"))
  end)

  it("require their own folder and lower ones inside a folder that has some", function()
    local complaints = {}
    for name, module in pairs(all) do
      local levels = inside[module.folder]
      local own = levels and levels[name:match "^[^.]+%.([^.]+)%."]
      if levels and not own then complaints[#complaints + 1] = module.path .. " is in no folder of " .. module.folder .. "'s order" end
      for _, required in ipairs(own and module.requires or {}) do
        local folder, inner = required.name:match "^([^.]+)%.([^.]+)%."
        if folder == module.folder and (levels[inner] or 100) > own then
          complaints[#complaints + 1] = ("%s:%d: requires moonpool.%s: %s is above"):format(module.path, required.line, required.name, inner)
        end
      end
    end
    table.sort(complaints)
    assert.equal("", table.concat(complaints, "\n"))
  end)

  -- core/lib/trust.c: the field means nothing in code that is loaded after scripts have begun to load
  it("make weak tables by runtime/weak.lua, where they are loaded late", function()
    for _, module in pairs(all) do
      if module.folder == "lib" and not module.path:find "/regex%.lua$" then
        assert(not read(module.path):find("__mode", 1, true), module.path .. " spells __mode")
      end
    end
  end)

  it("have circles of at most four files", function()
    local names, arrows = {}, {}
    for name, module in pairs(all) do
      names[#names + 1], arrows[name] = name, {}
      for _, required in ipairs(module.requires) do arrows[name][required.name:gsub("%.$", "")] = true end
    end
    for _, circle in ipairs(plan.circles(names, arrows)) do
      assert(#circle <= MOST_IN_A_CIRCLE, "these modules require each other in a circle: " .. table.concat(circle, ", "))
    end
  end)
end)

-- The lines of lua/moonpool, without the files in `but`: { path, line, text }.
local function lines(but)
  local found = {}
  for _, module in pairs(all) do
    local n = 0
    for line in (read(module.path) .. "\n"):gmatch "(.-)\n" do
      n = n + 1
      if not module.path:find(but) then found[#found + 1] = { at = module.path .. ":" .. n, text = line } end
    end
  end
  return found
end

local function matching(list, pattern)
  local found = {}
  for _, line in ipairs(list) do
    if line.text:gsub("%-%-.*$", ""):find(pattern) then found[#found + 1] = line.at .. ": " .. line.text end
  end
  table.sort(found)
  return table.concat(found, "\n")
end

describe("a fact of the protocol", function()
  it("is in one place: codes of JSON-RPC errors in rpc_error.lua", function()
    assert.equal("", matching(lines "^lua/moonpool/runtime/rpc_error%.lua$", "%-32[0-9][0-9][0-9]%f[%D]"))
  end)

  it("is in one place: dates of revisions in era/", function()
    assert.equal("", matching(lines "^lua/moonpool/protocol/era/", '"20[0-9][0-9]%-[01][0-9]%-[0-3][0-9]"'))
  end)
end)
