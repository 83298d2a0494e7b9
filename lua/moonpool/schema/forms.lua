-- Explains why a value fits none of several alternatives, so that a person or a model can correct it.
local failure = require "moonpool.schema.failure"

local forms = {}

-- How closely a value matched an alternative, from its failure: a wrong type at the top least, a wrong tag more, any
-- other failure most.
local function rank(fault)
  if fault.keyword == "type" and fault.path == "" then return 0 end
  if fault.keyword == "const" or fault.keyword == "enum" then return 1 end
  return 2
end

local function depth(fault)
  return select(2, fault.path:gsub("/", ""))
end

local function closer(a, b)
  if rank(a) ~= rank(b) then return rank(a) > rank(b) end
  return depth(a) > depth(b)
end

-- "must be a string or null, got a number", if all alternatives failed by the type.
local function joined(faults)
  local expected, met, got = {}, {}, nil
  for i, fault in ipairs(faults) do
    if fault.path ~= "" or fault.keyword ~= "type" and fault.keyword ~= "const" then return nil end
    local what, found = fault.message:match "^must be (.*), got (.-)$"
    if fault.keyword == "const" then what, found = fault.message:match "^must be (.*)$", got end
    if not what or i > 12 or got and found ~= got then return nil end
    got = got or found
    if not met[what] then expected[#expected + 1] = what end
    met[what] = true
  end
  local last = table.remove(expected)
  local text = "must be " .. (#expected > 0 and table.concat(expected, ", ") .. " or " or "") .. last
  return got and text .. ", got " .. got or text
end

-- Runs the alternatives again, this time with error texts.
function forms.refuse(run, keyword, checks, v)
  if run.quiet > 0 or run.left < 0 then return false end
  local faults, nearest = {}, nil
  for i, check in ipairs(checks) do
    if check(v, run) or run.left < 0 then return false end
    local fault = { message = run.message, keyword = run.keyword, path = run.path, form = i }
    faults[i] = fault
    if not nearest or closer(fault, nearest) then nearest = fault end
  end
  if #faults == 1 then return false end
  local text = joined(faults)
  if text then return failure.refuse(run, keyword, text) end
  local place = nearest.path == "" and "it" or nearest.path
  local reason = "must fit one of %s forms; nearest is form %s, but %s %s"
  return failure.refuse_with(run, keyword, reason, #faults, nearest.form, place, nearest.message)
end

return forms
