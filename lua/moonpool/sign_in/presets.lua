-- What providers do otherwise than OpenID Connect says, a table for each. All members may be absent:
--   issuer      where the configuration names none
--   issuers     what `iss` may be besides
--   template    the issuer in the metadata has the place of a tenant: a function of it and the claims gives `iss`
--   ask         the scopes to ask for; `groups_ask`: one more where sign_in.allow names groups
--   extra       further parameters of the authorization request; `again`: those of a second one, where the first has
--               brought no refresh token
--   subject, aliases, email, domain, groups, roles, trouble    functions of the claims, as in `usual`
--   endpoints   a function of the issuer: the provider has no metadata
--   answers_as  a function of the issuer: the `iss` of its answers, where that is another one
--   identity    a function of ask and an access token that gives claims, or nil and a failure: there is no ID token
--   is_alone    what the claims name is not asked for at userinfo
--   in_body     the gateway's secret is sent in the body

local direct = require "moonpool.lib.http.direct"
local host = require "moonpool.host"
local json = require "moonpool.json"

local presets = {}

local config = host.config.sign_in

local function list_of(value)
  local list = {}
  if type(value) == "string" then return { value } end
  if type(value) ~= "table" then return nil end
  for _, one in ipairs(value) do
    if type(one) == "string" then list[#list + 1] = one end
  end
  return list
end

--- For a provider that does what OpenID Connect says.
presets.usual = {
  ask = { "openid", "email", "profile" },
  subject = function(claims) return claims.sub end,
  -- Further names by which sign_in.allow.users may call the person: none that another person can get.
  aliases = function() return {} end,
  -- The person's address, if the provider has verified it.
  email = function(claims) return claims.email_verified == true and claims.email or nil end,
  -- Whether the address proves that the person is of its domain.
  domain = function() return true end,
  groups = function(claims) return list_of(claims.groups) end,
  roles = function() return nil end,
  -- Why the claims say less than they seem to.
  trouble = function() return nil end,
}

-- -- OpenID Connect --------------------------------------------------------------------------------------------------------

presets.oidc, presets.auth0, presets.authentik = {}, {}, {}

presets.okta = { groups_ask = "groups" }

presets.entra = {
  is_alone = true,
  template = function(issuer, claims)
    local tenant = type(claims.tid) == "string" and claims.tid:match "^[%x-]+$"
    return tenant and (issuer:gsub("{tenantid}", tenant))
  end,
  -- `sub` differs for each application.
  subject = function(claims)
    return type(claims.tid) == "string" and type(claims.oid) == "string" and claims.tid .. ":" .. claims.oid or nil
  end,
  aliases = function(claims) return { claims.oid } end,
  -- Another tenant can write any address into `email`: xms_edov says that its domain is verified.
  email = function(claims) return claims.xms_edov == true and claims.email or nil end,
  roles = function(claims) return list_of(claims.roles) end,
  trouble = function(claims)
    local names = claims._claim_names
    if config.allow.groups and not claims.groups and (claims.hasgroups or type(names) == "table" and names.groups) then
      return "Entra leaves the groups out, since the person has too many: assign groups to the application, or use roles"
    end
  end,
}

presets.google = {
  issuer = "https://accounts.google.com", issuers = { "accounts.google.com" }, extra = { "access_type", "offline" }, again = { "prompt", "consent" },
  domain = function(claims, domain) return claims.hd == domain end,
}

presets.keycloak = {
  roles = function(claims) return type(claims.realm_access) == "table" and list_of(claims.realm_access.roles) or nil end,
}

presets.cognito = {
  email = function(claims) return (claims.email_verified == true or claims.email_verified == "true") and claims.email or nil end,
  groups = function(claims) return list_of(claims["cognito:groups"]) end,
}

presets.gitlab = { groups = function(claims) return list_of(claims.groups_direct) end }

-- -- OAuth 2.0 without it --------------------------------------------------------------------------------------------------

local function number_text(value)
  if math.type(value) == "integer" then return tostring(value) end
  return type(value) == "string" and value or nil
end

presets.oauth2 = {
  ask = {},
  endpoints = function() return { authorize = config.authorize_url, token = config.token_url, user = config.user_url } end,
  identity = function(ask, at, access)
    local claims, status = ask(at.user.url, at.user.reach, access)
    if not claims then return nil, status end
    if status ~= 200 then return nil, direct.outage(("the provider's user endpoint answers %d"):format(status)) end
    claims.sub = number_text(claims.sub) or number_text(claims.id)
    return claims
  end,
}

-- -- GitHub ----------------------------------------------------------------------------------------------------------------

-- True if a membership is active; nil and a failure: that cannot be found out.
local function is_member(ask, at, access, path)
  local found, status = ask(at.api.url .. path, at.api.reach, access)
  if not found then return nil, status end
  if status == 404 then return false end
  if status ~= 200 then return nil, direct.outage(("GitHub answers %d to the question for a membership"):format(status)) end
  return found.state == "active"
end

local function memberships(ask, at, access, login)
  local held = {}
  for _, group in ipairs(config.allow.groups or {}) do
    local org, team = group:match "^([%w-]+)/([%w._-]+)$"
    org = org or group:match "^[%w-]+$"
    local path = team and ("/orgs/%s/teams/%s/memberships/%s"):format(org, team, login) or org and "/user/memberships/orgs/" .. org
    if path then
      local is, failure = is_member(ask, at, access, path)
      if is == nil then return nil, failure end
      if is then held[#held + 1] = group end
    end
  end
  return held
end

presets.github = {
  issuer = "https://github.com", in_body = true, ask = { "read:user", "user:email" }, groups_ask = "read:org",
  endpoints = function(issuer)
    local is_public = issuer == presets.github.issuer
    issuer = issuer:gsub("/+$", "")
    return { authorize = issuer .. "/login/oauth/authorize", token = issuer .. "/login/oauth/access_token",
      api = is_public and "https://api.github.com" or issuer .. "/api/v3" }
  end,
  answers_as = function(issuer) return issuer:gsub("/+$", "") .. "/login/oauth" end,
  identity = function(ask, at, access)
    local user, status = ask(at.api.url .. "/user", at.api.reach, access)
    if not user then return nil, status end
    local id, login = number_text(user.id), user.login
    if not id or type(login) ~= "string" or not login:find "^[%w_-]+$" then return nil, direct.outage "GitHub does not say who the person is" end
    local claims = { sub = id, preferred_username = login, name = type(user.name) == "string" and user.name or nil }
    if config.allow.emails then
      local emails, found = ask(at.api.url .. "/user/emails", at.api.reach, access)
      if not emails then return nil, found end
      if found ~= 200 then return nil, direct.outage "GitHub does not name the person's addresses" end
      for _, one in ipairs(emails) do
        if type(one) == "table" and one.primary == true and one.verified == true then claims.email, claims.email_verified = one.email, true end
      end
    end
    claims.groups, status = memberships(ask, at, access, login)
    if not claims.groups then return nil, status end
    return claims
  end,
}

--- The preset of a provider, with what it does as usual.
function presets.of(name) return setmetatable(presets[name], { __index = presets.usual }) end

--- The text of a claim, without json.null.
function presets.text(value) return type(value) == "string" and value ~= json.null and value or nil end

return presets
