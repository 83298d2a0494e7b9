-- Checks the options of jwt.verifier while scripts load. A missing option is an error with a hint; it never makes a
-- verifier that accepts too much.

local copied = require "moonpool.runtime.copied"
local grants = require "moonpool.runtime.grants"
local keyset = require "moonpool.lib.jwt.jwks"
local locations = require "moonpool.lib.jwt.locations"
local problem = require "moonpool.runtime.diagnostic"
local reach = require "moonpool.lib.http.reach"
local suggest = require "moonpool.runtime.suggest"
local watched = require "moonpool.runtime.cached_file"

local rules = {}

rules.algorithms = { "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519" }

local names = {
  "issuer", "audience", "jwks", "key", "keys", "key_file", "algorithms", "leeway", "required", "refetch", "refresh", "max_age", "cache",
  "plain_http",
}
rules.names = names

local times = { leeway = { 60, 0, 600 }, refetch = { 30, 0.1, 3600 }, refresh = { 600, 0.1, 86400 }, max_age = { 86400, 60, 30 * 86400 } }

local function raise(who, what, hint) problem.raise(2, who .. ": " .. what, hint) end

function rules.set_of(who, name, value, hint)
  if value == false then return false end
  local list = type(value) == "string" and { value } or value
  if type(list) ~= "table" or #list == 0 then raise(who, "'" .. name .. "' must be a string, or a list of strings, not " .. type(value), hint) end
  local set = {}
  for _, item in ipairs(list) do
    if type(item) ~= "string" or item == "" then
      raise(who, "'" .. name .. "' has an item that is " .. (item == "" and "an empty text" or "a " .. type(item)), hint)
    end
    set[item] = true
  end
  return set, list[1], #list
end

--- Raises an error unless the script has a grant to connect to `url`.
function rules.check_reach(who, script, name, url, plain_http)
  local parts, why = locations.check(url, plain_http)
  if not parts then
    raise(who, "'" .. name .. "': " .. why,
      why == "the URL is not https" and "keys must be fetched over https; 'plain_http = true' accepts the risk of plain http" or nil)
  end
  local list = {}
  for _, text in ipairs(script.granted.net) do list[#list + 1] = reach.parse(text) end
  if reach.find(list, parts) then return parts end
  local place = (parts.host:find(":", 1, true) and "[" .. parts.host .. "]" or parts.host) .. ":" .. parts.port
  raise(who, "'" .. name .. "': " .. grants.refusal("net", place, script.path), "scripts.allow.net: [\"" .. place .. "\"] allows it to all scripts")
end

local function read_times(who, options, made)
  for name, bounds in pairs(times) do
    local value = options[name]
    if value == nil then value = bounds[1] end
    if math.type(value) == nil or not (value >= bounds[2] and value <= bounds[3]) then
      raise(who, ("'%s' must be %g to %g seconds"):format(name, bounds[2], bounds[3]), "as in " .. name .. " = " .. bounds[1])
    end
    made[name] = value
  end
  local cache = options.cache == nil and 4096 or options.cache
  if math.type(cache) ~= "integer" or cache < 0 or cache > 1000000 then raise(who, "'cache' must be 0 to 1000000 tokens") end
  made.cache = cache
end

local function read_algorithms(who, options)
  local known, set = {}, {}
  for _, name in ipairs(rules.algorithms) do known[name] = true end
  for _, name in ipairs(options.algorithms or rules.algorithms) do
    if not known[name] then
      raise(who, "the algorithm '" .. tostring(name) .. "' is not supported", "algorithms are " .. table.concat(rules.algorithms, ", "))
    end
    set[name] = true
  end
  if next(set) == nil then raise(who, "'algorithms' is an empty list") end
  return set
end

-- Reads keys that the script itself contains.
local function read_own_keys(who, name, set, why)
  if not set then raise(who, "'" .. name .. "': " .. why, "a public key in PEM, or a certificate") end
  return { find = function(_, ...)
    local key, wrong = set:find(...)
    if not key then return nil, wrong end
    return key, 1
  end }
end

local function read_source(who, options, made, script)
  local given = {}
  for _, name in ipairs { "jwks", "key", "keys", "key_file" } do
    if options[name] ~= nil then given[#given + 1] = name end
  end
  if #given > 1 then raise(who, "'" .. given[1] .. "' and '" .. given[2] .. "' both name a source of keys", "remove one of them") end
  local name = given[1]
  if name == "key" then return read_own_keys(who, name, keyset.from_pems { options.key }) end
  if name == "keys" then
    if type(options.keys) ~= "table" then raise(who, "'keys' must be a list of PEM texts, or { kid = text }") end
    return read_own_keys(who, name, keyset.from_pems(options.keys))
  end
  if name == "jwks" and type(options.jwks) == "table" then return read_own_keys(who, name, keyset.from_jwks(options.jwks)) end
  if name == "key_file" then
    watched.check(script, options.key_file)
    return { file = options.key_file }
  end
  if name == "jwks" then
    rules.check_reach(who, script, "jwks", options.jwks, options.plain_http)
    return { uri = options.jwks }
  end
  if not made.issuer or made.issuer_count ~= 1 then
    raise(who, "no option names a source of keys", "'jwks', 'key', 'keys' or 'key_file'; or one issuer, whose metadata name them")
  end
  local parts = rules.check_reach(who, script, "issuer", made.issuer, options.plain_http)
  if parts.url:find "[?#]" then raise(who, "'issuer' has a query or a fragment, so it has no metadata", "'jwks' names the keys' URL") end
  return { issuer = made.issuer }
end

--- Parses the options. Errors name the function `who`, at the line of the script that calls it. `script` is { path,
--- granted }.
function rules.read(who, options, script)
  if type(options) ~= "table" then raise(who, "options must be a table", "as in " .. who .. " { issuer = \"https://…\", audience = \"https://…\" }") end
  options = copied(options)
  local stranger, hint = suggest.stranger(options, names)
  if stranger then raise(who, "there is no option '" .. stranger .. "'", hint) end
  local made = {}
  made.issuers, made.issuer, made.issuer_count = rules.set_of(who, "issuer", options.issuer,
    "the exact 'iss' of the tokens; env returns nil for a variable that is not set; false accepts any issuer whose key is known")
  made.audiences, made.audience = rules.set_of(who, "audience", options.audience,
    "the 'aud' that tokens must have: this server's URL as clients know it, which auth.jwt takes from 'public_url' of moonpool.yaml; false accepts any")
  made.algorithms = read_algorithms(who, options)
  read_times(who, options, made)
  made.plain_http = options.plain_http == true
  made.required = { "exp" }
  for _, name in ipairs(options.required or {}) do
    if type(name) ~= "string" then raise(who, "'required' must be a list of names of claims") end
    made.required[#made.required + 1] = name
  end
  made.source = read_source(who, options, made, script)
  return made
end

return rules
