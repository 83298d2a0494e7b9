-- Explains why a value fits none of several alternatives, so that a person or a model can correct it.
local failure = require "moonpool.schema.failure"

local forms = {}

local sub, concat = string.sub, table.concat
local math_type, type = math.type, type

local MAX_WORDS <const> = 12 -- alternatives that are named

-- How closely a value matched an alternative, from its failure: a wrong type at the top least, a wrong tag more, any
-- other failure most.
local function rank_of(keyword, levels)
  if keyword == "type" and levels == 0 then return 0 end
  if keyword == "const" or keyword == "enum" then return 1 end
  return 2
end

-- What an alternative wants, from its failure, if that is one of the type or of a constant: "a string".
local function wanted(run)
  if run.levels > 0 then return nil end
  if run.keyword == "const" then return sub(run.text, #"must be " + 1) end
  return run.keyword == "type" and run.got ~= nil and sub(run.text, #"must be " + 1, -#", got " - 1) or nil
end

local function has(list, text)
  for i = 1, #list do
    if list[i] == text then return true end
  end
  return false
end

-- "must be a string or null, got a number".
local function refuse_all(run, keyword, expected, got)
  local count = #expected
  local last = expected[count]
  if count > 1 then last = concat(expected, ", ", 1, count - 1) .. " or " .. last end
  return failure.refuse(run, keyword, "must be " .. last .. (got and ", got " or ""), got)
end

-- The types whose values all fail for the same reason where the alternatives ask for other types.
local plain <const> = { string = true, boolean = true, integer = true }

local function type_of(v) return math_type(v) or type(v) end

-- Refuses a value of a type which an earlier value was refused for; nil if there was none.
function forms.refuse_type(run, keyword, checks, v)
  local known = checks.refused and checks.refused[type_of(v)]
  return known and failure.refuse(run, keyword, known.text, known.got)
end

-- Runs the alternatives again, this time with error texts.
function forms.refuse(run, keyword, checks, v)
  if run.quiet > 0 or run.left < 0 then return false end
  local count = #checks
  local expected, got, is_type = count <= MAX_WORDS and {} or nil, nil, true
  local form, most, levels, place, text, value
  for i = 1, count do
    if checks[i](v, run) or run.left < 0 then return false end
    local rank = rank_of(run.keyword, run.levels)
    is_type = is_type and rank == 0
    if not form or rank > most or rank == most and run.levels > levels then
      form, most, levels, text, value = i, rank, run.levels, run.text, run.got
      place = levels > 0 and failure.path(run) or "it"
    end
    local what = expected and wanted(run)
    if what and run.keyword == "type" then
      if got and run.got ~= got then what = nil else got = run.got end
    end
    if not what then
      expected = nil
    elseif not has(expected, what) then
      expected[#expected + 1] = what
    end
  end
  if count == 1 then return false end
  if expected then
    refuse_all(run, keyword, expected, got)
    local name = type_of(v)
    if is_type and plain[name] then
      checks.refused = checks.refused or {}
      checks.refused[name] = { text = run.text, got = run.got }
    end
    return false
  end
  local heads = checks.heads or {} -- the beginnings of the text, by the number of the form
  checks.heads = heads
  local head = heads[form] or ("must fit one of %s forms; nearest is form %s, but "):format(count, form)
  heads[form] = head
  return failure.refuse(run, keyword, head .. place .. " " .. text .. (value or ""))
end

return forms
