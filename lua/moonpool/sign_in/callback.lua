-- The way to the provider and back. The flow of a person is kept from her click on the consent page until the provider
-- sends her browser back: the same browser, once, for ten minutes (RFC 9700, 4.7).
--   flow   { browser, asked, nonce, verifier, home, is_again? }; the provider sees a random `state` for it

local browser = require "moonpool.sign_in.browser"
local form = require "moonpool.sign_in.form"
local host = require "moonpool.host"
local html = require "moonpool.sign_in.html"
local keys = require "moonpool.keys"
local people = require "moonpool.sign_in.people"
local records = require "moonpool.sign_in.records"
local returning = require "moonpool.sign_in.returning"
local provider = not people.passwords and require "moonpool.sign_in.provider"

local callback = {}

local FLOW_S <const> = 600
local FLOWS <const>, OF_ADDRESS <const> = 5000, 1000     -- flows that begin in FLOW_S, of all and of one address: no more than twice as many live
local MAX_ANSWER <const> = 4096

-- -- pages -----------------------------------------------------------------------------------------------------------------

local function refused(status, text, reason)
  local page = html.fault(status, text, nil, true)
  page.reason = reason or text
  return page
end

-- A page that says why a sign-in ends, with a link that takes the error to the client.
local function ended(asked, status, text, code, reason)
  local page = html.fault(status, text, { url = returning.url(asked, { "error", code, "error_description", "the person is not signed in" }),
    host = "the program that you came from" }, true)
  page.reason = reason
  return page
end

local function unavailable(asked, failure)
  if failure.kind == "barred" or failure.kind == "outage" then
    local hint = failure.kind == "barred" and "see sign_in in the configuration, and what is registered at the provider" or nil
    host.log.write("warn", "sign-in not possible", { why = failure.why, hint = hint })
    return ended(asked, 503, "The identity provider cannot be asked at the moment. Try again in a minute.", "temporarily_unavailable", failure.why)
  end
  return ended(asked, 403, "The identity provider's answer could not be verified. Begin the sign-in again.", "access_denied", failure.why)
end

-- -- to the provider -------------------------------------------------------------------------------------------------------

-- True if one more flow may begin for this address.
local function may_begin(from)
  for _, rate in ipairs { { "visitor l:sign-ins " .. host.http.counted(from or ""), OF_ADDRESS }, { "l:sign-ins", FLOWS } } do
    if host.store.take(rate[1], FLOW_S / rate[2], rate[2]) ~= true then return false end
  end
  return true
end

local function random(bytes) return keys.base64url(keys.random(bytes)) end

local function begin(meta, hash, asked, is_again)
  local state = random(32)
  local flow = { browser = hash, asked = asked, nonce = random(24), verifier = random(32), home = people.home, is_again = is_again }
  records.put("flow", records.hash(state), flow, FLOW_S)
  return html.go(provider.authorize_url(meta, state, flow))
end

--- Sends the browser, whose person has agreed, to the provider. `use` uses up her form, once nothing else can refuse it
--- (what it stores is below the rate): false if that was done before.
function callback.begin(request, asked, use)
  local meta, failure = provider.metadata()
  if not meta then return unavailable(asked, failure) end
  if not may_begin(request.address) then
    return refused(503, "Too many people sign in at this moment. Try again in a minute.")
  end
  if not use() then return refused(403, returning.AGAIN) end
  return begin(meta, (browser.known(request)), asked)
end

-- -- and back --------------------------------------------------------------------------------------------------------------

-- The flow of an answer, used up; or nil and a page. An answer that another browser brings uses up nothing.
local function take_flow(request, state)
  local key = records.hash(state)
  local flow, text = records.get("flow", key)
  if not flow or flow.browser ~= browser.known(request) then
    return nil, refused(403, returning.AGAIN, "an answer of the provider without a flow of this browser")
  end
  if not records.use("flow", key, text) then return nil, refused(403, returning.AGAIN, "an answer of the provider that was used already") end
  if flow.home ~= people.home then return nil, refused(403, returning.AGAIN, "the provider was changed") end
  return flow
end

-- What is wrong with the issuer of an answer (RFC 9207); nil: nothing.
local function issuer_fault(meta, iss)
  if iss == nil then return meta.names_itself and "the provider's answer does not name its issuer" or nil end
  return iss ~= meta.issuer and iss ~= provider.issuer and iss ~= meta.answers_as and "the answer is of another issuer" or nil
end

-- The provider refuses. Its words do not pass.
local function refused_there(asked, code)
  local is_denial = code == "access_denied" or code == "interaction_required" or code == "login_required" or code == "consent_required"
  local page = returning.go(asked, { "error", is_denial and "access_denied" or "server_error", "error_description", "the identity provider refused" })
  page.event, page.reason = "sign-in refused", "the provider answers " .. (code:sub(1, 64):match "^[%w_.-]+$" or "an error")
  return page
end

--- GET /oauth/callback
function callback.answer(request)
  if request.method ~= "GET" then return refused(405, "The identity provider's answer cannot be read.") end
  local answer = #request.query <= MAX_ANSWER and form.parse(request.query)
  if not answer or not answer.state or (answer.code == nil) == (answer.error == nil) then
    return refused(400, "The identity provider's answer cannot be read. Begin the sign-in again in the program that you came from.")
  end
  records.ready()
  local flow, page = take_flow(request, answer.state)
  if not flow then return page end
  local asked = flow.asked
  local meta, failure = provider.metadata()
  if not meta then return unavailable(asked, failure) end
  local fault = issuer_fault(meta, answer.iss)
  if fault then return ended(asked, 403, "The answer is not of the identity provider of this gateway. Begin the sign-in again.", "access_denied", fault) end
  if answer.error then return refused_there(asked, answer.error) end
  local claims, tokens = provider.redeem(meta, answer.code, flow)
  if not claims then return unavailable(asked, tokens) end
  local who, why, has_to_ask = people.admit(claims, tokens, flow.is_again)
  if has_to_ask then return begin(meta, flow.browser, asked, true) end
  if not who then
    return ended(asked, 403, "You may not sign in at this gateway. Ask whoever runs it.", "access_denied", people.shown(claims) .. ": " .. why)
  end
  return returning.signed_in(asked, who, function() return true end)
end

return callback
