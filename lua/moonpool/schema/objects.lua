-- The keywords for objects.
local failure = require "moonpool.schema.failure"
local library = require "moonpool.schema.library"
local scalars = require "moonpool.schema.scalars"
local site = require "moonpool.schema.site"
local sorted = require "moonpool.runtime.sorted_keys"

local refuse, under, escape, spend = failure.refuse, failure.under, failure.escape, failure.spend
local kind_of = require("moonpool.schema.value").kind_of
local shown = failure.shown
local next, tostring = next, tostring

local function sizes(at)
  at:add_sizes("object", "Properties", site.counted("property", "properties"), function(v, run)
    local count = 0
    for _ in next, v do count = count + 1 end
    return spend(run, count) and count
  end)
end

local function required(at)
  local names = at:names "required"
  if not names or #names == 0 then return end
  local count = #names
  at:add("object", function(v, run)
    for i = 1, count do
      if v[names[i]] == nil then return refuse(run, "required", "must have property '", names[i] .. "'") end
    end
    return true
  end)
end

local function properties(at)
  local names, checks = at:schema_map "properties"
  if not names or #names == 0 then return end
  local count = #names
  if at.node == at.compiler.root then at.compiler:keep_members(names, checks) end
  at:add("object", function(v, run, seen)
    local left = run.left - count
    if left >= 0 then run.left = left elseif not spend(run, count) then return false end
    for i = 1, count do
      local name = names[i]
      local item = v[name]
      if item ~= nil then
        if not checks[i](item, run) then return under(run, name) end
        if seen then seen[name] = true end
      end
    end
    return true
  end)
end

-- Visits all members; visit(member) returns true if the member is valid. Members have no order, so if the failure will
-- be read, the members are visited again in the order of names: equal values get equal messages.
local function visit_all(v, run, seen, visit)
  if run.left < 0 then return false end
  run.quiet = run.quiet + 1
  local good, count = true, 0
  for name, item in next, v do
    count = count + 1
    if not visit(name, item, run, seen) then
      good = false
      break
    end
  end
  run.quiet = run.quiet - 1
  if not spend(run, count) then return false end
  if good or run.quiet > 0 then return good end
  local by_text = {}
  for name in next, v do by_text[tostring(name)] = name end
  for _, text in ipairs(sorted(v)) do
    local name = by_text[text]
    if not visit(name, v[name], run, seen) then return false end
  end
  return false
end

local function not_allowed(keyword, names)
  local hint = names and #names > 0 and #names <= 8 and "'; it may have '" .. table.concat(names, "', '") .. "'" or "'"
  return function(name, _, run) return refuse(run, keyword, "must not have property '", shown(name) .. hint) end
end

-- Checks the members that `properties` does not name.
local function remainder(at, keyword, names)
  local schema = at:get(keyword)
  if schema == false then return not_allowed(keyword, names) end
  local check = schema ~= nil and at:schema(keyword)
  return check and function(name, item, run) return check(item, run) or under(run, name) end
end

-- The check for a schema with `properties` only: the most common case, which needs no visits.
local function closed(at, known, refuse_name)
  at:add("object", function(v, run, seen)
    local count, first = 0, nil
    for name in next, v do
      count = count + 1
      if not known[name] and (not first or tostring(name) < tostring(first)) then first = name end
    end
    if not spend(run, count) then return false end
    if first ~= nil then return refuse_name(first, nil, run) end
    if seen then seen[true] = true end
    return true
  end)
end

local function others(at)
  local names = at:schema_map "properties" or {}
  local patterns, pattern_checks = at:schema_map "patternProperties"
  local rest = remainder(at, "additionalProperties", not patterns and names)
  if not (patterns or rest) then return end
  local known, matchers = {}, {}
  for _, name in ipairs(names) do known[name] = true end
  if not patterns and at:get "additionalProperties" == false then return closed(at, known, rest) end
  for i, pattern in ipairs(patterns or {}) do
    matchers[i] = scalars.matcher(at, pattern, "patternProperties/" .. escape(pattern))
  end
  local function visit(name, item, run, seen)
    local named = known[name]
    for i = 1, #matchers do
      if matchers[i](tostring(name), run) then
        if not pattern_checks[i](item, run) then return under(run, name) end
        if seen then seen[name] = true end
        named = true
      end
    end
    return named or not rest or rest(name, item, run)
  end
  at:add("object", function(v, run, seen)
    if not visit_all(v, run, seen, visit) then return false end
    if seen and rest then seen[true] = true end
    return true
  end)
end

local function property_names(at)
  local check = at:schema "propertyNames"
  if not check then return end
  local function visit(name, _, run)
    if check(tostring(name), run) then return true end
    return run.quiet == 0
      and refuse(run, "propertyNames", "must not have property '" .. shown(name) .. "': the name " .. failure.message(run))
  end
  at:add("object", function(v, run) return visit_all(v, run, nil, visit) end)
end

local function depends_on_names(at, keyword, name, needed)
  at:check_names(needed, keyword)
  at:add("object", function(v, run)
    if v[name] == nil then return true end
    for i = 1, #needed do
      if v[needed[i]] == nil then
        return refuse(run, keyword, "must have property '" .. needed[i] .. "' when it has '" .. name .. "'")
      end
    end
    return true
  end)
end

local function depends_on_schema(at, name, check)
  at:add("object", function(v, run, seen)
    if v[name] == nil then return true end
    return spend(run, 1) and check(v, run, seen)
  end)
end

local function dependencies(at)
  for _, keyword in ipairs { "dependentRequired", "dependentSchemas", "dependencies" } do
    local map = at:get(keyword)
    if map ~= nil then
      if kind_of(map) ~= "object" then at:fault(keyword, "must be an object") end
      for _, name in ipairs(sorted(map)) do
        if keyword == "dependentRequired" or keyword == "dependencies" and library.is_list(map[name]) then
          depends_on_names(at, keyword, name, map[name])
        else
          depends_on_schema(at, name, at:check_of(map[name]))
        end
      end
    end
  end
end

-- Runs after all other keywords of the schema.
local function unevaluated(at)
  local rest = remainder(at, "unevaluatedProperties")
  if not rest then return end
  local function visit(name, item, run, seen) return seen[name] or rest(name, item, run) end
  at:add_late("object", function(v, run, seen)
    if seen[true] then return true end
    if not visit_all(v, run, seen, visit) then return false end
    seen[true] = true
    return true
  end)
end

-- Members are checked before the set of names: among alternatives, the one with the right tag then gives the best
-- explanation.
return function(at)
  properties(at)
  required(at)
  others(at)
  sizes(at)
  property_names(at)
  dependencies(at)
  unevaluated(at)
end
