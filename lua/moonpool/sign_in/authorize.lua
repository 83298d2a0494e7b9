-- The pages of a sign-in: a client's request is shown to the person (consent), who then gives name and password or goes
-- to the provider (callback.lua), and the browser takes a code to the client. Nothing is stored before the person has
-- agreed: what the pages need is in their forms, sealed for the browser.
--   asked   what the client asks for: { client, redirect, resource, scopes, stays, challenge, state }, `client` by its id;
--           scopes nil: all that the person has; stays: it asks for a refresh token

local address = require "moonpool.sign_in.address"
local browser = require "moonpool.sign_in.browser"
local callback = require "moonpool.sign_in.callback"
local clients = require "moonpool.sign_in.clients"
local form = require "moonpool.sign_in.form"
local host = require "moonpool.host"
local html = require "moonpool.sign_in.html"
local keys = require "moonpool.keys"
local people = require "moonpool.sign_in.people"
local records = require "moonpool.sign_in.records"
local redirects = require "moonpool.sign_in.redirects"
local returning = require "moonpool.sign_in.returning"
local scopes = require "moonpool.sign_in.scopes"
local waits = require "moonpool.sign_in.waits"

local authorize = {}

local MAX_STATE <const>, MAX_SCOPE <const>, MAX_PASSWORD <const>, MAX_NAME <const> = 1024, 2048, 1024, 128
local USED_S <const> = 900

-- -- the client's request -----------------------------------------------------------------------------------------------

-- The fault of a request whose client and redirect are known: a text for the person.
local function fault(query)
  local challenge = query.code_challenge
  if query.request or query.request_uri then return "The program sent a request object, which this gateway does not take." end
  if query.response_type ~= "code" then return "The program did not ask for a code." end
  if query.response_mode and query.response_mode ~= "query" then return "The program asked for an answer that is not in the query." end
  if not challenge or query.code_challenge_method ~= "S256" or #challenge ~= 43 or challenge:find "[^%w_-]" then
    return "The program did not protect its request by PKCE with S256."
  end
  if query.prompt and (" " .. query.prompt .. " "):find(" none ", 1, true) then return "The program asked not to show a page, and nobody is signed in." end
  if #(query.state or "") > MAX_STATE then return "The program sent a state of more than 1,024 bytes." end
  if not address.resource(query.resource) then return "The program asked for access to something that is not at this gateway." end
  if #(query.scope or "") > MAX_SCOPE or scopes.asked(query.scope) == false then return "The program asked for scopes that cannot be read." end
end

-- Everything that is shown and granted later; or nil and the page to show instead. `from`: the browser's address.
local function read(query, from)
  local client, document_fault, is_away = clients.find(query.client_id, query.redirect_uri, from)
  if document_fault then
    local page = html.fault(is_away and 503 or 400, "What the program says of itself at its address cannot be used: " .. document_fault .. ".", nil, true)
    page.reason = document_fault
    return nil, page
  elseif not client then
    return nil, html.fault(400, "The program is not known here. Remove this server from it and connect again, so that it registers anew.", nil, true)
  end
  if not query.redirect_uri or not redirects.fits(client.redirects, query.redirect_uri) then
    return nil, html.fault(400, "The program named an address to return to that it has not registered.", nil, true)
  end
  local why = fault(query)
  if why then
    local name, is_near = redirects.described(query.redirect_uri)
    return nil, html.fault(400, why, not is_near and { url = "https://" .. name .. "/", host = name } or nil, true)
  end
  local wanted, stays = scopes.asked(query.scope)
  return { client = client.id, redirect = query.redirect_uri, resource = address.resource(query.resource), scopes = wanted, stays = stays,
    challenge = query.code_challenge, state = query.state, about = client.about }, client
end

-- -- pages --------------------------------------------------------------------------------------------------------------

