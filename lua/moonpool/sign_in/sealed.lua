-- What others keep for the authorization server, encrypted: forms in browsers, registrations and tokens at clients,
-- records in the store. Each purpose has keys of its own, and none of them is that of cursors or of requestState.

local address = require "moonpool.sign_in.address"
local host = require "moonpool.host"
local json = require "moonpool.json"

local sealed = {}

local function purpose_of(kind) return "moonpool sign_in " .. kind .. " " .. address.issuer end

--- The value as text for others. `about`: must be equal when it is opened; `is_repeatable`: equal values give equal texts.
function sealed.make(kind, value, about, is_repeatable)
  return host.seal.make(json.encode(value), about or "", is_repeatable, purpose_of(kind))
end

--- The value of a text that `make` gave for this kind; nil for any other text.
function sealed.open(kind, text, about)
  local opened = type(text) == "string" and host.seal.open(text, about or "", purpose_of(kind))
  if not opened then return nil end
  return (json.decode(opened))
end

return sealed
