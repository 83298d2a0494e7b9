-- policy { … } in scripts/policy/: a function around calls of tools, reads of resources and uses of prompts. It may
-- refuse a call, change its arguments and result, answer it, count it or measure it.
--   way    what the runs of all calls of a thing have in common: { kind, thing, name, upstream, rows, inner }
--   run    one call's run through the policies of a thing: { way, turn, call, args, uri, phase, at = name of the policy that decided last, undecided = the
--          policy that has neither decided nor called next() yet, reached, gave, is_read = a policy had the arguments, is_later }
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

local begin_span, getmetatable, setmetatable, select, type = host.trace.begin, debug.getmetatable, setmetatable, select, type

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

local runs = setmetatable({}, { __mode = "k" })      -- call -> its run; only where there is an audit, whose lines name policies

--- The decisions of a call's policies, for its audit line: { at = the policy that decided last, reached = true if all let
--- the call through }; nil without policies.
function policy.trail(call) return runs[call] end

-- The arguments of a call of an upstream's tool, with the client's bytes.
local function sent_arguments(call)
  local args = json.preserving(host.call.params(call, true)).arguments
  return args ~= nil and args ~= json.null and args or {}
end

-- The object that policies get as `call` is an empty table whose metatable is the run: scripts cannot reach it. It has
-- all fields of the call, with kind, name, uri, upstream and phase, which are read-only, and args, which may be replaced.
local own = {
  kind = function(run) return run.way.kind end, name = function(run) return run.way.name end, uri = function(run) return run.uri end,
  upstream = function(run) return run.way.upstream end, phase = function(run) return run.phase end,
  args = function(run)
    if run.is_later then run.args, run.is_later = sent_arguments(run.call), nil end
    run.is_read = true
    return run.args
  end,
}

local function turn_index(turn, name)
  local run = getmetatable(turn)
  local get = own[name]
  local value = get and get(run)
  if value ~= nil then return value end
  local call = run.call
  value = call[name]
  if type(value) ~= "function" then return value end
  return function(_, ...) return value(call, ...) end
end

local function turn_newindex(turn, name, value)
  if name ~= "args" then
    problem.raise(2, "a policy cannot set call." .. tostring(name), "a policy may set call.args; keep other values in a local")
  end
  local run = getmetatable(turn)
  run.args, run.is_later, run.is_read = value, nil, true
end

local function back(run, row, ...)
  run.at = row.name
  run.gave = select("#", ...) > 0
  return ...
end

-- The value that a policy returned. A policy that returns nothing, where next() returned a value, probably lacks a
-- `return`: this is logged.
local function given(run, row, ...)
  if select("#", ...) == 0 and run.gave ~= false then
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

-- A policy that has called next() has let the call through.
local function count_passed(run)
  local row = run.undecided
  if row then
    run.undecided = nil
    count(row, "passed")
  end
end

-- Counts the decision of the policy that did not call next().
local function count_decision(run, how)
  local row = run.undecided
  if row then count(row, how) end
end

local function decided(run, ...)
  if run.undecided then
    local value, why = ...
    count_decision(run, value == nil and why ~= nil and "refused" or "answered")
  end
  return ...
end

-- A run is closed when an error leaves the policies; an error that ends the task is no decision.
local run_mt = {
  __close = function(run, err)
    if err == nil or host.task.is_ending(err) then return end
    count_decision(run, (failure.is_expected(err) or failure.is_refused(err) or failure.is_missing(err)) and "refused"
      or failure.is_input(err) and "passed" or "fault")
  end,
}

-- Runs the handler, behind all policies. Arguments that a policy had in its hands are checked against the input schema
-- again; those that `prepare` made are not.
local function reach(run)
  count_passed(run)
  run.reached = true
  local _ <close> = begin_span "handler"
  local way, args = run.way, run.args
  local check = run.is_read and run.phase ~= "run" and way.thing.check
  if check then
    local fits, why = check(args)
    if not fits then error("a policy changed the arguments, and they do not fit: " .. arguments.explain(way.thing.input, args, why), 0) end
  end
  return way.inner(args, run.call)
end

local next_of                                           -- place of a policy -> f(run): its function `next`

local function step(run, i)
  local row = run.way.rows[i]
  if not row then return reach(run) end
  if run.uri and not concerns(row, "resources", run.uri) then return step(run, i + 1) end
  count_passed(run)
  run.at, run.undecided, run.gave = row.name, row, nil
  local _ <close> = begin_span("policy", row.name)
  return given(run, row, row.handler(run.turn, next_of[i](run), row.gets_row and row or nil))
end

next_of = setmetatable({}, { __index = function(made, i)
  made[i] = function(run)
    return function() return back(run, run.way.rows[i], step(run, i + 1)) end
  end
  return made[i]
end })

local function new_run(way, call, args, uri, phase)
  local run = setmetatable({
    way = way, call = call, args = args, uri = uri, phase = phase, is_read = false, reached = false, at = nil, undecided = nil, gave = nil, turn = nil,
    __name = "moonpool.turn", __metatable = false, __index = turn_index, __newindex = turn_newindex,
  }, run_mt)
  run.turn = setmetatable({}, run)
  return run
end

local resumed = setmetatable({}, { __mode = "k" })     -- calls whose handler runs a second time: call -> true

--- The handler of a call runs a second time, as the body of a task: its policies run in the phase "run".
function policy.resume(call) resumed[call] = true end

-- `is_quick`: the arguments are those that the client sent, which are decoded when a policy reads them; `inner` gets nil for
-- arguments that none has read.
local function around(kind, thing, found, inner, phase, is_quick)
  local way = { kind = kinds[kind], thing = thing, name = thing.name, upstream = thing.upstream, rows = found, inner = inner }
  return function(args, call, uri)
    local run = new_run(way, call, args, uri, resumed[call] and "run" or phase)
    if is_quick then run.is_later = true end
    if host.config.audit then runs[call] = run end
    local _ <close> = run
    return decided(run, step(run, 1))
  end
end

--- Runs one policy alone around answer(args), for specs. `about`: { tool | resource | prompt, args }.
function policy.try(row, call, about, answer)
  local kind = about.tool and "tool" or about.prompt and "prompt" or "resource"
  local run = new_run({ kind = kind, name = about[kind], upstream = about.upstream }, call, about.args or {}, about.resource)
  return row.handler(run.turn, function() return answer(run.args) end, row.gets_row and row or nil)
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
