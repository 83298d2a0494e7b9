-- What a reload changes: what is served now, told to the generation that comes after it, which says what is new, other, gone.

local json = require "moonpool.json"
local registry = require "moonpool.registry"
local sorted = require "moonpool.sorted"
local switches = require "moonpool.switches"

local difference = {}

local kinds = { "tools", "prompts", "resources", "templates" }
local switched = { tools = "tool", prompts = "prompt", resources = "resource", templates = "resource" }
local topics = { tools = "tools", prompts = "prompts", resources = "resources", templates = "resources" }

-- What people call the members of a definition.
local words = { inputSchema = "schema", outputSchema = "output", _meta = "meta" }

--- What there is, as a text for the next generation.
function difference.summary()
  local seen = {}
  for _, kind in ipairs(kinds) do
    local entries = {}
    for key, thing in pairs((registry.everything(kind))) do
      local members = {}
      for member, value in pairs(thing.definition) do members[member] = json.encode(value) end
      entries[key] = json.object {
        name = thing.name, path = thing.path, enabled = thing.enabled ~= false, members = json.object(members),
        scopes = json.array { table.unpack(thing.scopes or {}) }, visible = thing.visible ~= nil,
      }
    end
    seen[kind] = json.object(entries)
  end
  return json.encode(seen)
end

-- Those that are on, for whichever generation it is: what was switched stays so.
local function only_on(kind, entries)
  local on = {}
  for key, entry in pairs(entries or {}) do
    if switches.is_on(switched[kind], entry) then on[key] = entry end
  end
  return on
end

-- The words for the members that differ, or nil.
local function differing(before, after)
  local list = {}
  for _, member in ipairs(sorted(before, after)) do
    if before[member] ~= after[member] then list[#list + 1] = words[member] or member end
  end
  return list[1] and table.concat(list, ", ") or nil
end

-- The same for who may see an entry.
local function differing_guard(was, is)
  local list = {}
  if table.concat(was.scopes, " ") ~= table.concat(is.scopes, " ") then list[1] = "scopes" end
  if was.visible ~= is.visible then list[#list + 1] = "visible" end
  return list[1] and table.concat(list, ", ") or nil
end

local function joined(one, other) return one and other and one .. ", " .. other or one or other end

--- From `before`, a summary, to now; `files` are the paths of the scripts that differ, a line each. Gives what people read
--- ("+ refund  ~ search (schema)  - old_tool"), and a text for difference.changes, "" when no list changed.
function difference.tell(before, files)
  before = json.decode(before)
  local now, plan, changed, told = json.decode(difference.summary()), {}, {}, {}
  local is_other = {}
  for path in files:gmatch "[^\n]+" do is_other[path] = true end
  for _, kind in ipairs(kinds) do
    local old, new = only_on(kind, before[kind]), only_on(kind, now[kind])
    for _, name in ipairs(sorted(old, new)) do
      local was, is = old[name], new[name]
      local other = was and is and differing(was.members, is.members)
      local what = joined(other, was and is and differing_guard(was, is))
      if not was or not is or what then
        local list = topics[kind]
        changed[list] = changed[list] or {}
        table.insert(changed[list], {
          kind = kind, name = name, is = is ~= nil, is_other = other ~= nil, was = was and { scopes = json.array(was.scopes), visible = was.visible },
        })
      end
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
  return table.concat(plan, "  "), next(changed) and json.encode(changed) or ""
end

--- Such a text, read where these scripts are served: list -> its entries that changed, as subscriptions.list_changed takes them.
function difference.changes(text)
  local lists = json.decode(text)
  for _, changes in pairs(lists) do
    for _, change in ipairs(changes) do change.is = change.is and registry[change.kind][change.name] or nil end
  end
  return lists
end

return difference
