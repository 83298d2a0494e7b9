-- What the one-liners of `auth` have in common: which options they take, which they hand on to auth{…}, and how the parts of a
-- principal that come from outside are looked at.

local host = require "moonpool.host"
local principal = require "moonpool.principal"
local problem = require "moonpool.problem"
local suggest = require "moonpool.suggest"

local options = {}

local LONGEST = 512

-- Seconds until another try is worth it, where it cannot be found out now who asks.
options.RETRY = 2

-- What auth{…} takes beside its function.
local common = { "askable", "realm", "implies", "scopes_supported" }

--- Raises for an option that `who` does not have.
function options.check(who, given, known)
  if type(given) ~= "table" then problem.raise(2, who .. ": options are a table") end
  local stranger, hint = suggest.stranger(given, table.move(common, 1, #common, #known + 1, { table.unpack(known) }))
  if stranger then problem.raise(2, who .. ": there is no option '" .. stranger .. "'", hint) end
end

--- The table for auth{…}: `f`, and of the options what is for it.
function options.made(given, f)
  local made = { f }
  for _, name in ipairs(common) do made[name] = given[name] end
  return made
end

--- The text of an option that is a text or a secret; nil for anything else.
function options.text(value)
  if type(value) == "userdata" then return host.reveal(value) end
  return type(value) == "string" and value or nil
end

--- A list of scopes from an option; raises for what is none.
function options.scopes(who, value)
  local list = {}
  if value == nil then return list end
  if type(value) ~= "table" then problem.raise(2, who .. ": 'scopes' is a list", "as in scopes = { \"orders:read\" }") end
  for _, scope in ipairs(value) do
    local why = principal.scope_trouble(scope)
    if why then problem.raise(2, who .. ": " .. why) end
    list[#list + 1] = scope
  end
  return list
end

--- Whether a text from outside can be an id.
function options.is_id(text)
  return type(text) == "string" and text ~= "" and #text <= LONGEST and not text:find "%c" and utf8.len(text) ~= nil
    and text ~= "anonymous" and text ~= "local"
end

--- Whether a text is the name of a header.
function options.is_header(text) return type(text) == "string" and text:find "^[%w-]+$" ~= nil end

--- The scopes in a text, between spaces, or in a list of texts; nil and why for anything else.
function options.read_scopes(value)
  local list = {}
  if value == nil then return list end
  if type(value) == "string" then
    for scope in value:gmatch "[^ ]+" do list[#list + 1] = scope end
  elseif type(value) == "table" then
    table.move(value, 1, #value, 1, list)
  else
    return nil, "its scopes are neither a text nor a list"
  end
  if #list > 256 then return nil, "it has more than 256 scopes" end
  for _, scope in ipairs(list) do
    if principal.scope_trouble(scope) then return nil, "one of its scopes is none" end
  end
  return list
end

return options
