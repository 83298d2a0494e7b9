-- A site is one schema while it is compiled. Functions of keywords read the schema through it, with errors that name
-- the place, and add steps (value, run, seen) -> boolean: for values of one kind, for all values, or to run after all
-- others (late).
local digits = require "moonpool.runtime.digits"
local failure = require "moonpool.schema.failure"
local library = require "moonpool.schema.library"
local sorted = require "moonpool.runtime.sorted_keys"
local value = require "moonpool.schema.value"

local fault, refuse, give_up, spend = failure.fault, failure.refuse, failure.give_up, failure.spend
local kind_of, is_integer, articles = value.kind_of, value.is_integer, value.articles
local type = type

local site = {}
site.__index = site

function site.new(compiler, node)
  return setmetatable({
    compiler = compiler, node = node,
    steps = { all = {}, string = {}, number = {}, object = {}, array = {}, boolean = {}, null = {} },
    late = { object = {}, array = {} },
  }, site)
end

local function always() return true end
site.always = always

local function never(_, run) return refuse(run, "false", "is not allowed") end
site.never = never

function site:get(keyword) return self.node.words[keyword] end

function site:fault(keyword, text, ...) fault(self.node.where .. "/" .. keyword, text, ...) end

function site:add(kind, step) table.insert(self.steps[kind], step) end

function site:add_to_all(step) table.insert(self.steps.all, step) end

function site:add_late(kind, step)
  self.gathers = true
  table.insert(self.late[kind], step)
end

function site:number(keyword)
  local v = self:get(keyword)
  if v ~= nil and (type(v) ~= "number" or v ~= v) then self:fault(keyword, "must be a number, not %s", articles[kind_of(v)]) end
  return v
end

function site:size(keyword)
  local v = self:number(keyword)
  if v and (v < 0 or not is_integer(v)) then self:fault(keyword, "must be a whole number, 0 or more, not %s", v) end
  return v
end

--- A function that tells a number of things in words: "1 item", "3 items".
function site.counted(one, many)
  return function(n) return n == 1 and "1 " .. one or ("%.0f %s"):format(n, many) end
end

--- Adds the check of the keywords min… and max… with the ending `word` to values of a kind. `in_words`: of site.counted;
--- `count_of(v, run)`: the size of a value, or false if the steps of the run are used up.
function site:add_sizes(kind, word, in_words, count_of)
  local least_word, most_word = "min" .. word, "max" .. word
  local least, most = self:size(least_word), self:size(most_word)
  if not (least or most) then return end
  least, most = least or 0, most or math.huge
  local too_few = "must have at least " .. in_words(least) .. ", got "
  local too_many = "must have at most " .. in_words(most) .. ", got "
  self:add(kind, function(v, run)
    local count = count_of(v, run)
    if not count then return false end
    if count < least then return refuse(run, least_word, too_few, digits[count] or count) end
    if count > most then return refuse(run, most_word, too_many, digits[count] or count) end
    return true
  end)
end

function site:check_names(names, keyword)
  if not library.is_list(names) then self:fault(keyword, "must be a list of names, not %s", articles[kind_of(names)]) end
  for _, name in ipairs(names) do
    if type(name) ~= "string" then self:fault(keyword, "must be a list of names; %s is in it", articles[kind_of(name)]) end
  end
  return names
end

function site:names(keyword)
  local names = self:get(keyword)
  if names ~= nil then return self:check_names(names, keyword) end
end

-- Enters a resource while `check` runs, so that $dynamicRef can find it.
local function entering(scope, check)
  return function(v, run, seen)
    local top = run.top + 1
    run.top, run[top] = top, scope
    local good = check(v, run, seen)
    run.top = top - 1
    return good
  end
end

function site:check_of(schema)
  local target = library.node_of(schema, self.node.scope)
  if type(target) == "boolean" then return target and always or never end
  local check = self.compiler:check(target)
  if self.compiler.dynamic and target.scope ~= self.node.scope then return entering(target.scope, check) end
  return check
end

function site:schema(keyword)
  local schema = self:get(keyword)
  if schema ~= nil then return self:check_of(schema) end
end

function site:schemas(keyword)
  local list = self:get(keyword)
  if list == nil then return nil end
  local checks = {}
  for i = 1, #list do checks[i] = self:check_of(list[i]) end
  return checks
end

-- The names in order, and the checks of their schemas.
function site:schema_map(keyword)
  local map = self:get(keyword)
  if map == nil then return nil end
  local names, checks = sorted(map), {}
  for i, name in ipairs(names) do checks[i] = self:check_of(map[name]) end
  return names, checks
end

-- A check that calls the check of another node, which may not be compiled yet.
function site.follow_node(node)
  return function(v, run, seen)
    local depth = run.depth + 1
    if not spend(run, 1) then return false end
    if depth > failure.DEPTH then return give_up(run, "makes its schema refer to itself without end") end
    run.depth = depth
    local good = node.check(v, run, seen)
    run.depth = depth - 1
    return good
  end
end

function site:follow(target)
  if type(target) == "boolean" then return target and always or never end
  self.compiler:want(target)
  local check = site.follow_node(target)
  if self.compiler.dynamic and target.scope ~= self.node.scope then return entering(target.scope, check) end
  return check
end

return site
