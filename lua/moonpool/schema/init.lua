-- JSON Schema: compiles a schema to a function. Dialects 2020-12 and draft-07; `format` is an annotation; no schema is
-- fetched.
--
--   local check = assert(schema.compile({ type = "object", required = { "a" } }))
--   check(value)  -> true  |  nil, { message = "must have property 'a'", path = "", keyword = "required" }
--
-- `message` begins with a verb ("must be …", "is not allowed") so that it can follow the name of the value; `path` is a
-- JSON pointer into the value. For a schema that cannot be compiled: nil and why, with the place: "… (#/properties/a)".
local compiler = require "moonpool.schema.compile"
local dialect = require "moonpool.schema.dialect"
local failure = require "moonpool.schema.failure"
local library = require "moonpool.schema.library"
local refs = require "moonpool.schema.refs"
local weigh = require "moonpool.schema.weight"

local STEPS <const> = failure.STEPS

local schema = {}

-- A run that is reused. While a check runs it is marked as taken, so that a check which ends in an error or never ends
-- cannot disturb another.
local spare

local function fault_of(run)
  if run.left < 0 then
    run.quiet = 0
    failure.refuse(run, "limit", run.why or "takes too long to check against its schema")
  end
  return {
    message = failure.message(run), path = failure.path(run), keyword = run.keyword, text = run.text, got = run.got,
    levels = run.levels, keys = table.move(run.keys, 1, run.levels, 1, {}),
  }
end

local function begin(root)
  local run = spare or { keys = {} }
  spare = nil
  run.left, run.depth, run.quiet, run.why = STEPS, 0, 0, nil
  run.text, run.got, run.keyword, run.levels = "", nil, "", 0 -- the failure of a run whose steps run out
  run.top, run[1] = 1, root
  return run
end

local function checker(check, root)
  return function(value)
    local run = begin(root)
    run.value = value
    local good = check(value, run) and run.left >= 0
    local fault = not good and fault_of(run) or nil
    run.value = nil
    spare = run
    if good then return true end
    return nil, fault
  end
end

-- A function members(list, f, a, b, c) that checks members alone, each by what `properties` of the root says of its name:
-- calls f(a, b, c, name, value, failure, way) for each of `list`, { name, value, way, … }, that does not fit, until f
-- returns true. `way`, unless it is nil, leads to `value` inside the member: a list of a table whose `check` is that of the
-- value's schema, and of the keys.
-- The failure is that of a check, and may change behind the call. As in a check of the whole value, all members up to one
-- that does not fit share the steps of a run. Returns the failure of a run whose steps ran out, or false if a value inside
-- a member fits; nothing else was checked then.
local function member_checker(checks, root)
  return function(list, f, a, b, c)
    local run, ended, i, name = begin(root), nil, 1, list[1]
    repeat
      local value, way = list[i + 1], list[i + 2]
      run.value = value
      local fits = (way and way[1].check or checks[name])(value, run)
      if run.left < 0 then
        ended = fault_of(run)
      elseif fits then
        if way then ended = false end
      else
        if f(a, b, c, name, value, run, way) then break end
        run.left = STEPS
      end
      i = i + 3
      name = list[i]
    until ended ~= nil or not name
    run.value = nil
    spare = run
    return ended
  end
end

local function build(source, options)
  local known = dialect.named(options.default_dialect or "2020-12")
  if not known then
    failure.fault("default_dialect", "dialect %q is not known; known are 2020-12 and draft-07", options.default_dialect)
  end
  local books = library.new(options.resources or {}, known)
  local root = books:open(source, "", "#", nil, 1)
  refs.resolve(books)
  weigh(books)
  local compilation, node = compiler.new(books), library.node_of(source, root)
  local check = checker(compilation:compile(node), root)
  return check, compilation.members and member_checker(compilation.members, root), function(part) return library.node_of(part, root).check end
end

-- compile(schema[, { default_dialect = "2020-12" | "draft-07", resources = { uri = schema } }]) -> check, members, check_of | nil, why
-- `members`: of member_checker; check_of(part) is the check (value, run) of a part of the schema.
function schema.compile(source, options)
  local good, result, members, check_of = pcall(build, source, options or {})
  if good then return result, members, check_of end
  if type(result) == "table" and result.fault then return nil, result.fault end
  error(result, 0)
end

return schema
