-- Hints about errors that Lua raises while a script runs, for authors who know JavaScript or Python better than Lua.

local hint_names = require "moonpool.runtime.hint_names"
local members = require "moonpool.runtime.members"

local joined = "texts are joined by .., as in a .. b; tonumber(text) makes a number"
local over = "for i, x in ipairs(list) do … end goes over a list, for name, value in pairs(t) do … end over a table"
local length = "#x is the length of a text or a list"
local first = "lists begin at 1: list[1] is the first item, list[#list] the last"
local shorter = "a list ends at #list; of a text, text:sub(i, i) is one character"
local missing = "where a value may be missing, write x or 0, x or \"\", or x and x.name"

-- { pattern of the error, hint, pattern of the script's line (nil: any) }; the first that fits is taken.
local rules = {
  { "attempt to %l+ a '%l+' with a '%l+'", joined },
  { "attempt to perform arithmetic on a string value", joined },
  { "%(for iterator 'for iterator'%)", over },
  { "a nil value %(field 'length'%)", length },
  { "attempt to compare %l+ with nil", length, "%.length%f[^%w_]" }, { "attempt to compare nil with %l+", length, "%.length%f[^%w_]" },
  { "a nil value %(field 'integer index'%)", first, "%[0%]" }, { "a nil value %(field '%?'%)", first, "%[0%]" },
  { "a nil value %(field 'integer index'%)", shorter }, { "a nil value %(field '%?'%)", shorter },
  { "attempt to concatenate a table value", "table.concat(list, \", \") joins a list, json.encode(t) writes a table as text" },
  { "attempt to concatenate a boolean value", "tostring(x) makes a text" },
  { "attempt to concatenate a nil value", missing },
  { "attempt to compare number with string", "tonumber(text) makes a number" }, { "attempt to compare string with number", "tonumber(text) makes a number" },
  { "attempt to compare two table values", "compare a field of them, as in a.n < b.n" },
  { "attempt to compare %l+ with nil", missing }, { "attempt to compare nil with %l+", missing }, { "attempt to compare two nil values", missing },
  { "attempt to perform arithmetic on a nil value", missing },
  { "attempt to get length of a nil value", "where a list may be missing, write #(list or {})" },
  { "attempt to get length of a number value", "# is the length of texts and lists; a number has none" },
  { "attempt to index a nil value", missing },
  { "attempt to index a number value", "a number has no fields" },
}

--- A hint about the error `what` of Lua in the script's line `line`, which may be nil; or nil.
return function(what, line)
  local kind, name = what:match "attempt to call a nil value %((%l+) '([%w_]+)'%)"
  if kind == "field" or kind == "method" then
    local library = line and line:match("([%a_][%w_.]*)%s*[.:]%s*" .. name .. "%f[^%w_]")
    return library and hint_names.member(library, name) or hint_names.method(name) or library and members.hint(library, name)
      or kind == "method" and members.method_hint(name) or nil
  end
  for _, rule in ipairs(rules) do
    if what:find(rule[1]) and (not rule[3] or line and line:find(rule[3])) then return rule[2] end
  end
end
