-- The authorization server of this gateway's clients, where moonpool.yaml has `sign_in`: which page or endpoint a
-- request is for. C asks for every path that begins as one of these; nothing here sees a call.

local address = require "moonpool.sign_in.address"
local authorize = require "moonpool.sign_in.authorize"
local callback = require "moonpool.sign_in.callback"
local endpoints = require "moonpool.sign_in.endpoints"
local failure = require "moonpool.runtime.outcome"
local form = require "moonpool.sign_in.form"
local host = require "moonpool.host"
local html = require "moonpool.sign_in.html"
local metadata = require "moonpool.sign_in.metadata"
local people = require "moonpool.sign_in.people"

local sign_in = {}

local MAX_BODY <const> = 16384

local function show_metadata() return endpoints.answer(200, metadata) end

-- path -> method -> function; `is_open`: clients in browsers of every origin ask.
local routes = {
  ["/oauth/authorize"] = { GET = authorize.begin },
  ["/oauth/consent"] = { POST = authorize.consent, is_form = true },
  ["/oauth/token"] = { POST = endpoints.token, is_open = true },
  ["/oauth/register"] = { POST = endpoints.register, is_open = true },
  ["/oauth/revoke"] = { POST = endpoints.revoke, is_open = true },
}
if people.passwords then
  routes["/oauth/password"] = { POST = authorize.password, is_form = true }
else
  routes["/oauth/callback"] = { GET = callback.answer }
end
for _, name in ipairs { "oauth-authorization-server", "openid-configuration" } do
  local route = { GET = show_metadata, is_open = true }
  routes["/.well-known/" .. name] = route
  routes["/.well-known/" .. name .. address.path ""] = route       -- RFC 8414: the issuer's path follows
end

local function not_there()
  return { status = 404, type = "text/plain", body = "nothing is served at this path\n", headers = { "cache-control", "no-store" } }
end

local function preflight()
  return { status = 204, body = "", headers = { "access-control-allow-origin", "*", "access-control-allow-methods", "GET, POST",
    "access-control-allow-headers", "*" } }
end

local function allowed(route)
  local list = {}
  for _, name in ipairs { "GET", "POST" } do list[#list + 1] = route[name] and name or nil end
  return table.concat(list, ", ")
end

local function route_of(request)
  local path, whole = address.own_path(request.path)
  return routes[whole] or routes[path]
end

local function serve(request, route)
  if not route then return not_there() end
  local method = request.method == "HEAD" and "GET" or request.method
  if method == "OPTIONS" and route.is_open then return preflight() end
  local handler = route[method]
  if not handler then return { status = 405, body = "", headers = { "allow", allowed(route), "cache-control", "no-store" } } end
  if #request.body > MAX_BODY then return { status = 413, type = "text/plain", body = "the body is longer than 16 KiB\n", headers = {} } end
  if route.is_form and not form.is_in(request) then return html.fault(415, "The form cannot be read.") end
  return handler(request)
end

-- A fault of ours, or of the store, is 503: a client tries again, and no words of ours are lost in a 500.
local function broken(value, is_open)
  if type(value) == "table" and value.sign_in_unavailable then
    host.log.write("warn", "sign-in not possible", { why = value.sign_in_unavailable })
  else
    failure.report(value, "sign-in failed", "sign_in")
  end
  local why <const> = "Signing in is not possible at the moment. Try again in a few seconds."
  local page = is_open and endpoints.answer(503, { error = "temporarily_unavailable", error_description = why }) or html.fault(503, why)
  page.event, page.reason = "sign-in refused", "signing in is not possible at the moment"
  table.move({ "retry-after", "2" }, 1, 2, #page.headers + 1, page.headers)
  return page
end

local function keep(value) return type(value) == "table" and value.sign_in_unavailable and value or failure.handler(value) end

--- For C: status, media type, body and headers of the answer, and an event and a reason for the audit.
function sign_in.answer(request)
  local route = route_of(request)
  local ok, page = xpcall(serve, keep, request, route)
  if not ok then page = broken(page, route and route.is_open) end
  return page.status, page.type, page.body, page.headers, page.event, page.reason
end

return sign_in
