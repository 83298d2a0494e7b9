-- The revisions of MCP. Handlers speak the base revision: they get its params and give its results. Each revision has a
-- file here, named for its date, that says how it differs from its neighbour `from`, the next revision on the way to
-- the base. The base has no `from`. So a new revision is one file, with `from` the newest one so far, and one row of
-- the table in C (mp_eras), which says whether it is stateless.
--   from              the date of the neighbour
--   methods           { name = true | false }: methods that this revision adds, or lacks
--   convert_result    { method | "*" = function(result, tools) }: changes a result of the neighbour into one of this revision, in
--                     place. `tools`, name -> tool, comes with tools/list only
--   convert_params    { method = function(params) }: changes params of this revision into the neighbour's, in place
--   convert_request   { method = function(params) | false }: gives the params of a request to the client as this revision has them,
--                     from the neighbour's; nil where they cannot be expressed. false: this revision lacks the request
--   any other field   a fact, which holds for the revisions behind this one too, until one of them says otherwise

local revisions = require "moonpool.revisions"

local era = {}

-- Fields of a revision's file that are not facts.
local is_difference = { from = true, methods = true, convert_result = true, convert_params = true, convert_request = true }

local stateless = {}     -- date -> true | false, for all revisions

--- The dates of all revisions, newest first.
era.dates = {}
for i = #revisions, 1, -1 do
  era.dates[#era.dates + 1], stateless[revisions[i].date] = revisions[i].date, revisions[i].stateless
end

--- The date of the newest revision.
era.newest = era.dates[1]

local function newest_where(is_stateless)
  for _, date in ipairs(era.dates) do
    if stateless[date] == is_stateless then return date end
  end
end

--- The dates of the newest revisions without and with sessions.
era.newest_stateless, era.newest_stateful = newest_where(true), newest_where(false)

--- The dates of all stateless revisions, newest first: those that a client may name in a request without `initialize`.
function era.supported()
  local dates = {}
  for _, date in ipairs(era.dates) do
    if stateless[date] then dates[#dates + 1] = date end
  end
  return dates
end

--- Two booleans: whether the date is a stateless revision, and whether it is one with sessions. Both are false for an
--- unknown date.
function era.is_stateless(date) return stateless[date] == true end
function era.is_stateful(date) return stateless[date] == false end

-- The files from the base to `date`, in the order in which their differences apply.
local function path_to(date)
  local file = require("moonpool.protocol.era." .. date)
  local path = file.from and path_to(file.from) or {}
  path[#path + 1] = file
  return path
end

local all_facts = {}

--- The facts of a revision: { date =, stateless =, … }; nil for an unknown date.
function era.facts(date)
  if stateless[date] == nil then return nil end
  if not all_facts[date] then
    local facts = {}
    for _, file in ipairs(path_to(date)) do
      for name, value in pairs(file) do
        if not is_difference[name] then facts[name] = value end
      end
    end
    facts.date, facts.stateless = date, stateless[date]
    all_facts[date] = facts
  end
  return all_facts[date]
end

--- The params of a request to a client of revision `date`; nil if the revision cannot express them. A client that has
--- named no revision counts as one of the newest stateful revision.
function era.request_params(date, method, params)
  for _, file in ipairs(path_to(stateless[date] ~= nil and date or era.newest_stateful)) do
    local convert = file.convert_request and file.convert_request[method]
    if convert == false then return nil end
    if convert then params = convert(params) end
    if not params then return nil end
  end
  return params
end

-- One function that calls all of `steps` in their order; nil if there are no steps.
local function chain(steps)
  if #steps <= 1 then return steps[1] end
  return function(value, ...)
    for i = 1, #steps do steps[i](value, ...) end
  end
end

-- The rules for a method in the files of `path`: whether the revision has the method, and the steps that convert from
-- and to the base.
local function compose_method(path, name, run)
  local has, results, params = false, {}, {}
  for i = 1, #path do
    local file = path[i]
    local own = file.methods and file.methods[name]
    if own ~= nil then has = own end
    local convert = file.convert_result or {}
    results[#results + 1] = convert["*"]
    results[#results + 1] = convert[name]
  end
  for i = #path, 1, -1 do params[#params + 1] = path[i].convert_params and path[i].convert_params[name] end
  return has and { run = run, convert_params = chain(params), convert_result = chain(results) } or nil
end

--- All revisions for a table of method functions: date -> { facts, methods = { name -> { run, convert_params,
--- convert_result } } }.
function era.compose(methods)
  local rows = {}
  for _, date in ipairs(era.dates) do
    local row, path = { methods = {} }, path_to(date)
    for name, value in pairs(era.facts(date)) do row[name] = value end
    for name, run in pairs(methods) do row.methods[name] = compose_method(path, name, run) end
    rows[date] = row
  end
  return rows
end

return era
