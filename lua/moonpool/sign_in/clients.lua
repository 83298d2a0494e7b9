-- Clients: who they say they are. A registration (RFC 7591) stores nothing: the client's id is its metadata, sealed.
--   client   { id, redirects, name, method, refreshes, key, host, about }: `key` is its short name for principals and the
--            audit; of a client that has a document: the document's host, and a hash of what people are shown of it

local characters = require "moonpool.runtime.characters"
local documents = require "moonpool.sign_in.documents"
local form = require "moonpool.sign_in.form"
local has = require "moonpool.runtime.has"
local keys = require "moonpool.keys"
local records = require "moonpool.sign_in.records"
local redirects = require "moonpool.sign_in.redirects"
local sealed = require "moonpool.sign_in.sealed"

local clients = {}

local MAX_REDIRECTS <const>, MAX_NAME <const>, MAX_ID <const> = 10, 100, 2048
local methods = { none = true, client_secret_basic = true, client_secret_post = true }
local VERSION <const> = 1
local PREFIX <const> = "mpd" .. VERSION .. "."        -- not those of tokens, mpa_, mpr_ and mpc_, which scanners look for

local function is_list(value)
  if type(value) ~= "table" then return false end
  for name, item in pairs(value) do
    if math.type(name) ~= "integer" or type(item) ~= "string" then return false end
  end
  return true
end

local function name_fault(name)
  if type(name) ~= "string" or not utf8.len(name) or utf8.len(name) > MAX_NAME then return true end
  return name:find "%c" or characters.hidden(name)
end

-- The fault of a client's metadata: an error code of RFC 7591 and its description.
local function fault(metadata)
  local uris = metadata.redirect_uris
  if not is_list(uris) or #uris == 0 or #uris > MAX_REDIRECTS then return "invalid_redirect_uri", "redirect_uris is a list of 1 to 10 URIs" end
  for _, uri in ipairs(uris) do
    if not redirects.may_register(uri, metadata.application_type == "web") then
      return "invalid_redirect_uri", "a redirect URI is https, http on this machine (localhost, 127.0.0.1, [::1]), or of a scheme of the client's own"
    end
  end
  if metadata.client_name ~= nil and name_fault(metadata.client_name) then return "invalid_client_metadata", "client_name is at most 100 visible characters" end
  if metadata.token_endpoint_auth_method ~= nil and not methods[metadata.token_endpoint_auth_method] then
    return "invalid_client_metadata", "token_endpoint_auth_method is none, client_secret_basic or client_secret_post"
  end
  if metadata.software_statement ~= nil then return "invalid_software_statement", "software statements are not taken" end
  for _, name in ipairs { "grant_types", "response_types" } do
    if metadata[name] ~= nil and not is_list(metadata[name]) then return "invalid_client_metadata", name .. " is a list" end
  end
  if metadata.grant_types and not has(metadata.grant_types, "authorization_code") then
    return "invalid_client_metadata", "grant_types has authorization_code"
  end
  if metadata.response_types and not has(metadata.response_types, "code") then return "invalid_client_metadata", "response_types has code" end
end

local function secret_of(id) return sealed.make("client secret", records.hash(id), "", true) end

local function made(id, content)
  return { id = id, redirects = content[2], name = content[3] or nil, method = content[4], refreshes = content[5], key = "dcr:" .. records.hash(id):sub(1, 32) }
end

--- Registers a client: the answer to it; or nil, an error code and its description.
function clients.register(metadata)
  local code, why = fault(metadata)
  if code then return nil, code, why end
  local method = metadata.token_endpoint_auth_method or "client_secret_basic"
  local grants = metadata.grant_types or { "authorization_code" }
  local refreshes = has(grants, "refresh_token")
  local content = { VERSION, metadata.redirect_uris, metadata.client_name or false, method, refreshes }
  local id = PREFIX .. sealed.make("registration", content, "", true)
  if #id > MAX_ID then return nil, "invalid_client_metadata", "the metadata are too long" end
  local answer = {
    client_id = id, client_name = metadata.client_name, redirect_uris = metadata.redirect_uris, token_endpoint_auth_method = method,
    grant_types = refreshes and { "authorization_code", "refresh_token" } or { "authorization_code" }, response_types = { "code" },
    application_type = metadata.application_type,
  }
  if method ~= "none" then answer.client_secret, answer.client_secret_expires_at = secret_of(id), 0 end
  return answer
end

-- What is kept of a document: { redirects, name, refreshes, about }; or nil and why it cannot be used.
local function read(metadata)
  local _, why = fault(metadata)
  if why then return nil, why end
  local method = metadata.token_endpoint_auth_method
  if method ~= nil and method ~= "none" then return nil, "the client authenticates in a way that is not taken: only none is" end
  return { redirects = metadata.redirect_uris, name = metadata.client_name, refreshes = has(metadata.grant_types, "refresh_token"),
    about = records.hash(metadata.client_name .. " " .. table.concat(metadata.redirect_uris, " ")):sub(1, 16) }
end

-- The client of a document: it has no secret, which everybody could read.
local function of_document(id, redirect, from)
  local known, its_host, is_away = documents.find(id, read, function(its) return not redirect or redirects.fits(its.redirects, redirect) end, from)
  if not known then return nil, its_host, is_away end
  return { id = id, redirects = known.redirects, name = known.name, method = "none", key = id, host = its_host, refreshes = known.refreshes,
    about = known.about }
end

--- The client with this id; nil: there is none, or its seal key is none any more; then perhaps why, and whether that may
--- pass. `redirect`: an address that the client should have; `from`: the address of whoever asks.
function clients.find(id, redirect, from)
  if type(id) ~= "string" or #id > MAX_ID then return nil end
  if documents.is_url(id) then return of_document(id, redirect, from) end
  local content = id:sub(1, #PREFIX) == PREFIX and sealed.open("registration", id:sub(#PREFIX + 1))
  return content and made(id, content) or nil
end

--- The client that a request to the token endpoint is from; nil and why. `request` may have credentials in its head.
function clients.authenticate(request, parameters)
  local id, secret, way = parameters.client_id, parameters.client_secret, parameters.client_secret and "client_secret_post" or "none"
  local scheme, rest = (request.headers.authorization or ""):match "^(%a+) +(.+)$"
  if scheme and scheme:lower() == "basic" then
    if secret then return nil, "two ways of client authentication at once" end
    local plain = keys.unbase64url((rest:gsub("=+$", ""):gsub("+", "-"):gsub("/", "_"))) or ""
    local user, word = plain:match "^([^:]*):(.*)$"
    local pair = user and form.parse("u=" .. user .. "&p=" .. word)
    if not pair or (id and id ~= pair.u) then return nil, "the credentials cannot be read" end
    id, secret, way = pair.u, pair.p, "client_secret_basic"
  elseif request.headers.authorization then
    return nil, "this way of client authentication is not known"
  end
  local client, why, is_away = clients.find(id, nil, request.address)
  -- Codes and tokens are bound to the client's id: that its document cannot be had now takes nothing from whoever holds them.
  if is_away and way == "none" then return { id = id, key = id, method = "none" } end
  if not client then return nil, why or "the client is not known: it has to register again", is_away end
  if client.method ~= way then return nil, "the client registered another way of authentication" end
  if way ~= "none" and sealed.open("client secret", secret) ~= records.hash(client.id) then return nil, "the client's secret is wrong" end
  return client
end

return clients
