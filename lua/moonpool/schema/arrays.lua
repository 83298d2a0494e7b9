-- The keywords for arrays.
local digits = require "moonpool.runtime.digits"
local failure = require "moonpool.schema.failure"
local site = require "moonpool.schema.site"
local value = require "moonpool.schema.value"

local opened = value.opened
local refuse, under, give_up, spend = failure.refuse, failure.under, failure.give_up, failure.spend

local items_text = site.counted("item", "items")

local function sizes(at) at:add_sizes("array", "Items", items_text, function(v) return #v end) end

-- Checks the items from index `first` on.
local function check_items(v, run, check, first)
  local count = #v
  if not spend(run, count) then return false end
  for i = first, count do
    if not check(v[i], run) then return under(run, i - 1) end
  end
  return true
end

local function items(at)
  local prefix_word, rest_word = "prefixItems", "items"
  if at.node.scope.dialect.old and value.kind_of(at:get "items") == "array" then
    prefix_word, rest_word = "items", "additionalItems"
  end
  local prefix = at:schemas(prefix_word)
  local rest = at:schema(rest_word)
  local prefix_count = prefix and #prefix or 0
  if prefix_count > 0 then
    at:add("array", function(v, run, seen)
      local count = #v < prefix_count and #v or prefix_count
      if not spend(run, count) then return false end
      for i = 1, count do
        if not prefix[i](v[i], run) then return under(run, i - 1) end
        if seen then seen[i] = true end
      end
      return true
    end)
  end
  if rest then
    at:add("array", function(v, run, seen)
      if seen then seen[true] = true end
      return check_items(v, run, rest, prefix_count + 1)
    end)
  end
end

local function contains(at)
  local check = at:schema "contains"
  if not check then return end
  local least, most = at:size "minContains" or 1, at:size "maxContains" or math.huge
  local too_few = "must have at least " .. items_text(least) .. " of the kind under 'contains', got "
  local too_many = "must have at most " .. items_text(most) .. " of the kind under 'contains', got "
  at:add("array", function(v, run, seen)
    local count, found = #v, 0
    if not spend(run, count) then return false end
    run.quiet = run.quiet + 1
    for i = 1, count do
      if check(v[i], run) then
        found = found + 1
        if seen then seen[i] = true end
      end
    end
    run.quiet = run.quiet - 1
    if found < least then return refuse(run, least == 1 and "contains" or "minContains", too_few, found) end
    if found > most then return refuse(run, "maxContains", too_many, found) end
    return true
  end)
end

-- Scalars are compared as they are; arrays and objects by a text that is the same only for equal values.
local function unique(at)
  local wanted = at:get "uniqueItems"
  if wanted ~= nil and type(wanted) ~= "boolean" then at:fault("uniqueItems", "must be true or false") end
  if not wanted then return end
  at:add("array", function(v, run)
    local scalars, tables = {}, nil
    if not spend(run, #v) then return false end
    for i = 1, #v do
      local item, met = v[i], scalars
      if type(opened(item)) == "table" then
        local pieces
        item, pieces = value.fingerprint(item, run.left)
        if not spend(run, pieces + (item and #item // 64 or 0)) then return false end
        if not item then return give_up(run, "is too deep or too large to look for equal items") end
        tables = tables or {}
        met = tables
      end
      if met[item] then
        return refuse(run, "uniqueItems", "must not have equal items, but items "
          .. (digits[met[item] - 1] or met[item] - 1) .. " and " .. (digits[i - 1] or i - 1) .. " are equal")
      end
      met[item] = i
    end
    return true
  end)
end

-- Runs after all other keywords of the schema.
local function unevaluated(at)
  local check = at:schema "unevaluatedItems"
  if not check then return end
  at:add_late("array", function(v, run, seen)
    if seen[true] then return true end
    local count = #v
    if not spend(run, count) then return false end
    for i = 1, count do
      if not (seen[i] or check(v[i], run)) then return under(run, i - 1) end
    end
    seen[true] = true
    return true
  end)
end

return function(at)
  sizes(at)
  items(at)
  contains(at)
  unique(at)
  unevaluated(at)
end
