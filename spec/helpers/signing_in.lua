-- A person, her browser and a client at the sign-in of a gateway, over plain HTTP: each step by itself.
--   local g <close> = signing_in.start()
--   local client = signing_in.register(g);   local tokens = signing_in.tokens(g, client)
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local uv = require "luv"
local wire = require "spec.helpers.wire"

local signing_in = {}

signing_in.url = "http://127.0.0.1:7300" -- public_url: the name in all addresses, whatever port the gateway of a spec has
signing_in.resource = signing_in.url .. "/mcp"
signing_in.redirect = "http://127.0.0.1:4711/callback"

-- Those of RFC 7636, appendix B.
signing_in.verifier, signing_in.challenge = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"

signing_in.password = "hello12345"
local hash = "scrypt:32768:8:3:Mpr2iGNYdgKpTEHq2VWcOg:TntBT62pie0wYeY2beVPm2-v_7G2r50crwWnkmqieHc"
signing_in.users = "# people\nann " .. hash .. " notes:read,notes:write\nbob " .. hash .. "\n"

local tool = [[return tool { "Says who calls.", function(_, call) return call.principal.id .. " " .. table.concat(call.principal.scopes, " ") end }]]

local function over(base, more)
  for name, value in pairs(more or {}) do base[name] = value end
  return base
end

--- The options of a gateway with the users ann and bob. `more`: further keys of the configuration; `options`: those of
--- gateway.start.
function signing_in.options(more, options)
  options = over({ scripts = { ["tools/who.lua"] = tool } }, options)
  options.files = over({ ["users.txt"] = signing_in.users }, options.files)
  options.before = function(dir) uv.fs_chmod(dir .. "/users.txt", 384) end
  options.config = over({ public_url = signing_in.url, sign_in = { provider = "password", passwords = "users.txt" } }, more)
  return options
end

--- Such a gateway.
function signing_in.start(more, options) return gateway.start(signing_in.options(more, options)) end

--- A gateway in the folder of one that was killed.
function signing_in.again(g)
  g:kill()
  g.stopped = true
  return gateway.start { dir = g.dir }
end

function signing_in.escape(text) return (text:gsub("[^%w%-._~]", function(c) return ("%%%02X"):format(c:byte()) end)) end

--- A table as the text of a form or a query.
function signing_in.form(fields)
  local parts = {}
  for name, value in pairs(fields) do parts[#parts + 1] = signing_in.escape(name) .. "=" .. signing_in.escape(value) end
  table.sort(parts)
  return table.concat(parts, "&")
end

function signing_in.send(g, method, path, body, headers)
  local client = require "spec.helpers.client"
  return client.request(g, { method = method, path = path, body = body, headers = over({ Host = "127.0.0.1:7300" }, headers) })
end

local FORM <const> = "application/x-www-form-urlencoded"

--- What a client posts to an endpoint.
function signing_in.post(g, path, fields, headers)
  return signing_in.send(g, "POST", path, signing_in.form(fields), over({ ["Content-Type"] = FORM }, headers))
end

--- Registers a client: the answer's JSON, and the answer.
function signing_in.register(g, metadata, headers)
  local body = cjson.encode(over({ client_name = "Spec", redirect_uris = { signing_in.redirect }, token_endpoint_auth_method = "none",
    grant_types = { "authorization_code", "refresh_token" } }, metadata))
  local response = signing_in.send(g, "POST", "/oauth/register", body, over({ ["Content-Type"] = "application/json" }, headers))
  return response:json(), response
end

-- -- the browser ---------------------------------------------------------------------------------------------------------

local browser = {}
browser.__index = browser

--- A browser, which keeps the cookie that it gets.
function signing_in.browser(g) return setmetatable({ g = g }, browser) end

function browser:send(method, path, body, headers)
  local response = signing_in.send(self.g, method, path, body, over({ Cookie = self.cookie }, headers))
  local set = response.headers["set-cookie"]
  if set then self.cookie = set:match "^[^;]+" end
  return response
end

--- GET /oauth/authorize. `more`: parameters that differ; false leaves one out.
function browser:begin(client, more)
  local query = over({ response_type = "code", client_id = client.client_id, redirect_uri = signing_in.redirect, resource = signing_in.resource,
    code_challenge = signing_in.challenge, code_challenge_method = "S256", state = "s t&ate" }, more)
  for name, value in pairs(query) do query[name] = value or nil end
  return self:send("GET", "/oauth/authorize?" .. signing_in.form(query))
end

--- Posts the form of a page of ours.
function browser:post(page, path, fields, headers)
  local token = type(page) == "string" and page or page.body:match 'name="form" value="([^"]+)"'
  return self:send("POST", path, signing_in.form(over({ form = token }, fields)), over({ ["Content-Type"] = FORM, Origin = signing_in.url }, headers))
end

function browser:allow(page, answer) return self:post(page, "/oauth/consent", { answer = answer or "allow" }) end

function browser:sign_in(page, name, password)
  return self:post(page, "/oauth/password", { name = name or "ann", password = password or signing_in.password })
end

--- The parameters of the address that a page sends the browser to.
function signing_in.returned(response)
  local found = {}
  for name, value in (response.headers.location or ""):match "%?(.*)$":gmatch "([^&=]+)=([^&]*)" do
    found[name] = value:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end)
  end
  return found
end

--- The code that the client gets for ann, or the user `name`.
function signing_in.code(g, client, more, name)
  local ann = signing_in.browser(g)
  return signing_in.returned(ann:sign_in(ann:allow(ann:begin(client, more)), name)).code
end

function signing_in.redeem(g, client, code, more)
  return signing_in.post(g, "/oauth/token", over({ grant_type = "authorization_code", code = code, redirect_uri = signing_in.redirect,
    client_id = client.client_id, code_verifier = signing_in.verifier }, more))
end

--- The answer of the token endpoint for a whole sign-in.
function signing_in.tokens(g, client, more, name) return signing_in.redeem(g, client, signing_in.code(g, client, more, name)):json() end

function signing_in.refresh(g, client, token, more)
  return signing_in.post(g, "/oauth/token", over({ grant_type = "refresh_token", refresh_token = token, client_id = client.client_id }, more))
end

--- What the tool `who` says with this access token, or the HTTP status.
function signing_in.who(g, token)
  local message = wire.message(1, "tools/call", { name = "who", arguments = {}, _meta = wire.meta() })
  local response = wire.post(g, message, wire.mirrored(message, { Authorization = token and "Bearer " .. token }))
  return response.status == 200 and response:json().result.content[1].text or response.status, response
end

--- Sends a message of 2026-07-28 with the access token on a connection of its own, which it returns.
function signing_in.request(g, token, message)
  return g:connect():send { method = "POST", path = "/mcp", body = message,
    headers = wire.mirrored(message, { Accept = wire.both, ["Content-Type"] = "application/json", Authorization = "Bearer " .. token }) }
end

--- The connection of an event stream that the token opens, by subscriptions/listen.
function signing_in.listen(g, token)
  local message = wire.message(7, "subscriptions/listen", { notifications = { toolsListChanged = true }, _meta = wire.meta() })
  local connection = signing_in.request(g, token, message)
  assert(connection:read_head().status == 200)
  return connection
end

--- True if the stream of such a connection has ended.
function signing_in.has_ended(connection)
  connection:messages()
  return connection:is_closed_by_peer() or (connection.responses[1] or {}).done == true
end

return signing_in
