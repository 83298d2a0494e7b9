-- What a reload changes: what is served now, told to the generation that comes after it, which says what is new, other, gone.

local json = require "moonpool.json"
local registry = require "moonpool.registry"
local sorted = require "moonpool.sorted"

local difference = {}

local kinds = { "tools", "prompts", "resources", "templates" }
local topics = { tools = "tools", prompts = "prompts", resources = "resources", templates = "resources" }

-- What people call the members of a definition.
local words = { inputSchema = "schema", outputSchema = "output", _meta = "meta" }

--- What clients can see, as a text for the next generation.
function difference.summary()
  local seen = {}
  for _, kind in ipairs(kinds) do
    local entries = {}
    for _, key in ipairs(registry.names(kind)) do
      local thing, members = registry[kind][key], {}
      for member, value in pairs(thing.definition) do members[member] = json.encode(value) end
      entries[key] = json.object { path = thing.path, members = json.object(members) }
    end
    seen[kind] = json.object(entries)
  end
  return json.encode(seen)
end

-- The words for the members that differ, or nil.
local function differing(before, after)
  local list = {}
  for _, member in ipairs(sorted(before, after)) do
    if before[member] ~= after[member] then list[#list + 1] = words[member] or member end
  end
  return list[1] and table.concat(list, ", ") or nil
end

--- From `before`, a summary, to now; `files` are the paths of the scripts that differ, a line each. Gives what people read
--- ("+ refund  ~ search (schema)  - old_tool"), and the lists that changed for clients ("tools resources").
function difference.tell(before, files)
  before = json.decode(before)
  local now, plan, changed, told = json.decode(difference.summary()), {}, {}, {}
  local is_other = {}
  for path in files:gmatch "[^\n]+" do is_other[path] = true end
  for _, kind in ipairs(kinds) do
    local old, new = before[kind] or {}, now[kind]
    for _, name in ipairs(sorted(old, new)) do
      local was, is = old[name], new[name]
      local what = was and is and differing(was.members, is.members)
      if not was or not is or what then changed[topics[kind]] = true end
      if not was then
        plan[#plan + 1] = "+ " .. name
      elseif not is then
        plan[#plan + 1] = "- " .. name
      elseif what or is_other[is.path] then
        plan[#plan + 1] = "~ " .. name .. " (" .. (what or "code") .. ")"
      end
      for _, entry in pairs { was or false, is or false } do
        if entry then told[entry.path] = true end
      end
    end
  end
  for path in files:gmatch "[^\n]+" do
    if not told[path] then plan[#plan + 1] = "~ " .. path end
  end
  local lists = {}
  for topic in pairs(changed) do lists[#lists + 1] = topic end
  table.sort(lists)
  return table.concat(plan, "  "), table.concat(lists, " ")
end

return difference
