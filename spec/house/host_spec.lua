-- lua/types/host.d.lua, and modules of lua/moonpool/lib for what they alone use, declare every member of
-- `moonpool.host`, the table by which lua/moonpool reaches C: as the binary has it, as lua/moonpool uses it, and as
-- spec/helpers/host.lua imitates it.
local host = require "spec.helpers.host"
local lfs = require "lfs"
local trusted = require "spec.helpers.trusted"

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function files(folder, list)
  for name in lfs.dir(folder) do
    local path = folder .. "/" .. name
    if name:find "^%." then -- luacheck: ignore 542
    elseif lfs.attributes(path, "mode") == "directory" then
      files(path, list)
    elseif name:find "%.lua$" then
      list[#list + 1] = path
    end
  end
  return list
end

-- "group.name" -> { kind = "function", "table", …, is_optional }
local function declared()
  local members, text = {}, read "lua/types/host.d.lua"
  for _, path in ipairs(files("lua/moonpool/lib", {})) do text = text .. "\n" .. read(path) end
  local kinds = { string = "string", boolean = "boolean", integer = "number", number = "number" }
  local group
  for line in text:gmatch "[^\n]+" do
    if line:find "^%-%-%-@class" then group = line:match "^%-%-%-@class moonpool%.host%.(%l[%w_]*)$" end
    local name, optional, kind = line:match "^%-%-%-@field ([%w_]+)(%??) (%S+)"
    if name and group then
      members[group .. "." .. name] = { kind = kind:find "^fun%(" and "function" or kinds[kind] or "table", is_optional = optional == "?" }
    end
  end
  for name in text:gmatch "\nfunction host%.([%w_]+%.[%w_]+)%(" do members[name] = { kind = "function" } end
  return members
end

-- The members that `found` (name -> type) and the declaration do not have in common, or that differ in type; one per
-- line.
local function differences(found, may_lack)
  local list, members = {}, declared()
  for name, kind in pairs(found) do
    if not members[name] then
      list[#list + 1] = name .. ": not declared"
    elseif members[name].kind ~= kind then
      list[#list + 1] = ("%s: a %s, declared as a %s"):format(name, kind, members[name].kind)
    end
  end
  for name, member in pairs(members) do
    if not found[name] and not member.is_optional and not may_lack then list[#list + 1] = name .. ": declared, but not there" end
  end
  table.sort(list)
  return table.concat(list, "\n")
end

describe("lua/types/host.d.lua", function()
  it("declares what the binary has", function()
    local g <close> = trusted.start()
    local me = g:client "2026-07-28"
    local list = trusted.run(me, [[
      local list = {}
      for group, members in pairs(host) do
        for name, value in pairs(members) do list[#list + 1] = group .. "." .. name .. "=" .. type(value) end
      end
      return table.concat(list, " ")]])
    local found = {}
    for name, kind in list:gmatch "([%w_.]+)=(%w+)" do found[name] = kind end
    assert.equal("", differences(found))
    me:close()
  end)

  it("declares what lua/moonpool uses", function()
    local list, members = {}, declared()
    for _, path in ipairs(files("lua/moonpool", {})) do
      local text = read(path)
      if text:find 'local host = require "moonpool.host"' then
        for name in text:gsub("%-%-[^\n]*", ""):gmatch "%f[%w_.]host%.([%w_]+%.[%w_]+)" do
          if not members[name] then list[#list + 1] = path .. ": host." .. name end
        end
      end
    end
    assert.equal("", table.concat(list, "\n"))
  end)

  it("declares what the host of the specs in process has", function()
    local vm, found = host.start {}, {}
    for group, members in pairs(vm.host) do
      for name, value in pairs(members) do found[group .. "." .. name] = type(value) end
    end
    host.stop()
    assert.equal("", differences(found, true))
  end)
end)
