-- How the browser goes back to the client: with a code, once it is known who the person is, or with an error.
--   asked   what the client asks for, as authorize.lua reads it
--   who     { user, mark, scopes }: the person, what tells whether she may still sign in, and the scopes that she has

local address = require "moonpool.sign_in.address"
local clients = require "moonpool.sign_in.clients"
local families = require "moonpool.sign_in.families"
local form = require "moonpool.sign_in.form"
local host = require "moonpool.host"
local html = require "moonpool.sign_in.html"
local records = require "moonpool.sign_in.records"
local scopes = require "moonpool.sign_in.scopes"
local tokens = require "moonpool.sign_in.tokens"

local returning = {}

-- Sign-ins of one user: so many at once, then one in AGAIN_S. Each may leave an ending, which is kept for a day, and all people share
-- the room for those.
local OF_USER <const>, AGAIN_S <const> = 64, 60

--- For a form or an answer of a provider that is not used any more.
returning.AGAIN = "This page is too old, was used already, or belongs to another browser. Begin the sign-in again in the program that you came from."

--- The client's address with a code, or an error, a list of up to two names and values.
function returning.url(asked, list)
  return form.with(asked.redirect, { n = 8, list[1], list[2], list[3], list[4], "state", asked.state, "iss", address.issuer })
end

--- Sends the browser there.
function returning.go(asked, list) return html.go(returning.url(asked, list)) end

--- The page that takes a code to the client. `use`: a function that uses up the form or the answer by which the person
--- came, and gives false if it was used already.
function returning.signed_in(asked, who, use)
  local client = clients.find(asked.client)
  if not client then return html.fault(403, returning.AGAIN, nil, true) end
  local grant = { client = client.key, name = client.name, redirect = asked.redirect, resource = asked.resource,
    scopes = scopes.granted(asked.scopes, who.scopes), challenge = asked.challenge, user = who.user, mark = who.mark,
    refreshes = asked.stays or client.refreshes }
  local too_much = tokens.trouble(grant)
  if too_much then
    host.log.write("warn", "sign-in not possible", { why = "user " .. who.user .. ": " .. too_much, hint = "give this user fewer or shorter scopes" })
    return html.fault(403, "You have more rights here than one sign-in can give. Ask whoever runs this gateway, or let the program ask for fewer.", nil, true)
  end
  if host.store.take("l:sign-ins:" .. records.hash(who.user), AGAIN_S, OF_USER) ~= true then
    local page = html.fault(503, "You have signed in very often. Try again in a minute.", nil, true)
    page.event, page.reason = "sign-in refused", "too many sign-ins of user=" .. who.user
    return page
  end
  if not use() then return html.fault(403, returning.AGAIN, nil, true) end
  local code = families.code(grant)
  records.settle()
  local page = returning.go(asked, { "code", code })
  page.event, page.reason = "signed in", "user=" .. who.user .. " client=" .. client.key
  return page
end

return returning
