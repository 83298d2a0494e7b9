-- policy { … } in scripts/policy/: a function around calls of tools, reads of resources and uses of prompts. It may
-- refuse a call, change its arguments and result, answer it, count it or measure it.
--   turn   the call as a policy sees it: all fields of the call, and kind, name, uri, upstream and phase, which are read-only, and args, which may be
--          replaced
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

-- -- which policies apply ----------------------------------------------------------------------------------------------

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

-- -- running, which C does (core/lib/work/policy.c) -------------------------------------------------------------------------

--- For the audit line of a call, the name of the policy that decided last, and whether all let the call through; nothing
--- without policies.
policy.trail = host.policy.trail

--- The handler of a call runs a second time, as the body of a task: its policies run in the phase "run".
policy.resume = host.policy.resume

-- What the runs of policies need of this library.
local helpers = {}

-- The arguments of a call of an upstream's tool, with the client's bytes.
function helpers.decoded(call)
  local args = json.preserving(host.call.params(call, true)).arguments
  return args ~= nil and args ~= json.null and args or {}
end

-- A field of the call, for a policy.
function helpers.field(call, name)
  local value = call[name]
  if type(value) ~= "function" then return value end
  return function(_, ...) return value(call, ...) end
end

-- A policy sets a field of its call.
function helpers.set(turn, name, value)
  if name ~= "args" then
    problem.raise(2, "a policy cannot set call." .. tostring(name), "a policy may set call.args; keep other values in a local")
  end
  host.policy.set_args(turn, value)
end

function helpers.series(row, decision) return host.metrics.series("policy", row.name, decision) end

-- The decision that an error is; nil for one that ends the task.
function helpers.decision(err)
  if host.task.is_ending(err) then return nil end
  return (failure.is_expected(err) or failure.is_refused(err) or failure.is_missing(err)) and "refused" or failure.is_input(err) and "passed" or "fault"
end

function helpers.concerns(row, uri) return concerns(row, "resources", uri) end

function helpers.is_silent(row)
  silent.warn(row, "policy returned nothing", { policy = row.name }, "its clients get an empty result: write 'return next(call)'")
end

function helpers.span(row)
  if row then return host.trace.begin("policy", row.name) end
  return host.trace.begin "handler"
end

host.policy.begin(helpers)

local MOST_AROUND = 128          -- policies around a thing: each takes a part of the stack of C, which Lua limits (LUAI_MAXCCALLS)

-- `is_later`: the arguments are those that the client sent, which are decoded when a policy reads them; `inner` gets nil for
-- arguments that none has read.
local function around(kind, thing, found, inner, phase, is_later)
  if #found > MOST_AROUND then
    return function() error(("%d policies are around it, and at most %d can be"):format(#found, MOST_AROUND), 0) end
  end
  -- for arguments that a policy had in its hands: they are checked against the input schema again
  local function checked(args, call)
    local check = thing.check
    if check then
      local fits, why = check(args)
      if not fits then error("a policy changed the arguments, and they do not fit: " .. arguments.explain(thing.input, args, why), 0) end
    end
    return inner(args, call)
  end
  return host.policy.around {
    kind = kinds[kind], name = thing.name, upstream = thing.upstream, phase = phase, rows = found, inner = inner, checked = checked, is_later = is_later,
  }
end

--- Runs one policy alone around answer(args), for specs. `about`: { tool | resource | prompt, args }.
function policy.try(row, call, about, answer)
  local kind = about.tool and "tool" or about.prompt and "prompt" or "resource"
  local turn = host.policy.turn({ kind = kind, name = about[kind], upstream = about.upstream, rows = {} }, about.args or {}, call, about.resource)
  return row.handler(turn, function() return answer(host.policy.args(turn)) end, row.gets_row and row or nil)
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
