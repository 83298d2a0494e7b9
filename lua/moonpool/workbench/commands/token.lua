-- moonpool token: a token signed with a private key.

local files = require "moonpool.workbench.format.files"
local json = require "moonpool.json"
local keys = require "moonpool.keys"
local stderr = require "moonpool.workbench.format.stderr"
local duration = require "moonpool.workbench.format.duration"

-- Makes the claims from the arguments of the command line; or nil, why.
local function read_claims(words)
  local claims = {}
  for _, word in ipairs(words) do
    local name, colon, value = word:match "^([^=:]+)(:?)=(.*)$"
    if not name then return nil, "'" .. word .. "' is not a claim" end
    if colon == ":" then
      local ok, decoded, why = pcall(json.decode, value)
      if not ok or decoded == nil then return nil, "'" .. word .. "' is no JSON: " .. tostring(ok and why or decoded) end
      value = decoded
    end
    claims[name] = value
  end
  return claims
end

return function(args)
  if not args.key then return stderr.misuse("token needs --key, the file of a private key", "moonpool key pair signing.pem makes one") end
  local text, why = files.read(args.key)
  if not text then return stderr.wrong(why, "moonpool key pair " .. args.key .. " makes one") end
  local key
  key, why = keys.private(text)
  if not key then return stderr.wrong(args.key .. ": " .. why) end
  local algorithm = args.alg or key:algorithm()
  if not key:suits(algorithm) then return stderr.misuse("the key in " .. args.key .. " does not fit " .. algorithm, "it fits " .. key:algorithm()) end
  local claims
  claims, why = read_claims(args)
  if not claims then return stderr.misuse(why, "as in sub=ann, or groups:='[\"staff\"]'") end
  local seconds = duration(args.expires or "1h")
  if not seconds then return stderr.misuse("'" .. args.expires .. "' is not a duration", "as in --expires 1h") end
  local now = os.time()
  claims.iat, claims.exp, claims.scope = claims.iat or now, claims.exp or now + seconds, args.scope or claims.scope
  local input = keys.base64url(json.encode { alg = algorithm, typ = "at+jwt", kid = args.kid }) .. "." .. keys.base64url(json.encode(claims))
  local signature
  signature, why = key:sign(algorithm, input)
  if not signature then return stderr.wrong(why) end
  print(input .. "." .. keys.base64url(signature))
  return 0
end
