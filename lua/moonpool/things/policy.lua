-- policy { … } in scripts/policy/: a function around calls of tools, reads of resources and uses of prompts. It may
-- refuse a call, change its arguments and result, answer it, count it or measure it.
--   turn   the call as a policy sees it: all fields of the call, and kind, name, args, uri, upstream, phase
--   row    a policy that is loaded; rows are in the order in which they run, the outermost first

local arguments = require "moonpool.things.arguments"
local failure = require "moonpool.runtime.outcome"
local frozen = require "moonpool.runtime.frozen"
local hint_options = require "moonpool.things.hint_options"
local glob = require "moonpool.runtime.glob"
local host = require "moonpool.host"
local json = require "moonpool.json"
local problem = require "moonpool.runtime.diagnostic"
local silent = require "moonpool.things.silent"
local suggest = require "moonpool.runtime.suggest"
local uris = require "moonpool.runtime.uris"

local policy = {}

local written = { name = "moonpool.things.policy", what = "a policy" }
local kinds = { tools = "tool", resources = "resource", prompts = "prompt" }
local option_types = { tools = "table", resources = "table", prompts = "table", order = "number" }
local option_names = { "tools", "resources", "prompts", "order" }
local form = "as in policy { tools = { \"gh_*\" }, function(call, next) return next(call) end }"

local rows = {}

--- The function `policy` of scripts. It checks nothing: the path and name of the file are not known here.
function policy.new(spec) return frozen.new(written, {}, { spec = spec }) end

--- A policy of limit or quota, with the columns that `moonpool list` shows for it.
function policy.made(spec, summary) return frozen.new(written, {}, { spec = spec, summary = summary, gets_row = true }) end

function policy.is(value) return frozen.is(value, written) end

-- -- building ---------------------------------------------------------------------------------------------------------

local function squeezed(uri) return (uris.plain(uri):gsub("^([^/]*//)/", "%1")) end

-- True if a pattern matches a URI or a different spelling of it, so that no spelling avoids the policy.
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
  if #list == 0 then complain(option, "'" .. option .. "' is an empty list", "remove the option, or add a name; \"*\" matches every name") end
  return made
end

--- Prepares the policy that a file returned. Calls complain(word or line, what, hint) for each error.
function policy.build(name, value, _, complain)
  local content = frozen.content(value)
  local spec = content.spec
  if type(spec) ~= "table" then return complain("policy", "policy needs a table", form) end
  local says = type(spec[1]) == "string"
  local handler = spec[says and 2 or 1]
  local row = { name = name, description = says and spec[1] or content.summary, order = spec.order or 0, gets_row = content.gets_row }
  if type(handler) ~= "function" then complain("policy", "a policy needs a function(call, next)", form) end
  for option, given in pairs(spec) do
    local want = option_types[option]
    if want and type(given) ~= want then
      complain(option, "'" .. option .. "' must be a " .. want .. ", not a " .. type(given), form)
    elseif kinds[option] then
      row[option], row.is_narrow = matchers(option, given, complain), true
    elseif not want and not (option == 1 or (option == 2 and says)) then
      complain(tostring(option), "policy has no option '" .. tostring(option) .. "'",
        hint_options.of_thing(option, "policy") or suggest.listed(option, option_names, "options"))
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

-- True if a policy applies to a thing: a policy that names no things applies to all. Resources are named by URI
-- patterns; `text` is the URI, or nil before it is known.
local function concerns(row, kind, text)
  if not row.is_narrow then return true end
  local list = row[kind]
  return list ~= nil and (text == nil or fits_any(list, text))
end

local trails = setmetatable({}, { __mode = "k" })      -- call -> { at, reached }: the last policy that ran, and whether the handler was reached

--- The decisions of a call's policies: { at = the policy that decided last, reached = true if all let the call through
--- }; nil without policies.
function policy.trail(call) return trails[call] end

local LATER <const> = {}          -- a key of `own` that scripts do not have: the arguments are not decoded yet

