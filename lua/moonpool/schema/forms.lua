-- Finds the alternatives that a value fits; and explains why it fits none, so that a person or a model can correct it.
local failure = require "moonpool.schema.failure"

local forms = {}

local sub, concat = string.sub, table.concat
local math_type, type, next = math.type, type, next
local refuse, path = failure.refuse, failure.path

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

local function has(list, count, text)
  for i = 1, count do
    if list[i] == text then return true end
  end
  return false
end

-- "must be a string or null, got a number".
local function refuse_all(run, keyword, expected, count, got)
  local last = expected[count]
  if count > 1 then last = concat(expected, ", ", 1, count - 1) .. " or " .. last end
  return refuse(run, keyword, "must be " .. last .. (got and ", got " or ""), got)
end

-- The types whose values all fail for the same reason where the alternatives ask for other types.
local plain <const> = { string = true, boolean = true, integer = true }

local function type_of(v) return math_type(v) or type(v) end

-- Runs a check that is allowed to fail: the members that it evaluated are recorded only if it passes.
function forms.attempt(check, v, run, seen)
  if not seen then return check(v, run) end
  local own = {}
  if not check(v, run, own) then return false end
  for key in next, own do seen[key] = true end
  return true
end
local attempt = forms.attempt

--- Looks for alternatives that fit, until there are `most`: returns the numbers of the first one and of another one. If
--- there is none, the value is refused.
function forms.fits(run, keyword, checks, v, seen, most)
  local known = checks.refused and checks.refused[type_of(v)]
  if known then
    refuse(run, keyword, known.text, known.got)
    return nil
  end
  local count, first, second = #checks, nil, nil
  local words, expected, got, is_type = nil, nil, nil, true      -- expected: how many `words` there are; nil if words cannot name all alternatives
  local form, highest, levels, place, text, value
  for i = 1, count do
    if attempt(checks[i], v, run, seen) then
      if first then second = i end
      first, most = first or i, most - 1
      if most == 0 then break end
    elseif run.left < 0 then
      return nil
    elseif run.quiet == 0 and not first then
      if not form and count <= MAX_WORDS then      -- a value that fits in the end costs no table
        words, expected = checks.words or {}, 0
        checks.words = nil
      end
      local rank = rank_of(run.keyword, run.levels)
      is_type = is_type and rank == 0
      if not form or rank > highest or rank == highest and run.levels > levels then
        form, highest, levels, text, value = i, rank, run.levels, run.text, run.got
        place = levels > 0 and path(run) or "it"
      end
      local what = expected and wanted(run)
      if what and run.keyword == "type" then
        if got and run.got ~= got then what = nil else got = run.got end
      end
      if not what then
        expected = nil
      elseif not has(words, expected, what) then
        expected = expected + 1
        words[expected] = what
      end
    end
  end
  checks.words = words or checks.words
  if first or run.quiet > 0 or count == 1 then return first, second end
  if expected then
    refuse_all(run, keyword, words, expected, got)
    local name = type_of(v)
    if is_type and plain[name] then
      checks.refused = checks.refused or {}
      checks.refused[name] = { text = run.text, got = run.got }
    end
    return nil
  end
  local heads = checks.heads or {} -- the beginnings of the text, by the number of the form
  checks.heads = heads
  local head = heads[form] or ("must fit one of %s forms; nearest is form %s, but "):format(count, form)
  heads[form] = head
  refuse(run, keyword, head .. place .. " " .. text .. (value or ""))
end

return forms
