-- What `moonpool check` says of a provider that people sign in at.
local gateway = require "spec.helpers.gateway"
local signing_in = require "spec.helpers.signing_in"

local function check(sign_in)
  local dir = gateway.prepare { scripts = {}, config = { public_url = signing_in.url, sign_in = sign_in } }
  local code, _, err = gateway.exec({ "check" }, { cwd = dir })
  os.execute("rm -rf '" .. dir .. "'")
  return code, err
end

describe("the check of a provider", function()
  local entra = "https://login.microsoftonline.com/"
  -- { keys of sign_in, what the check says; nil: nothing }
  local cases = {
    { { provider = "oidc", issuer = "https://id.example.com" }, "'provider: oidc' needs 'client'" },
    { { provider = "oidc", client = "c" }, "'provider: oidc' needs 'issuer'" },
    { { provider = "oidc", client = "c", issuer = "http://10.0.0.5" }, "must begin with https://" },
    { { provider = "oidc", client = "c", issuer = "http://id.example.com" }, "must begin with https://" },
    { { provider = "oidc", client = "c", issuer = "http://localhost:8080/realms/main" } },
    { { provider = "oauth2", client = "c" }, "needs 'urls' with authorize, token and user" },
    { { provider = "google", client = "c" }, "'provider: google' needs 'secret'" },
    { { provider = "google", client = "c", secret = "s" }, "'provider: google' needs 'allow': anybody can have an account there" },
    { { provider = "google", client = "c", secret = "s", allow = { emails = { "*@example.com" } } } },
    { { provider = "github", client = "c", secret = "s" }, "needs 'allow'" },
    { { provider = "gitlab", client = "c", issuer = "https://gitlab.com" }, "needs 'allow'" },
    { { provider = "gitlab", client = "c", issuer = "https://git.example.com" } },
    { { provider = "entra", client = "c", issuer = entra .. "common/v2.0", allow = { emails = { "*@example.com" } } }, "needs 'allow: {tenants: [...]}'" },
    { { provider = "entra", client = "c", issuer = entra .. "organizations/v2.0", allow = { tenants = { "t" } } } },
    { { provider = "entra", client = "c", issuer = entra .. "11111111-2222-3333-4444-555555555555/v2.0" } },
    { { provider = "keykloak", client = "c" }, "keycloak" },
  }

  it("refuses what cannot work, and a provider where anybody may come in", function()
    for i, case in ipairs(cases) do
      local code, err = check(case[1])
      assert.equal(case[2] and 78 or 0, code, "case " .. i .. ": " .. err)
      if case[2] then assert.truthy(err:find(case[2], 1, true), "case " .. i .. ": " .. err) end
    end
  end)
end)
