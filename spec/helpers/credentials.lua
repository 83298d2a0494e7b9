-- An auth script that reads the principal from the token: "ann-1" and "ann-2" are two tokens of ann; "ann-3-1790000000"
-- expires at that time. Names other than ann, bob and carl are unknown.
local cjson = require "cjson"

local credentials = {}

credentials.issuer = "https://login.example.com"

credentials.script = ([[
local known = { ann = true, bob = true, carl = true }
return auth {
  issuer = "%s", scopes_supported = { "notes:read" },
  function(request)
    local name, expires = try(request.bearer, "no token"):match "^(%%l+)%%-%%d+%%-?(%%d*)$"
    if not known[name] then fail "nobody's token" end
    return {
      id = "user:" .. name, scopes = { "notes:read" }, issuer = "%s", subject = name, client = "spec", expires = tonumber(expires),
    }
  end,
}]]):format(credentials.issuer, credentials.issuer)

credentials.who = [[return tool { "Says who calls.", function(_, call) return call.principal.id end }]]

-- Sets `auth` of moonpool.yaml, which takes effect at the next reload.
function credentials.set_mode(g, mode)
  local path = g.dir .. "/moonpool.yaml"
  local file = assert(io.open(path))
  local config = cjson.decode(file:read "a")
  file:close()
  config.auth = mode
  file = assert(io.open(path, "w"))
  file:write(cjson.encode(config))
  file:close()
end

-- The id of the principal that the gateway sees in the client `me`; or nil, and the HTTP status.
function credentials.ask(me)
  local answer, response = me:call("tools/call", { name = "who" })
  if answer and answer.result then
    return answer.result.content[1].text
  end
  return nil, response.status
end

return credentials