local function consent_page(request, asked, client)
  local hash, headers = browser.known(request)
  local name, is_near = redirects.described(asked.redirect)
  local parts = { "<p class=\"host\"><b>", html.escape(name), "</b> asks for access in your name.</p>" }
  if client.name then
    local from = client.host and ", at " .. html.escape(client.host) or " (unverified)"
    parts[#parts + 1] = "<p>It calls itself <b>" .. html.escape(client.name) .. "</b>" .. from .. ".</p>"
  end
  if is_near then parts[#parts + 1] = "<p class=\"warn\">Any program on this computer can claim this. Go on only if you have just started it yourself.</p>" end
  parts[#parts + 1] = "<p>It gets access to <b>" .. html.escape(asked.resource) .. "</b>"
  if asked.scopes then
    parts[#parts + 1] = ", at most with these rights:</p><ul><li>"
    local shown = {}
    for i, scope in ipairs(asked.scopes) do shown[i] = html.escape(scope) end
    parts[#parts + 1] = table.concat(shown, "</li><li>") .. "</li></ul>"
  else
    parts[#parts + 1] = ", with all rights that you have there.</p>"
  end
  parts[#parts + 1] = html.form("/oauth/consent", browser.form("consent", hash, asked),
    "<button name=\"answer\" value=\"allow\" class=\"later\">Allow</button><button name=\"answer\" value=\"refuse\">Refuse</button>")
  return html.page(200, "Allow access?", table.concat(parts), headers)
end

local function password_page(request, asked, note)
  local hash, headers = browser.known(request)
  local warning = note and "<p class=\"warn\">" .. html.escape(note) .. "</p>" or ""
  return html.page(note and 403 or 200, "Sign in", warning .. html.form("/oauth/password", browser.form("password", hash, asked),
    "<label>Name<input name=\"name\" autocomplete=\"username\" required maxlength=\"128\"></label>"
    .. "<label>Password<input name=\"password\" type=\"password\" autocomplete=\"current-password\" required></label><button>Sign in</button>"), headers)
end

--- GET /oauth/authorize
function authorize.begin(request)
  local asked_for = request.headers.host
  if address.is_near and asked_for and asked_for:lower() ~= address.host then
    return html.go(address.issuer .. "/oauth/authorize?" .. request.query)        -- a cookie of localhost is not sent to 127.0.0.1
  end
  local query, why = form.parse(request.query)
  if not query then return html.fault(400, "The program's request cannot be read: " .. why .. ".", nil, true) end
  local asked, client = read(query, request.address)
  if not asked then return client end
  return consent_page(request, asked, client)
end

-- The parameters of a form that a page of ours posted, with what it was shown for and its id; or nil and a page.
local function posted(kind, request)
  if not browser.is_ours(request) then return nil, html.fault(403, "This form was not sent by a page of this gateway.", nil, true) end
  local parameters = form.parse(request.body)
  if not parameters then return nil, html.fault(400, "The form cannot be read.") end
  local asked, id = browser.posted(kind, request, parameters.form)
  if not asked then return nil, html.fault(403, returning.AGAIN, nil, true) end
  return parameters, asked, id
end

--- POST /oauth/consent
function authorize.consent(request)
  local parameters, asked, id = posted("consent", request)
  if not parameters then return asked end
  if parameters.answer ~= "allow" then return returning.go(asked, { "error", "access_denied", "error_description", "the person refused" }) end
  local client = clients.find(asked.client, nil, request.address)
  if not client or not redirects.fits(client.redirects, asked.redirect) then return html.fault(403, returning.AGAIN, nil, true) end
  if client.about ~= asked.about then          -- its document is another one than the person has seen
    asked.about = client.about
    return consent_page(request, asked, client)
  end
  if people.passwords then return password_page(request, asked) end
  return callback.begin(request, asked, function() return records.add("form", records.hash(id), true, USED_S) end)
end

--- POST /oauth/password
function authorize.password(request)
  local parameters, asked, id = posted("password", request)
  if not parameters then return asked end
  local name, word = parameters.name or "", parameters.password or ""
  if #name > MAX_NAME or #word > MAX_PASSWORD or name == "" then return password_page(request, asked, "Name or password is wrong.") end
  local is_early = waits.is_early(name, request.address)
  local is_right, why = people.passwords.check(name, word, request.address)
  if why then return html.fault(503, "Passwords cannot be checked at the moment. Try again in a few seconds.") end
  is_early = is_early or waits.is_early(name, request.address)
  if is_early or not is_right then
    if not is_early then waits.note_failure(name, request.address) end
    local page = password_page(request, asked, "Name or password is wrong, or there were too many tries: then wait a little.")
    page.event, page.reason = "sign-in refused", is_early and "too many wrong passwords" or "wrong name or password"
    return page
  end
  local who, refusal = people.admit_by_password(name)
  if not who then
    local page = returning.go(asked, { "error", "access_denied", "error_description", "the person may not sign in here" })
    page.event, page.reason = "sign-in refused", "user=" .. name .. " " .. refusal
    return page
  end
  return returning.signed_in(asked, who, function()
    if not records.add("form", records.hash(id), true, USED_S) then return false end
    waits.forget(name, request.address)
    return true
  end)
end

--- True if this is the verifier of the challenge (RFC 7636).
function authorize.is_verifier(verifier, challenge)
  if type(verifier) ~= "string" or #verifier < 43 or #verifier > 128 or verifier:find "[^%w%-._~]" then return false end
  return keys.equal(keys.base64url(host.digest.sum("sha256", verifier)), challenge)
end

return authorize
