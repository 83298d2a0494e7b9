-- scripts/sign_in/main.lua: a function of the operator's, which decides who may sign in, of those whom sign_in.allow lets
-- in, and with which scopes. It gets the claims of the person, and never a token.
--   mark   a hash of the script and of all of lib/, which it may require. A token with another mark is not taken: its client
--          gets one with this mark by its refresh token

local digest = require "moonpool.lib.digest"
local failure = require "moonpool.runtime.outcome"
local host = require "moonpool.host"
local json = require "moonpool.json"
local principal = require "moonpool.access.principal"

local deciding = { mark = "" }

local MAX_SCOPES <const> = 256
local PATH <const> = "sign_in/main.lua"
local handler

-- -- for the loader -----------------------------------------------------------------------------------------------------------

function deciding.is(value) return type(value) == "function" end

-- What the function is made of: its script and the modules of lib/.
local function mark_of(text)
  local parts = { text }
  for _, script in ipairs(host.script.list) do
    if script.path:find "^lib/" and not script.path:find "_spec%.lua$" then parts[#parts + 1] = script.path .. " " .. digest.sha256(script.text) end
  end
  return digest.sha256(table.concat(parts, "\n")):sub(1, 16)
end

function deciding.build(name, value, text, complain)
  if name ~= "main" then return complain(1, "only main.lua in this folder is a script", "a module that it requires is in lib/") end
  return { handler = value, mark = mark_of(text), definition = { name = name } }
end

--- Takes what `build` has made, before the modules of sign-in are loaded.
function deciding.set(made) handler, deciding.mark = made.handler, made.mark end

-- -- decisions ----------------------------------------------------------------------------------------------------------------

-- The scopes in the function's value; nil if it is none that it may return.
local function scopes_of(value)
  local list = {}
  if type(value) ~= "table" or debug.getmetatable(value) ~= nil then return nil end
  for name in next, value do
    if name ~= "scopes" then return nil end
  end
  local given = rawget(value, "scopes")
  if type(given) ~= "table" or debug.getmetatable(given) ~= nil or #given > MAX_SCOPES then return nil end
  for name, scope in next, given do
    if math.type(name) ~= "integer" or type(scope) ~= "string" or principal.scope_trouble(scope) then return nil end
  end
  for i, scope in ipairs(given) do list[i] = scope end
  return list
end

--- The scopes of a person with these claims, who has `scopes` without the script; nil and why if she may not sign in; and
--- true if that is not known, because the script has failed.
function deciding.decide(claims, scopes)
  if not handler then return scopes end
  local ok, value, why = xpcall(handler, failure.handler, json.decode(json.encode(claims)))
  if not ok then
    if not failure.is_expected(value) then failure.report(value, "sign-in failed", PATH) end
    return nil, PATH .. " has failed", true
  end
  if value == true then return scopes end
  if value == nil or value == false then return nil, PATH .. ": " .. (type(why) == "string" and why or "no reason") end
  local list = scopes_of(value)
  if list then return list end
  failure.report("the function returns true, { scopes = { … } }, or nil and why", "sign-in failed", PATH)
  return nil, PATH .. " has returned something else", true
end

return deciding
