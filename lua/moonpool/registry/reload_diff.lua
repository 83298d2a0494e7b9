-- Compares two generations of scripts. The old generation writes a summary as text; the new one reads it and reports
-- what was added, changed or removed.

local host = require "moonpool.host"
local auth = require "moonpool.access.auth"
local job = require "moonpool.things.job"
local json = require "moonpool.json"
local policy = require "moonpool.things.policy"
local registry = require "moonpool.registry.registry"
local sorted = require "moonpool.runtime.sorted_keys"
local switches = require "moonpool.registry.switches"
local upstreams = require "moonpool.upstream.config"

local difference = {}

-- For each kind: the list of it that clients have, the word for it in switches, the prefix of its names, and a function
-- that returns its things: key
-- -> { path, members by name, each as text }. Scripts of other folders are compared by their paths.
local kinds = {}

local function texts(members)
  local encoded = {}
  for name, value in pairs(members) do encoded[name] = json.encode(value) end
  return json.object(encoded)
end

local function served(kind, list, switched)
  kinds[#kinds + 1] = { name = kind, list = list, switched = switched, word = "", things = function()
    local things = {}
    for key, thing in pairs(registry.own(kind)) do
      things[key] = json.object {
        name = thing.name, path = thing.path, enabled = thing.enabled ~= false, members = texts(thing.definition),
        scopes = json.array { table.unpack(thing.scopes or {}) }, visible = thing.visible ~= nil,
      }
    end
    return things
  end }
end

served("tools", "tools", "tool")
served("prompts", "prompts", "prompt")
served("resources", "resources", "resource")
served("templates", "resources", "resource")

-- Kinds that are in no list of clients.
local function unlisted(kind, word, all, members)
  kinds[#kinds + 1] = { name = kind, word = word .. " ", things = function()
    local things = {}
    for _, one in pairs(all()) do things[one.name] = json.object { path = one.path, members = texts(members(one)) } end
    return things
  end }
end

unlisted("jobs", "job", job.all, function(one)
  return {
    description = one.description, listens = one.words, every = one.every, zone = one.zone, jitter = one.jitter, timeout = one.timeout,
    enabled = not one.off,
  }
end)
unlisted("auth", "auth", auth.all, function(one) return { issuer = one.issuer, scopes = one.scopes_supported } end)
unlisted("policy", "policy", policy.of, function(one) return { description = one.description, order = one.order } end)

-- The words for members of a definition.
local words = { inputSchema = "schema", outputSchema = "output", _meta = "meta" }

--- A summary of the things of this generation, as text for the next one.
function difference.summary()
  local seen, paths = {}, {}
  for _, kind in ipairs(kinds) do seen[kind.name] = json.object(kind.things()) end
  for _, script in ipairs(host.script.list) do paths[script.path] = true end
  seen.paths = json.object(paths)
  seen.has_upstreams = upstreams.has_any
  return json.encode(seen)
end

-- The things of a summary that are switched on: switches apply to both generations alike.
local function only_on(kind, entries)
  if not kind.switched then return entries or {} end
  local on = {}
  for key, entry in pairs(entries or {}) do
    if switches.is_on(kind.switched, entry) then on[key] = entry end
  end
  return on
end

-- The names of the members that differ, as text; nil if none differs.
local function differing(before, after)
  local list = {}
  for _, member in ipairs(sorted(before, after)) do
    if before[member] ~= after[member] then list[#list + 1] = words[member] or member end
  end
  return list[1] and table.concat(list, ", ") or nil
end

-- The words for a change of the principals that may see a thing, or nil.
local function differing_guard(was, is)
  local list = {}
  if table.concat(was.scopes, " ") ~= table.concat(is.scopes, " ") then list[1] = "scopes" end
  if was.visible ~= is.visible then list[#list + 1] = "visible" end
  return list[1] and table.concat(list, ", ") or nil
end

local function joined(one, other) return one and other and one .. ", " .. other or one or other end

-- The change of one list entry, in the form that difference.changes reads.
local function change_of(kind, name, was, is, is_other)
  return {
    kind = kind.name, name = name, is = is ~= nil, is_other = is_other,
    was = was and { scopes = json.array(was.scopes), visible = was.visible },
  }
end

--- Compares `before`, a summary, with this generation; `files` are the paths of the changed scripts, a line each;
--- `upstream_kinds` returns the kinds of
--- things of upstreams that have changed. Returns a text for people ("+ refund  ~ search (schema)  - old_tool"), and a text for difference.changes, which
--- is "" when no list changed.
function difference.compare(before, files, upstream_kinds)
  before = json.decode(before)
  local now, plan, changed, listed, is_other = json.decode(difference.summary()), {}, {}, {}, {}
  local is_federated_changed = {}
  if upstreams.has_any or before.has_upstreams then
    for _, name in ipairs(upstream_kinds()) do is_federated_changed[name] = true end
  end
  local function add(sign, name) plan[#plan + 1] = sign .. " " .. name end
  for path in files:gmatch "[^\n]+" do is_other[path] = true end
  for _, kind in ipairs(kinds) do
    local old, new = only_on(kind, before[kind.name]), only_on(kind, now[kind.name])
    for _, name in ipairs(sorted(old, new)) do
      local was, is = old[name], new[name]
      local other = was and is and differing(was.members, is.members)
      local what = joined(other, kind.list and was and is and differing_guard(was, is))
      if kind.list and (not was or not is or what) then
        changed[kind.list] = changed[kind.list] or {}
        table.insert(changed[kind.list], change_of(kind, name, was, is, other ~= nil))
      end
      if not was then
        add("+", kind.word .. name)
      elseif not is then
        add("-", kind.word .. name)
      elseif what or is_other[is.path] then
        add("~", kind.word .. name .. " (" .. (what or "code") .. ")")
      end
      for _, entry in pairs { was or false, is or false } do
        if entry then listed[entry.path] = true end
      end
    end
  end
  for _, kind in ipairs(kinds) do           -- what differs of upstreams is not known by name: each client is notified
    if kind.list and is_federated_changed[kind.name] then
      changed[kind.list] = changed[kind.list] or {}
      table.insert(changed[kind.list], change_of(kind, "", { scopes = {}, visible = false }, nil, false))
    end
  end
  for path in files:gmatch "[^\n]+" do
    local rock = path:match "^rock (.+)$"            -- no script's path has a space after its first word
    local was, is = rock or before.paths[path], rock or now.paths[path]
    if not listed[path] then add(not was and "+" or not is and "-" or "~", path) end
  end
  return table.concat(plan, "  "), next(changed) and json.encode(changed) or ""
end

--- Reads the text about changed lists in a worker that serves the new generation: list -> changed entries, for
--- subscriptions.list_changed.
function difference.changes(text)
  local lists = json.decode(text)
  for _, changes in pairs(lists) do
    for _, change in ipairs(changes) do change.is = change.is and registry.thing(change.kind, change.name) or nil end
  end
  return lists
end

return difference
