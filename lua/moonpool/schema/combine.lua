-- The keywords that apply further schemas to the same value: references, allOf, anyOf, oneOf, not, if.
local failure = require "moonpool.schema.failure"
local forms = require "moonpool.schema.forms"

local refuse, give_up, spend = failure.refuse, failure.give_up, failure.spend

local function dynamic(at, name)
  for _, scope in next, at.compiler.books.scopes do
    if scope.dynamic[name] then at.compiler:want(scope.dynamic[name]) end
  end
  local fallback = at.node.refs["$dynamicRef"]
  return function(v, run, seen)
    local target = fallback
    for i = 1, run.top do
      local outer = run[i].dynamic[name]
      if outer then
        target = outer
        break
      end
    end
    if not spend(run, 1) then return false end
    local depth, top = run.depth + 1, run.top + 1
    if depth > failure.DEPTH then return give_up(run, "makes its schema refer to itself without end") end
    run.depth, run.top, run[top] = depth, top, target.scope
    local good = target.check(v, run, seen)
    run.depth, run.top = depth - 1, top - 1
    return good
  end
end

local function references(at)
  if at:get "$ref" ~= nil then at:add_to_all(at:follow(at.node.refs["$ref"])) end
  if at:get "$dynamicRef" ~= nil then
    local name = at.node.dynamic_name
    at:add_to_all(name and dynamic(at, name) or at:follow(at.node.refs["$dynamicRef"]))
  end
end

local function all_of(at, checks)
  local count = #checks
  at:add_to_all(function(v, run, seen)
    if not spend(run, count) then return false end
    for i = 1, count do
      if not checks[i](v, run, seen) then return false end
    end
    return true
  end)
end

local function any_of(at, checks)
  local count = #checks
  at:add_to_all(function(v, run, seen)
    return spend(run, count) and forms.fits(run, "anyOf", checks, v, seen, seen and count or 1) ~= nil
  end)
end

local function one_of(at, checks)
  local count = #checks
  at:add_to_all(function(v, run, seen)
    if not spend(run, count) then return false end
    local first, second = forms.fits(run, "oneOf", checks, v, seen, 2)
    if second then
      return refuse(run, "oneOf", "must fit only one of " .. count .. " forms, but fits forms " .. first .. " and " .. second)
    end
    return first ~= nil
  end)
end

local function negation(at)
  local check = at:schema "not"
  if not check then return end
  at:add_to_all(function(v, run)
    if not spend(run, 1) then return false end
    run.quiet = run.quiet + 1
    local fits = check(v, run)
    run.quiet = run.quiet - 1
    return not fits or refuse(run, "not", "must not fit the form under 'not'")
  end)
end

local function condition(at)
  local test, yes, no = at:schema "if", at:schema "then", at:schema "else"
  if not test then return end
  at:add_to_all(function(v, run, seen)
    if not spend(run, 2) then return false end
    run.quiet = run.quiet + 1
    local fits = forms.attempt(test, v, run, seen)
    run.quiet = run.quiet - 1
    local check
    if fits then check = yes else check = no end
    return check == nil or check(v, run, seen)
  end)
end

local lists = { { "allOf", all_of }, { "anyOf", any_of }, { "oneOf", one_of } }

return function(at)
  references(at)
  for _, entry in ipairs(lists) do
    local keyword, add = table.unpack(entry)
    local checks = at:schemas(keyword)
    if checks then
      if #checks == 0 then at:fault(keyword, "must have at least one schema") end
      add(at, checks)
    end
  end
  negation(at)
  condition(at)
end
