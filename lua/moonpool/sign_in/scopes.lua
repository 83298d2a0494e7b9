-- The scopes that a client asks for, and those that it gets.

local principal = require "moonpool.access.principal"

local scopes = {}

-- Words of OpenID Connect. They name no right, and many clients ask for them wherever they sign in.
local NO_RIGHT <const> = { openid = true, profile = true, email = true, address = true, phone = true, offline_access = true }

--- The rights that the parameter `scope` asks for, without doubles, or nil for all that the person has; and whether it asks
--- for a refresh token. false: it cannot be read.
function scopes.asked(text)
  if not text then return nil, false end
  local list, seen = {}, {}
  for scope in text:gmatch "%S+" do
    if principal.scope_trouble(scope) then return false end
    if not NO_RIGHT[scope] and not seen[scope] then list[#list + 1] = scope end
    seen[scope] = true
  end
  return list[1] and list, seen.offline_access or false
end

--- Those of `asked` that are among `own`, and whether all are. `asked` nil: all of `own`.
function scopes.granted(asked, own)
  if not asked then return own, true end
  local has, list = {}, {}
  for _, scope in ipairs(own) do has[scope] = true end
  for _, scope in ipairs(asked) do
    if has[scope] then list[#list + 1] = scope end
  end
  return list, #list == #asked
end

return scopes
