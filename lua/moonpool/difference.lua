-- What a reload changes: what is served now, told to the generation that comes after it, which says what is new, other, gone.

local host = require "moonpool.host"
local job = require "moonpool.lib.job"
local json = require "moonpool.json"
local registry = require "moonpool.registry"
local sorted = require "moonpool.sorted"

local difference = {}

-- What is told by name: a kind, the list that clients have of it, what stands before its names, and its things: name ->
-- { path, members by name, each as a text }. Scripts of other folders are told by their paths.
local kinds = {}

--- Adds a kind. `list` and `word` may be nil.
function difference.add(name, list, word, things)
  kinds[#kinds + 1] = { name = name, list = list, word = word and word .. " " or "", things = things }
end

local function texts(members)
  local encoded = {}
  for name, value in pairs(members) do encoded[name] = json.encode(value) end
  return json.object(encoded)
end

for _, name in ipairs { "tools", "prompts", "resources", "templates" } do
  difference.add(name, name == "templates" and "resources" or name, nil, function()
    local things = {}
    for _, key in ipairs(registry.names(name)) do
      local thing = registry[name][key]
      things[key] = json.object { path = thing.path, members = texts(thing.definition) }
    end
    return things
  end)
end

difference.add("jobs", nil, "job", function()
  local things = {}
  for name, one in pairs(job.all()) do
    local members = { description = one.description, every = one.every, timeout = one.timeout, enabled = not one.off }
    things[name] = json.object { path = one.path, members = texts(members) }
  end
  return things
end)

-- What people call the members of a definition.
local words = { inputSchema = "schema", outputSchema = "output", _meta = "meta" }

--- What there is, as a text for the next generation.
function difference.summary()
  local seen, paths = {}, {}
  for _, kind in ipairs(kinds) do seen[kind.name] = json.object(kind.things()) end
  for _, script in ipairs(host.scripts) do paths[script.path] = true end
  seen.paths = json.object(paths)
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
  local now, plan, changed, told, is_other = json.decode(difference.summary()), {}, {}, {}, {}
  local function add(sign, name) plan[#plan + 1] = sign .. " " .. name end
  for path in files:gmatch "[^\n]+" do is_other[path] = true end
  for _, kind in ipairs(kinds) do
    local old, new = before[kind.name] or {}, now[kind.name]
    for _, name in ipairs(sorted(old, new)) do
      local was, is = old[name], new[name]
      local what = was and is and differing(was.members, is.members)
      if kind.list and (not was or not is or what) then changed[kind.list] = true end
      if not was then
        add("+", kind.word .. name)
      elseif not is then
        add("-", kind.word .. name)
      elseif what or is_other[is.path] then
        add("~", kind.word .. name .. " (" .. (what or "code") .. ")")
      end
      for _, entry in pairs { was or false, is or false } do
        if entry then told[entry.path] = true end
      end
    end
  end
  for path in files:gmatch "[^\n]+" do
    local was, is = before.paths[path], now.paths[path]
    if not told[path] then add(not was and "+" or not is and "-" or "~", path) end
  end
  local lists = {}
  for list in pairs(changed) do lists[#lists + 1] = list end
  table.sort(lists)
  return table.concat(plan, "  "), table.concat(lists, " ")
end

return difference
