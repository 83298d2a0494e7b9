-- Whether a text looks like a password, a key or a token. Better a variable too many than a secret in a file that is
-- shared.

local secrets = {}

local words = { "token", "secret", "passw", "passphrase", "pwd", "credential", "apikey", "api_key", "api-key", "access_key", "access-key", "private_key",
  "private-key", "authorization", "session", "cookie", "signature" }

local forms = { "^ghp_", "^gho_", "^ghu_", "^ghs_", "^ghr_", "^github_pat_", "^glpat%-", "^sk%-", "^sk_", "^pk_live_", "^rk_live_", "^xox[abeprs]%-",
  "^AKIA", "^ASIA", "^AIza", "^eyJ", "^hf_", "^npm_", "^pypi%-", "^ntn_", "^secret_", "^lin_api_", "^dop_v1_", "^SG%.", "^ya29%.", "%-%-%-%-%-BEGIN",
  "^[Bb]earer%s", "^[Bb]asic%s" }

--- True if a variable, header, option or query member of this name has a secret as its value.
function secrets.is_name(name)
  name = name:lower():gsub("^%-+", "")
  for _, word in ipairs(words) do
    if name:find(word, 1, true) then return true end
  end
  return name == "key" or name == "pat" or name == "auth" or name:find "[_-]key$" ~= nil or name:find "[_-]pat$" ~= nil or name:find "[_-]auth$" ~= nil
end

-- 24 characters and more of letters and digits in a row that is no word, path or version: the text of a key.
local function is_random(value)
  for part in value:gmatch "[%w+=_-]+" do
    local _, digits = part:gsub("%d", "")
    local _, lower = part:gsub("%l", "")
    local _, upper = part:gsub("%u", "")
    local kinds = (digits > 2 and 1 or 0) + (lower > 2 and 1 or 0) + (upper > 2 and 1 or 0)
    local is_words = part:find "^%l+[%l_-]*%d*$" or part:find "^%u+[%u_-]*%d*$"
    if #part >= 24 and kinds >= 2 and not is_words then return true end
  end
  return false
end

--- True if the value itself looks like a secret. `${…}` is no secret.
function secrets.is_value(value)
  if value:find "^%${[^}]*}$" then return false end
  for _, form in ipairs(forms) do
    if value:find(form) and #value >= 12 then return true end
  end
  if value:find "://[^/@%s]*:[^/@%s]+@" then return true end     -- a password in a URL
  -- and in an address without a scheme; a version may stand behind the "@" of a package or a container's image
  local is_package = value:find "^npm:" or value:find "^jsr:" or value:find "@sha%d+:"
  if not is_package and not value:find "://" and value:find "^/?/?[^/@%s:]*:[^@%s]+@" then return true end
  if value:lower():find "[?&;][%w_-]*=" then
    for name, member in value:gmatch "[?&;]([%w_%-.]+)=([^&;#]*)" do
      if member ~= "" and not member:find "^%${" and (secrets.is_name(name) or is_random(member)) then return true end
    end
  end
  return not value:find "://" and not value:find "^[~.]?/" and not value:find "^@?[%w.-]+/[%w./@-]+$" and is_random(value)
end

--- True if the value of this name should not be copied.
function secrets.is_pair(name, value)
  if value == "" or value:find "^%${[^}]*}$" then return false end
  local is_switch = value:find "^%l+$" and #value < 8 or value:find "^%d%d?%d?%d?%d?$"     -- true, info, 8080
  return secrets.is_value(value) or secrets.is_name(name) and not is_switch
end

--- An address as messages may quote it: what stands before its last "@" may be a user and a password.
function secrets.shown_address(address)
  local scheme, rest = address:match "^(%a[%w+.-]*://)(.*)$"
  rest = rest or address
  return (scheme or "") .. (rest:find("@", 1, true) and "***" .. rest:match "@[^@]*$" or rest)
end

return secrets
