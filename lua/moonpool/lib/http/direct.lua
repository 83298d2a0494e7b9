-- HTTP requests of the gateway itself to authorization servers, which no script sends: where they may lead, and what an
-- answer in JSON says. Redirects are not followed.
--   failure   { kind = "outage" | "barred", why, retry_after?, is_silent?, is_address? }: the server does not answer now
--             (`is_silent`: with nothing at all), or only a person can change that; `is_address`: its name leads to an
--             address that is not public

local host = require "moonpool.host"
local json = require "moonpool.json"
local uris = require "moonpool.runtime.uris"

local direct = {}

local TIMEOUT_S <const> = 10
local MAX_ANSWER_BYTES <const> = 64 << 10

--- The server does not answer, or not now: what it gave before is used on.
function direct.outage(why, retry_after) return { kind = "outage", why = why, retry_after = retry_after } end

--- The server refuses this gateway: only a person can change that.
function direct.refusal(why) return { kind = "barred", why = why } end

-- -- places ----------------------------------------------------------------------------------------------------------------

function direct.is_same_origin(a, b) return a.scheme == b.scheme and a.host == b.host and a.port == b.port end

--- The addresses that a URL of the configuration may lead to, for host.http.send.
function direct.configured_reach(url, is_private)
  local address = host.http.address(url.host)
  if address then return address end
  if url.host == "localhost" then return "loopback" end
  return is_private and "private" or "public"
end

--- The addresses that a URL in the metadata of `issuer` may lead to: of its own origin, or https and public; nil: the
--- URL must not be used.
function direct.named_reach(url, issuer, is_private)
  if direct.is_same_origin(issuer, url) then return direct.configured_reach(issuer, is_private) end
  return url.scheme == "https" and "public" or nil
end

-- -- requests --------------------------------------------------------------------------------------------------------------

--- The value of a header in the head of an answer; nil if it has none of this name, which is in lower case.
function direct.header_of(head, name)
  for line in head:gmatch "[^\n]+" do
    local key, value = line:match "^([^:]+):%s*(.-)%s*$"
    if key and key:lower() == name then return value end
  end
end

--- The JSON of an answer, {} for other bodies, its status and its head; or nil and a failure. `seconds` and `most`, the
--- limits of time and of the body's bytes, have defaults.
function direct.ask(method, url, reach, headers, body, seconds, most)
  local status, head, text, kind = host.http.send {
    method = method, url = url, headers = headers, body = body,
    most = most or MAX_ANSWER_BYTES, seconds = seconds or TIMEOUT_S, reach = reach, repeatable = false,
  }
  if not status then
    if kind ~= "refused" then
      local silence = direct.outage "the authorization server does not answer"
      silence.is_silent = true
      return nil, silence
    end
    local failure = direct.refusal "the authorization server's name leads to an address that is not public"
    failure.is_address = true
    return nil, failure
  end
  if status == 429 or status >= 500 then
    local wait = tonumber(direct.header_of(head, "retry-after") or "")
    return nil, direct.outage(("the authorization server answers with status %d"):format(status), wait and wait >= 0 and math.min(wait, 300) or nil)
  end
  if status >= 300 and status < 400 then return nil, direct.refusal "the authorization server answers with a redirect, which is not followed" end
  local value = json.decode(text)
  return type(value) == "table" and value or {}, status, head
end

--- A form's text from a list of { name, value }; fields without a value are left out.
function direct.form(fields)
  local parts = {}
  for _, field in ipairs(fields) do
    if field[2] then parts[#parts + 1] = field[1] .. "=" .. uris.escape(field[2]) end
  end
  return table.concat(parts, "&")
end

--- The header line with a client's credentials (RFC 6749, 2.3.1).
function direct.basic(client, secret) return "authorization: Basic " .. host.base64.encode(uris.escape(client) .. ":" .. uris.escape(secret)) end

return direct
