-- The keywords enum and const, and those for numbers and strings.
local regex = require "moonpool.regex"
local digits = require "moonpool.runtime.digits"
local failure = require "moonpool.schema.failure"
local library = require "moonpool.schema.library"
local site = require "moonpool.schema.site"
local value = require "moonpool.schema.value"

local refuse, give_up, spend = failure.refuse, failure.give_up, failure.spend
local utf8_len, math_type = utf8.len, math.type

-- The number of pieces (names, scalars) allowed in all values of one enum.
local PIECES <const> = 10000

local function one_of(at, keyword, wanted, reason)
  local scalars, tables, weight = {}, {}, 0
  for i = 1, #wanted do
    local v = wanted[i]
    if type(v) == "table" then
      local text, pieces = value.fingerprint(v, PIECES)
      weight = weight + pieces
      if not text or weight > PIECES then at:fault(keyword, "is too large") end
      tables[#tables + 1] = v
    elseif v == v then
      scalars[v] = true
    end
  end
  local has_tables = tables[1] ~= nil
  at:add_to_all(function(v, run)
    if scalars[v] then return true end
    if has_tables and type(v) == "table" then
      if not spend(run, weight) then return false end
      for i = 1, #tables do
        if value.equal(tables[i], v) then return true end
      end
    end
    return refuse(run, keyword, reason)
  end)
end

local function choices(at)
  local enum = at:get "enum"
  if enum ~= nil then
    if not library.is_list(enum) then at:fault("enum", "must be a list of values") end
    local shown = {}
    for i = 1, #enum do
      if i > 12 then
        shown[i] = "…"
        break
      end
      shown[i] = value.quote(enum[i])
    end
    local text = "must be " .. (#shown > 1 and "one of " or "") .. table.concat(shown, ", ")
    one_of(at, "enum", enum, #shown > 0 and text or "is not allowed")
  end
  local const = at:get "const"
  if const ~= nil then one_of(at, "const", { const }, "must be " .. value.quote(const)) end
end

local bounds = {
  minimum = function(bound)
    local text = ("must be at least %s, got "):format(bound)
    return function(v, run) return v >= bound or refuse(run, "minimum", text, math_type(v) == "integer" and digits[v] or v) end
  end,
  exclusiveMinimum = function(bound)
    local text = ("must be more than %s, got "):format(bound)
    return function(v, run) return v > bound or refuse(run, "exclusiveMinimum", text, math_type(v) == "integer" and digits[v] or v) end
  end,
  maximum = function(bound)
    local text = ("must be at most %s, got "):format(bound)
    return function(v, run) return v <= bound or refuse(run, "maximum", text, math_type(v) == "integer" and digits[v] or v) end
  end,
  exclusiveMaximum = function(bound)
    local text = ("must be less than %s, got "):format(bound)
    return function(v, run) return v < bound or refuse(run, "exclusiveMaximum", text, math_type(v) == "integer" and digits[v] or v) end
  end,
}

local function numbers(at)
  for _, keyword in ipairs { "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum" } do
    local bound = at:number(keyword)
    if bound then at:add("number", bounds[keyword](bound)) end
  end
  local step = at:number "multipleOf"
  if step then
    if step <= 0 or step == math.huge then at:fault("multipleOf", "must be more than 0, not %s", step) end
    local text = ("must be a multiple of %s, got "):format(step)
    at:add("number", function(v, run) return value.is_multiple(v, step) or refuse(run, "multipleOf", text, v) end)
  end
end

local function lengths(at)
  at:add_sizes("string", "Length", site.counted("character", "characters"), function(v, run)
    return (#v < 64 or spend(run, #v // 64)) and (utf8_len(v) or #v)
  end)
end

-- A compiled pattern as function (text, run) -> boolean. A text for which matching takes too long ends the run.
local function matcher(at, pattern, keyword)
  if type(pattern) ~= "string" then at:fault(keyword, "must be a string, not %s", value.articles[value.kind_of(pattern)]) end
  local compiled, why = regex.compile(pattern)
  if not compiled then at:fault(keyword, "pattern %q: %s", failure.shown(pattern), why) end
  return function(text, run)
    if not spend(run, #text // 64 + 1) then return false end
    local found, problem = compiled:test(text)
    if problem == "limit" then return give_up(run, "takes too long to match against the pattern " .. value.quote(pattern)) end
    return found
  end
end

local function patterns(at)
  local pattern = at:get "pattern"
  if pattern == nil then return end
  local matches = matcher(at, pattern, "pattern")
  local text = "must match the pattern " .. value.quote(pattern)
  at:add("string", function(v, run) return matches(v, run) or refuse(run, "pattern", text) end)
end

return setmetatable({ matcher = matcher }, {
  __call = function(_, at)
    choices(at)
    numbers(at)
    lengths(at)
    patterns(at)
  end,
})
