-- Clients whose id is the https URL of a JSON document about them (draft-ietf-oauth-client-id-metadata-document). Anybody
-- can make the gateway fetch one, so it comes from a public address, in few bytes, in a short time, without redirects.
--   known   { value, at, ends }: what the caller reads out of a document, the time when it was fetched, and from when on it
--           is fetched again. The document itself may take far more memory than that

local address = require "moonpool.sign_in.address"
local direct = require "moonpool.lib.http.direct"
local flight = require "moonpool.runtime.single_flight"
local host = require "moonpool.host"
local lru = require "moonpool.runtime.lru"
local without_nulls = require "moonpool.runtime.without_nulls"

local documents = {}

local MAX_URL <const>, MAX_BYTES <const> = 256, 5 * 1024
local FETCH_S <const>, AT_ONCE <const>, WAITING <const> = 5, 8, 32
local OF_HOST <const> = 30                                   -- fetches in a minute from one host
local OF_ADDRESS <const>, PLACES <const> = 10, 2             -- of documents that are not known: in a minute for one address, and at once
local LEAST_S <const>, MOST_S <const>, STALE_S <const> = 3600, 7 * 86400, 86400
local AGAIN_S <const> = 10                                   -- until a document that could not be had, or does not fit, is asked for again
local MAX_KNOWN <const> = 1024

local known, bad = lru.new(MAX_KNOWN), lru.new(MAX_KNOWN)   -- URL -> known; URL -> { why, is_away, ends }
local flights = flight.new()

--- True if an id of a client is such a URL.
function documents.is_url(id) return host.config.sign_in.documents and id:find "^https://" ~= nil end

-- The parts of the URL; nil: it is none at which a document may be.
local function read_url(id)
  if #id > MAX_URL or id:find "[^!-~]" or id:find "[\\#@]" then return nil end
  local name, path = id:match "^https://([%w.-]+)(/[^?]+)"
  if not name or name ~= name:lower() or name == address.host or host.http.address(name) then return nil end
  local plain = path:lower():gsub("%%2e", ".")
  if (plain .. "/"):find "/%.%.?/" or plain:find "%%2f" or plain:find "%%5c" then return nil end
  local url = host.http.url(id)
  return url and url.url == id and url.host == name and url
end

-- The seconds for which Cache-Control lets the document be used.
local function life_of(head)
  local text = (direct.header_of(head, "cache-control") or ""):lower()
  local seconds = tonumber(text:match "max%-age=(%d+)")
  return math.max(LEAST_S, math.min(MOST_S, seconds or LEAST_S))
end

-- Fetches the document: it and its life; or nil, why, and whether that may pass. Only 404, 410 and JSON that says something else mean
-- that it is gone: a host may show programs a page instead for a while.
local function fetch(id, url, read)
  if host.store.take(("visitor l:documents:%s"):format(url.host), 60 / OF_HOST, OF_HOST) ~= true then
    return nil, "too many documents of this host in a minute", true
  end
  local turn <close> = host.semaphore.take("sign_in documents", AT_ONCE, false, WAITING)
  if not turn then return nil, "too many documents are fetched at once", true end
  local found, status, head = direct.ask("GET", id, "public", { "accept: application/json", "user-agent: moonpool" }, nil, FETCH_S, MAX_BYTES)
  if not found then return nil, status.why, not status.is_address end
  if status ~= 200 then return nil, "the document's host answers " .. status, status ~= 404 and status ~= 410 end
  local kind = (direct.header_of(head, "content-type") or ""):lower():gsub("%s*;.*", "")
  if not (kind == "application/json" or kind:find "^application/[%w.-]+%+json$") then return nil, "the document is not JSON", true end
  without_nulls(found)
  if found.client_id ~= id then return nil, "the document names another client_id", false end
  if found.client_secret ~= nil or found.client_secret_expires_at ~= nil then return nil, "the document has a secret, which everybody can read", false end
  if type(found.client_name) ~= "string" then return nil, "the document has no client_name", false end
  local value, why = read(found)
  if not value then return nil, why, false end
  return { value = value, at = host.time.now(), ends = host.time.now() + life_of(head) }
end

-- A place for fetching a document that is not known yet. Each address has a few of its own, so that one address leaves room for
-- the others; nil: all of this one are taken, or it has asked too often.
local function place_of(from)
  local name = host.http.counted(from)
  if host.store.take("visitor l:documents of " .. name, 60 / OF_ADDRESS, OF_ADDRESS) ~= true then return nil end
  return host.semaphore.take("sign_in documents of " .. name, PLACES, false, 0)
end

--- What `read` makes of the document at this URL, and its host; nil, why, and whether that may pass. `read(metadata)` returns a small
--- table; or nil and why the document cannot be used. `is_enough(value)` says whether what is known already will do; if not, the
--- document is fetched again. `from`: the address of whoever asks.
function documents.find(id, read, is_enough, from)
  local url = read_url(id)
  if not url then return nil, "the client's id is no URL at which a document may be" end
  local now, before = host.time.now(), known:get(id)
  if before and now < before.ends and (now < before.at + AGAIN_S or not is_enough or is_enough(before.value)) then return before.value, url.host end
  local failed = bad:get(id)
  if not (failed and now < failed.ends) then
    local place <close> = not before and from and place_of(from) or nil
    if not before and from and not place then return nil, "too many documents are asked for from this address", true end
    local found, why, is_away = flights:share(id, FETCH_S + 1, function() return fetch(id, url, read) end)
    if found then
      known:put(id, found)
      return found.value, url.host
    end
    host.log.write("info", "client document not fetched", { url = id, why = why })
    failed = { why = why, is_away = is_away ~= false, ends = now + AGAIN_S }
    bad:put(id, failed)
  end
  if before and (now < before.ends or failed.is_away and now < before.at + STALE_S) then return before.value, url.host end
  if not failed.is_away then known:drop(id) end
  return nil, failed.why, failed.is_away
end

return documents