-- The arguments of a call of an upstream's tool, with the client's bytes.
local function sent_arguments(call)
  local args = json.preserving(host.call.params(call, true)).arguments
  return args ~= nil and args ~= json.null and args or {}
end

-- The object that policies get as `call`: all fields of the call, with kind, name, uri, upstream and phase, which are
-- read-only, and args, which may be replaced. Scripts cannot reach `own`, which decides the policies that apply to a
-- read.
local function turn_of(call, own)
  return setmetatable({}, {
    __name = "moonpool.turn", __metatable = false,
    __index = function(_, name)
      if own[name] ~= nil then return own[name] end
      if name == "args" and own[LATER] then
        own.args, own[LATER] = sent_arguments(call), nil
        return own.args
      end
      local value = call[name]
      if type(value) ~= "function" then return value end
      return function(_, ...) return value(call, ...) end
    end,
    __newindex = function(_, name, value)
      if name ~= "args" then
        problem.raise(2, "a policy cannot set call." .. tostring(name), "a policy may set call.args; keep other values in a local")
      end
      own.args, own[LATER] = value, nil
    end,
  })
end

local function back(trail, row, ...)
  trail.at = row.name
  trail.gave = select("#", ...) > 0
  return ...
end

-- The value that a policy returned. A policy that returns nothing, where next() returned a value, probably lacks a
-- `return`: this is logged.
local function given(trail, row, ...)
  if select("#", ...) == 0 and trail.gave ~= false then
    silent.warn(row, "policy returned nothing", { policy = row.name }, "its clients get an empty result: write 'return next(call)'")
  end
  return ...
end

-- -- decisions, for /metrics --------------------------------------------------------------------------------------------

local function count(row, decision)
  row.decisions = row.decisions or {}
  row.decisions[decision] = row.decisions[decision] or host.metrics.series("policy", row.name, decision)
  host.metrics.count(row.decisions[decision])
end

-- Counts a decision of each policy that ran. All of them let the call through; but if the handler was not reached, the
-- last one decided `how`.
local function count_decisions(trail, how)
  local ran = trail.ran
  trail.ran = {}
  for i = 1, #ran do count(ran[i], (i < #ran or trail.reached) and "passed" or how) end
end

local function decided(trail, ...)
  local value, why = ...
  count_decisions(trail, value == nil and why ~= nil and "refused" or "answered")
  return ...
end

-- Closed when an error leaves the policies; decided() has counted all else. An error that ends the task is no decision.
local errors_mt = {
  __close = function(self, err)
    if err == nil or host.task.is_ending(err) then return end
    count_decisions(self.trail, (failure.is_expected(err) or failure.is_refused(err) or failure.is_missing(err)) and "refused"
      or failure.is_input(err) and "passed" or "fault")
  end,
}

