-- The library `regex` of scripts: regular expressions of PCRE2 in Unicode mode, with limits. Its methods resemble those
-- of `string`.

local compiler = require "moonpool.regex"
local members = require "moonpool.runtime.members"
local problem = require "moonpool.runtime.diagnostic"

local regex = {}

local methods = members.of_object {}
local mt = {
  __index = methods, __metatable = false, __name = "regex", __newindex = function() error("a regular expression cannot be changed", 2) end,
}
local compiled = setmetatable({}, { __mode = "k" })        -- the script's regex object -> the compiled regex of PCRE2

local function run(self, what, text, init)
  local code = compiled[self]
  if not code then problem.raise(3, what .. " is a method of what regex.new returns", "as in regex.new(\"[0-9]+\"):" .. what .. "(text)") end
  if type(text) ~= "string" then problem.raise(3, what .. " takes a string, not a " .. type(text)) end
  init = init == nil and 1 or init
  if math.type(init) ~= "integer" then problem.raise(3, what .. ": the start must be a whole number, not " .. tostring(init)) end
  if init < 0 then init = math.max(#text + init + 1, 1) end
  return code:exec(text, math.max(init, 1))
end

-- The captures as substrings; nil for a group that did not take part in the match.
local function captures(text, found)
  local list, n = {}, #found // 2 - 1
  for i = 1, n do
    local from, to = found[2 * i + 1], found[2 * i + 2]
    list[i] = from and text:sub(from, to) or nil
  end
  return list, n
end

--- test(text): true if the expression matches anywhere in the text; or nil, why.
function methods:test(text)
  local found, why = run(self, "test", text)
  if found == nil then return nil, why end
  return found ~= false
end

--- find(text [, init]): first and last position and the captures; nil without a match; or nil, why.
function methods:find(text, init)
  local found, why = run(self, "find", text, init)
  if not found then return nil, why end
  local list, n = captures(text, found)
  return found[1], found[2], table.unpack(list, 1, n)
end

--- match(text [, init]): the captures, or the whole match if the expression has none; nil without a match; or nil, why.
function methods:match(text, init)
  local found, why = run(self, "match", text, init)
  if not found then return nil, why end
  local list, n = captures(text, found)
  if n == 0 then return text:sub(found[1], found[2]) end
  return table.unpack(list, 1, n)
end

-- The position for the next search: after the match, and one character further after an empty match.
local function behind(text, found)
  if found[2] >= found[1] then return found[2] + 1 end
  return utf8.offset(text, 2, found[1]) or #text + 2
end

--- gmatch(text): an iterator over all matches, with the values of `match`.
function methods:gmatch(text)
  local at = 1
  return function()
    if at > #text + 1 then return nil end
    local found, why = run(self, "gmatch", text, at)
    if found == nil then problem.raise(2, "gmatch: " .. why) end
    if not found then
      at = #text + 2
      return nil
    end
    at = behind(text, found)
    local list, n = captures(text, found)
    if n == 0 then return text:sub(found[1], found[2]) end
    return table.unpack(list, 1, n)
  end
end

--- gsub(text, replacement [, most]): the new text and the number of replacements; or nil, why. `replacement` is a
--- literal text, a function of the captures, or a table that is indexed by the first capture.
function methods:gsub(text, replacement, most)
  local kind = type(replacement)
  if kind ~= "string" and kind ~= "function" and kind ~= "table" then problem.raise(2, "gsub takes a string, a function or a table, not a " .. kind) end
  local out, at, kept, count = {}, 1, 1, 0
  while at <= #text + 1 and count < (most or math.huge) do
    local found, why = run(self, "gsub", text, at)
    if found == nil then return nil, why end
    if not found then break end
    local list, n = captures(text, found)
    if n == 0 then list, n = { text:sub(found[1], found[2]) }, 1 end
    local new = replacement
    if kind == "function" then new = replacement(table.unpack(list, 1, n)) elseif kind == "table" then new = list[1] ~= nil and replacement[list[1]] end
    out[#out + 1] = text:sub(kept, found[1] - 1)
    out[#out + 1] = new and tostring(new) or text:sub(found[1], found[2])
    at, kept, count = behind(text, found), found[2] + 1, count + 1
  end
  out[#out + 1] = text:sub(kept)
  return table.concat(out), count
end

--- new(expression [, flags]): compiles it. "i" ignores case, "m" lets ^ and $ match at line ends, "s" lets '.' match
--- line ends; or nil, why.
function regex.new(expression, flags)
  if type(expression) ~= "string" then problem.raise(2, "regex.new takes a string, not a " .. type(expression)) end
  flags = flags == nil and "" or flags
  if type(flags) ~= "string" or flags:find "[^ims]" then problem.raise(2, "the flags of regex.new must be letters of \"ims\"") end
  local code, why = compiler.compile((flags ~= "" and "(?" .. flags .. ")" or "") .. expression)
  if not code then return nil, why end
  local made = setmetatable({}, mt)
  compiled[made] = code
  return made
end

return regex
