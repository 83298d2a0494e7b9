-- Compiles a schema to a check: a closure (value, run, seen) -> boolean. `seen` is nil, or a table that records which
-- members of the value were evaluated, for `unevaluated…`: names, or indexes of items, or `true` for all of them.
local json = require "moonpool.json"
local arrays = require "moonpool.schema.arrays"
local combine = require "moonpool.schema.combine"
local failure = require "moonpool.schema.failure"
local objects = require "moonpool.schema.objects"
local scalars = require "moonpool.schema.scalars"
local site = require "moonpool.schema.site"
local value = require "moonpool.schema.value"

local refuse = failure.refuse
local kind_of, opened, is_integer, articles = value.kind_of, value.opened, value.is_integer, value.articles
local type, next, getmetatable, array_mt, empty_array = type, next, getmetatable, json.array_mt, json.empty_array

local KINDS <const> = { "string", "number", "object", "array", "boolean", "null" }
local TYPES <const> = { string = true, number = true, integer = true, object = true, array = true, boolean = true, null = true }

local function read_types(here)
  local types = here:get "type"
  if types == nil then return nil end
  if type(types) == "string" then types = { types } end
  if kind_of(types) ~= "array" or #types == 0 then here:fault("type", "must be a type or a list of types") end
  local allowed, texts = {}, {}
  for i = 1, #types do
    local name = types[i]
    if not TYPES[name] then
      here:fault("type", "there is no type %s; types are string, number, integer, boolean, object, array, null", value.quote(name))
    end
    allowed[name] = true
    texts[i] = articles[name]
  end
  local last = table.remove(texts)
  return allowed, #texts > 0 and table.concat(texts, ", ") .. " or " .. last or last
end

local function run_list(list)
  local count = #list
  if count == 0 then return site.always end
  if count == 1 then return list[1] end
  if count <= 3 then
    local first, second, third = table.unpack(list)
    return function(v, run, seen) return first(v, run, seen) and second(v, run, seen) and (not third or third(v, run, seen)) end
  end
  return function(v, run, seen)
    for i = 1, count do
      if not list[i](v, run, seen) then return false end
    end
    return true
  end
end

-- A check for values of one kind: the type, then the steps. The kind of a table is looked at last: arrays of JSON have
-- `array_mt`, and most objects of JSON no metatable.
local function single(kind, steps, expected)
  local wrong_type = "must be " .. expected .. ", got "
  local function is_wrong(v, run)
    local got = kind_of(v)
    return got ~= kind and not refuse(run, "type", wrong_type, articles[got])
  end
  if kind == "array" then
    return function(v, run, seen)
      if getmetatable(v) ~= array_mt and is_wrong(v, run) then return false end
      return steps(v == empty_array and opened(v) or v, run, seen)
    end
  end
  if kind == "object" then
    return function(v, run, seen)
      if (type(v) ~= "table" or v[1] ~= nil or getmetatable(v) ~= nil) and is_wrong(v, run) then return false end
      return steps(v, run, seen)
    end
  end
  if kind == "null" then return function(v, run, seen) return not is_wrong(v, run) and steps(v, run, seen) end end
  return function(v, run, seen)
    if type(v) ~= kind then return refuse(run, "type", wrong_type, articles[kind_of(v)]) end
    return steps(v, run, seen)
  end
end

local function several(by_kind, expected)
  local wrong_type = expected and "must be " .. expected .. ", got "
  return function(v, run, seen)
    local kind = type(v)
    if kind == "table" or kind == "userdata" then kind, v = kind_of(v), opened(v) end
    local steps = by_kind[kind]
    if not steps then return refuse(run, "type", wrong_type or "must be a JSON value", wrong_type and articles[kind]) end
    return steps(v, run, seen)
  end
end

-- Records the members that `check` evaluates, even if the schema around it does not need the record, and passes the
-- record on.
local function gathering(check)
  return function(v, run, outer)
    local kind = kind_of(v)
    if kind ~= "object" and kind ~= "array" then return check(v, run) end
    local seen = {}
    if not check(v, run, seen) then return false end
    if outer then
      for key in next, seen do outer[key] = true end
    end
    return true
  end
end

local function assemble(here)
  local allowed, expected = read_types(here)
  local by_kind, kinds = {}, {}
  for _, kind in ipairs(KINDS) do
    local whole = kind == "number" and allowed and allowed.integer and not allowed.number
    if not allowed or allowed[kind] or whole then
      local list = {}
      if whole then
        local text = "must be " .. expected .. ", got "
        list[1] = function(v, run) return is_integer(v) or refuse(run, "type", text, v) end
      end
      for _, steps in ipairs { here.steps[kind], here.steps.all, here.late[kind] } do
        table.move(steps, 1, #steps, #list + 1, list)
      end
      by_kind[kind] = run_list(list)
      kinds[#kinds + 1] = kind
    end
  end
  local check
  if #kinds == 1 then
    check = single(kinds[1], by_kind[kinds[1]], expected)
  else
    check = several(by_kind, expected)
  end
  return here.gathers and gathering(check) or check
end

local compiler = {}
compiler.__index = compiler

local concerns = { scalars, objects, arrays, combine }

-- `books` is the library, with all references resolved.
function compiler.new(books)
  return setmetatable({ books = books, dynamic = books.dynamic, wanted = {} }, compiler)
end

function compiler:want(node)
  if not node.check then self.wanted[#self.wanted + 1] = node end
end

function compiler:check(node)
  if node.check then return node.check end
  if node.started then return site.follow_node(node) end
  node.started = true
  local here = site.new(self, node)
  for _, concern in ipairs(concerns) do concern(here) end
  node.check = assemble(here)
  return node.check
end

-- Keeps the checks of the root's `properties`, by name.
function compiler:keep_members(names, checks)
  self.members = {}
  for i, name in ipairs(names) do self.members[name] = checks[i] end
end

-- Compiles a root schema and all schemas that it refers to.
function compiler:compile(root)
  if type(root) == "boolean" then return root and site.always or site.never end
  self.root = root
  local check = self:check(root)
  while #self.wanted > 0 do self:check(table.remove(self.wanted)) end
  return check
end

return compiler
