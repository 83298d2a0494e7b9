-- The common part of the built-in methods of `auth`: the options that they take, the options that they pass to auth{…},
-- and checks of ids and scopes that come from outside.

local host = require "moonpool.host"
local principal = require "moonpool.access.principal"
local problem = require "moonpool.runtime.diagnostic"
local suggest = require "moonpool.runtime.suggest"

local options = {}

local MAX_ID_BYTES = 512

-- Seconds after which a client may retry when it cannot be authenticated at the moment.
options.RETRY = 2

-- The options of auth{…} itself.
local common = { "askable", "realm", "implies", "scopes_supported" }

--- Raises an error for an option that the method `who` does not have.
function options.check(who, given, known)
  if type(given) ~= "table" then problem.raise(2, who .. ": options must be a table", "as in " .. who .. " { " .. (known[1] or "realm") .. " = … }") end
  local stranger, hint = suggest.stranger(given, table.move(common, 1, #common, #known + 1, { table.unpack(known) }))
  if stranger then problem.raise(2, who .. ": there is no option '" .. stranger .. "'", hint) end
end

--- The table for auth{…}: the function `f`, and the options that belong to auth{…}.
function options.made(given, f)
  local made = { f }
  for _, name in ipairs(common) do made[name] = given[name] end
  return made
end

--- The text of an option that is a string or a secret; nil for any other value.
function options.text(value)
  if type(value) == "userdata" then return host.secret.reveal(value) end
  return type(value) == "string" and value or nil
end

--- The list of scopes in an option; raises an error for any other value.
function options.scopes(who, value)
  local list = {}
  if value == nil then return list end
  if type(value) ~= "table" then problem.raise(2, who .. ": 'scopes' must be a list", "as in scopes = { \"orders:read\" }") end
  for _, scope in ipairs(value) do
    local why = principal.scope_trouble(scope)
    if why then problem.raise(2, who .. ": " .. why) end
    list[#list + 1] = scope
  end
  return list
end

--- True if a text from outside can be an id.
function options.is_id(text)
  return type(text) == "string" and text ~= "" and #text <= MAX_ID_BYTES and not text:find "%c" and utf8.len(text) ~= nil
    and text ~= "anonymous" and text ~= "local"
end

-- The prefixes of the ids that methods give to credentials of this gateway, such as API keys.
local taken = {}

-- The prefix of the ids of people who sign in at this gateway itself, or at its provider.
local OF_PEOPLE <const> = host.config.sign_in and host.config.sign_in.provider .. ":"
if OF_PEOPLE then taken[OF_PEOPLE] = true end

--- True if an id is one of a person who signs in at this gateway itself.
function options.is_of_people(id) return OF_PEOPLE and id:sub(1, #OF_PEOPLE) == OF_PEOPLE or false end

--- Ids with this prefix belong to the credentials of one method: whoever else gives ids to people cannot give these.
function options.take_prefix(prefix)
  if prefix ~= "" then taken[prefix] = true end
end

--- True if a text can be an id that another program gives: a proxy, or an issuer.
function options.is_given_id(text)
  if not options.is_id(text) then return false end
  for prefix in pairs(taken) do
    if text:sub(1, #prefix) == prefix then return false end
  end
  return true
end

--- True if a text is a valid name of a header.
function options.is_header(text) return type(text) == "string" and text:find "^[%w-]+$" ~= nil end

--- The scopes in a text with spaces between them, or in a list of texts; nil and why for any other value.
function options.read_scopes(value)
  local list = {}
  if value == nil then return list end
  if type(value) == "string" then
    for scope in value:gmatch "[^ ]+" do list[#list + 1] = scope end
  elseif type(value) == "table" then
    for i, scope in ipairs(value) do list[i] = scope end
    for name in pairs(value) do
      if math.type(name) ~= "integer" or name < 1 or name > #list then return nil, "the scopes are neither a string nor a list" end
    end
  else
    return nil, "the scopes are neither a string nor a list"
  end
  if #list > 256 then return nil, "there are more than 256 scopes" end
  for _, scope in ipairs(list) do
    if principal.scope_trouble(scope) then return nil, "one of the scopes is not a valid scope" end
  end
  return list
end

return options
