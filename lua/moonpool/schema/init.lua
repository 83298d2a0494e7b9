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
    return { message = run.why or "takes too long to check against its schema", path = "", keyword = "limit" }
  end
  return { message = run.message, path = run.path, keyword = run.keyword }
end

local function begin(root)
  local run = spare or {}
  spare = nil
  run.left, run.depth, run.quiet, run.why = STEPS, 0, 0, nil
  run.message, run.keyword, run.path = "", "", "" -- the error texts of a run whose steps run out
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
-- calls f(a, b, c, name, value, failure) for each of `list`, { name, value, … }, that does not fit, until f returns true.
-- The failure is that of a check, and may change behind the call. As in a check of the whole value, all members up to one
-- that does not fit share the steps of a run. Returns the failure of a run whose steps ran out; nothing else was checked
-- then.
local function member_checker(checks, root)
  return function(list, f, a, b, c)
    local run, ended = begin(root), nil
    for i = 1, #list, 2 do
      local name, value = list[i], list[i + 1]
      run.value = value
      local fits = checks[name](value, run)
      if run.left < 0 then
        ended = fault_of(run)
        break
      end
      if not fits then
        if f(a, b, c, name, value, run) then break end
        run.left = STEPS
      end
    end
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
  local compilation = compiler.new(books)
  local check = checker(compilation:compile(library.node_of(source, root)), root)
  return check, compilation.members and member_checker(compilation.members, root)
end

-- compile(schema[, { default_dialect = "2020-12" | "draft-07", resources = { uri = schema } }]) -> check, members | nil, why
function schema.compile(source, options)
  local good, result, members = pcall(build, source, options or {})
  if good then return result, members end
  if type(result) == "table" and result.fault then return nil, result.fault end
  error(result, 0)
end

return schema
