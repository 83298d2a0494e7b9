-- policy { … } in scripts/policy/: one function around every call of a tool, read of a resource and use of a prompt. It may
-- refuse, change what goes in and what comes out, answer by itself, count and time.
--   turn    the call as a policy sees it: all of the call, and kind, name, args, uri, phase
--   row     a policy that is loaded; rows stand in the order in which they run, the outermost first

local arguments = require "moonpool.arguments"
local glob = require "moonpool.glob"
local host = require "moonpool.host"
local problem = require "moonpool.problem"
local suggest = require "moonpool.suggest"
local uris = require "moonpool.uris"

local policy = {}

local written = { __name = "moonpool.policy", __metatable = false }
local kinds = { tools = "tool", resources = "resource", prompts = "prompt" }
local option_types = { tools = "table", resources = "table", prompts = "table", order = "number" }
local option_names = { "tools", "resources", "prompts", "order" }
local form = "as in policy { tools = { \"gh_*\" }, function(call, next) return next(call) end }"

local rows = {}

--- What scripts call. Nothing is judged yet: the file and the name are not known here.
function policy.new(spec) return setmetatable({ spec = spec }, written) end

--- The same, with what is told of it in a list.
function policy.made(spec, told) return setmetatable({ spec = spec, told = told }, written) end

function policy.is(value) return debug.getmetatable(value) == written end

-- -- building ---------------------------------------------------------------------------------------------------------

local function squeezed(uri) return (uris.plain(uri):gsub("^([^/]*//)/", "%1")) end

-- Whether a URI is the one, or may be taken for it: no other spelling of it is a way around.
local function uri_glob(pattern)
  local normal = uris.normal((pattern:gsub(" ", "%%20")))
  local fits, fits_plain = glob(normal), glob(squeezed(normal))
  return function(uri) return fits(uri) or fits_plain(squeezed(uri)) end
end

local function matchers(option, list, complain)
  local made = {}
  for i, pattern in ipairs(list) do
    if type(pattern) == "string" and pattern ~= "" then
      made[#made + 1] = { text = pattern, fits = (option == "resources" and uri_glob or glob)(pattern) }
    else
      complain(option, "'" .. option .. "' item " .. i .. " is not a name", "as in " .. option .. " = { \"gh_*\" }: * stands for anything")
    end
  end
  if #list == 0 then complain(option, "'" .. option .. "' names nothing", "leave it out, or name one; \"*\" is all of them") end
  return made
end

--- A policy ready to run, from what a file returned. `complain(word or line, what, hint)` hears of every problem.
function policy.build(name, value, _, complain)
  local spec = value.spec
  if type(spec) ~= "table" then return complain("policy", "policy needs a table", form) end
  local says = type(spec[1]) == "string"
  local handler, row = spec[says and 2 or 1], { name = name, description = says and spec[1] or value.told, order = spec.order or 0 }
  if type(handler) ~= "function" then complain("policy", "a policy has a function(call, next)", form) end
  for option, given in pairs(spec) do
    local want = option_types[option]
    if want and type(given) ~= want then
      complain(option, "'" .. option .. "' must be a " .. want .. ", not a " .. type(given), form)
    elseif kinds[option] then
      row[option], row.is_narrow = matchers(option, given, complain), true
    elseif not want and not (option == 1 or (option == 2 and says)) then
      complain(tostring(option), "policy has no option '" .. tostring(option) .. "'", suggest.listed(option, option_names, "options"))
    end
  end
  row.handler = handler
  return row
end

-- -- running ----------------------------------------------------------------------------------------------------------

local function fits_any(list, text)
  for i = 1, #list do
    if list[i].fits(text) then return true end
  end
  return false
end

-- A row that names nothing is around everything; one that names something, around that alone. Resources are named by their
-- URIs, which are known when they are read: `text` is nil before.
local function concerns(row, kind, text)
  if not row.is_narrow then return true end
  local list = row[kind]
  return list ~= nil and (text == nil or fits_any(list, text))
end

local trails = setmetatable({}, { __mode = "k" })      -- call -> how far its policies let it

--- What the policies of a call did: { at = the policy that decided last, reached = true once all let it through }, or nil.
function policy.trail(call) return trails[call] end

local turn = { __name = "moonpool.turn", __metatable = false }

function turn.__index(self, name)
  local call = rawget(self, 1)
  local value = call[name]
  if type(value) ~= "function" then return value end
  return function(_, ...) return value(call, ...) end
end

function turn.__newindex(_, name)
  problem.raise(2, "a policy cannot set call." .. tostring(name), "it may change call.args; what it wants to remember is a local")
end

local function back(trail, row, ...)
  trail.at = row.name
  return ...
end

local function step(trail, i)
  local row = trail.rows[i]
  if not row then
    trail.reached = true
    return trail.inner(trail.turn.args, trail.call)
  end
  if trail.turn.uri and not concerns(row, "resources", trail.turn.uri) then return step(trail, i + 1) end
  trail.at = row.name
  return row.handler(trail.turn, function() return back(trail, row, step(trail, i + 1)) end, row)
end

-- What a policy made of the arguments has to fit too; what `prepare` made of them is the tool's own.
local function checked(thing, inner, phase)
  if not thing.check or phase == "run" then return inner end
  return function(args, call)
    local fits, why = thing.check(args)
    if not fits then error("a policy left arguments that do not fit: " .. arguments.explain(thing.input, args, why), 0) end
    return inner(args, call)
  end
end

local function around(kind, thing, found, inner, phase)
  inner = checked(thing, inner, phase)
  return function(args, call, uri)
    local trail = { rows = found, inner = inner, call = call }
    trail.turn = setmetatable({ call, kind = kinds[kind], name = thing.name, args = args, uri = uri, phase = phase }, turn)
    trails[call] = trail
    return step(trail, 1)
  end
end

-- -- what is loaded ---------------------------------------------------------------------------------------------------

--- The rows around a thing, outermost first; without a kind all of them. For a resource: `text` is a URI, or nil for all that may
--- be around it.
function policy.of(kind, text)
  local found = {}
  for _, row in ipairs(rows) do
    if kind == nil or concerns(row, kind, text) then found[#found + 1] = row end
  end
  return found
end

-- Patterns that fit nothing: the script may come later, but a slip of the pen looks the same.
local function doubt(row, kind, things)
  for _, pattern in ipairs(row[kind] or {}) do
    local is_used, names = false, {}
    for name in pairs(things) do
      is_used, names[#names + 1] = is_used or pattern.fits(name), name
    end
    if not is_used then
      host.log("warn", "policy for no " .. kinds[kind], {
        policy = row.name, pattern = pattern.text, hint = suggest.hint(pattern.text, names) or "none has such a name",
      })
    end
  end
end

--- Puts policies, { name = row }, around things, { tools =, resources =, prompts = } by name: their handlers are replaced.
function policy.apply(made, things)
  rows = {}
  for _, row in pairs(made) do rows[#rows + 1] = row end
  table.sort(rows, function(a, b)
    if a.order ~= b.order then return a.order < b.order end
    return a.name < b.name
  end)
  for _, row in ipairs(rows) do
    doubt(row, "tools", things.tools)
    doubt(row, "prompts", things.prompts)
  end
  for kind in pairs(kinds) do
    for name, thing in pairs(things[kind]) do
      local found = policy.of(kind, kind ~= "resources" and name or nil)
      if #found > 0 then
        thing.handler = around(kind, thing, found, thing.handler, thing.prepare and "run" or nil)
        if thing.prepare then thing.prepare = around(kind, thing, found, thing.prepare, "prepare") end
        thing.has_policies = true
      end
    end
  end
end

return policy