local function step(trail, i)
  local row = trail.rows[i]
  if not row then
    trail.reached = true
    local _ <close> = host.trace.begin "handler"
    return trail.inner(trail.own.args, trail.call)
  end
  if trail.own.uri and not concerns(row, "resources", trail.own.uri) then return step(trail, i + 1) end
  trail.at = row.name
  trail.ran[#trail.ran + 1] = row
  trail.gave = nil
  local _ <close> = host.trace.begin("policy", row.name)
  return given(trail, row, row.handler(trail.turn, function() return back(trail, row, step(trail, i + 1)) end, row.gets_row and row or nil))
end

-- Checks arguments that a policy changed against the input schema. Arguments that `prepare` made are not checked.
local function checked(thing, inner, phase)
  if not thing.check or phase == "run" then return inner end
  return function(args, call)
    local fits, why = thing.check(args)
    if not fits then error("a policy changed the arguments, and they do not fit: " .. arguments.explain(thing.input, args, why), 0) end
    return inner(args, call)
  end
end

local resumed = setmetatable({}, { __mode = "k" })     -- calls whose handler runs a second time: call -> true

--- The handler of a call runs a second time, as the body of a task: its policies run in the phase "run".
function policy.resume(call) resumed[call] = true end

-- `is_quick`: the arguments are those that the client sent, which are decoded when a policy reads them; `inner` gets nil for
-- arguments that none has read.
local function around(kind, thing, found, inner, phase, is_quick)
  inner = checked(thing, inner, phase)
  return function(args, call, uri)
    local own = {
      kind = kinds[kind], name = thing.name, args = args, [LATER] = is_quick, uri = uri, upstream = thing.upstream, phase = resumed[call] and "run" or phase,
    }
    local trail = { ran = {}, rows = found, inner = inner, call = call, own = own, turn = turn_of(call, own) }
    trails[call] = trail
    local _ <close> = setmetatable({ trail = trail }, errors_mt)
    return decided(trail, step(trail, 1))
  end
end

--- Runs one policy alone around answer(args), for specs. `about`: { tool | resource | prompt, args }.
function policy.try(row, call, about, answer)
  local kind = about.tool and "tool" or about.prompt and "prompt" or "resource"
  local own = { kind = kind, name = about[kind], args = about.args or {}, uri = about.resource, upstream = about.upstream }
  local turn = turn_of(call, own)
  return row.handler(turn, function() return answer(own.args) end, row.gets_row and row or nil)
end

-- -- the loaded policies ----------------------------------------------------------------------------------------------

--- The policies that apply to a thing, outermost first; without a kind, all policies. For a resource, `text` is a URI,
--- or nil for all policies that may apply.
function policy.of(kind, text)
  local found = {}
  for _, row in ipairs(rows) do
    if kind == nil or concerns(row, kind, text) then found[#found + 1] = row end
  end
  return found
end

--- The names of the policies around a thing of a list, in their order.
function policy.names(kind, thing)
  local is_resource, names = kind == "resources" or kind == "templates", {}
  for i, row in ipairs(policy.of(is_resource and "resources" or kind, not is_resource and thing.name or thing.template == nil and thing.uri or nil)) do
    names[i] = row.name
  end
  return names
end

-- Warnings about patterns that match nothing: the thing may be added later, but a misspelt pattern has the same effect.
local function doubt(row, kind, things)
  for _, pattern in ipairs(row[kind] or {}) do
    local is_used, names = pattern.text == "*", {}
    for name in pairs(things) do
      is_used, names[#names + 1] = is_used or pattern.fits(name), name
    end
    if not is_used and host.script.is_first_load then
      host.log.write("warn", "policy for no " .. kinds[kind], {
        policy = row.name, pattern = pattern.text, hint = suggest.hint(pattern.text, names) or "no name matches",
      })
    end
  end
end

--- All policies, in the order in which they run.
function policy.all() return rows end

--- Puts the loaded policies that apply to a thing around its handlers. `kind` is "tools", "prompts" or "resources".
function policy.wrap(kind, name, thing)
  local found = policy.of(kind, kind ~= "resources" and name or nil)
  if #found == 0 then return end
  thing.handler = around(kind, thing, found, thing.handler, thing.prepare and "run" or nil)
  if thing.quick then thing.quick = around(kind, thing, found, thing.quick, nil, true) end
  if thing.prepare then thing.prepare = around(kind, thing, found, thing.prepare, "prepare") end
  thing.has_policies = true
end

--- Applies policies, { name = row }, to things, { tools =, resources =, prompts = } by name: replaces their handlers.
--- With `has_upstreams`, other things come later.
function policy.apply(made, things, has_upstreams)
  rows = {}
  for _, row in pairs(made) do rows[#rows + 1] = row end
  table.sort(rows, function(a, b)
    if a.order ~= b.order then return a.order < b.order end
    return a.name < b.name
  end)
  for _, row in ipairs(has_upstreams and {} or rows) do      -- the things of upstreams are not known yet
    doubt(row, "tools", things.tools)
    doubt(row, "prompts", things.prompts)
  end
  for kind in pairs(kinds) do
    for name, thing in pairs(things[kind]) do policy.wrap(kind, name, thing) end
  end
end

return policy
