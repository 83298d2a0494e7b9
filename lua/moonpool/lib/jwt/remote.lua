-- The keys of an issuer, fetched over HTTP: when they are first needed, periodically, and when a token names an unknown
-- key. The workers of a process share fetched keys and the limit on fetches.

local host = require "moonpool.host"
local bus = require "moonpool.runtime.bus"
local json = require "moonpool.json"
local keyset = require "moonpool.lib.jwt.jwks"
local locations = require "moonpool.lib.jwt.locations"
local weak = require "moonpool.runtime.weak"

local remote = {}
remote.__index = remote

local TIMEOUT = 5        -- seconds for one request
local MAX_FETCH_S = 20   -- seconds for a whole fetch
local MAX_ANSWER_BYTES = 262144
local MAX_PAUSE_S = 60    -- seconds between tries while the issuer does not answer
local TEXT, TURN, TOPIC = "jwt keys:", "jwt turn:", "jwt keys"

local all = setmetatable({}, weak.keys)

--- `options`: name (equal for equal sets of keys), http (the library of a script), issuer or uri, and times in seconds:
--- refetch (the least between fetches for unknown keys), refresh, max_age; plain_http.
function remote.new(options)
  local self = setmetatable({ quiet_until = -math.huge, failures = 0 }, remote)
  for name, value in pairs(options) do self[name] = value end
  all[self] = true
  return self
end

-- A random time near `seconds`, so that many gateways do not fetch in the same second.
local function about(seconds) return seconds * (0.75 + host.random.bytes(1):byte() / 510) end

-- Replaces `self.known`, { set, text, fetched_at, refresh_at }, in one step: a task that is preempted between two reads
-- of it would have the key of one set and the name of another. The set is the same table as long as its text is.
local function adopt(self, text, age)
  local known = self.known
  local set, why
  if known and known.text == text then
    set = known.set
  else
    set, why = keyset.from_json(text)
  end
  if not set then return nil, why end
  local fetched_at = host.time.now() - age
  self.failures = 0
  self.known = { set = set, text = text, fetched_at = fetched_at, refresh_at = fetched_at + about(self.refresh) }
  return true
end

-- Takes over keys that another worker or another generation of scripts has fetched.
local function catch_up(self)
  local kept = host.store.get(TEXT .. self.name)
  local at, text = (kept or ""):match "^(%-?%d+)\n(.*)$"
  if not at then return end
  local age = math.max(0, os.time() - tonumber(at))
  if age >= self.max_age then return end
  local known = self.known
  if not known or text ~= known.text then
    adopt(self, text, age)
  else
    known.fetched_at = math.max(known.fetched_at, host.time.now() - age)
  end
end

local function land(self, it)
  if it and self.under_way == it then self.under_way = nil end
  if it then it.signal:set() end
end

-- Another worker has fetched the keys of `name`, or has failed to. nil: of any name, since messages were missed.
local function on_fetched(name)
  for self in pairs(all) do
    if not name or self.name == name then
      catch_up(self)
      local it = self.under_way
      if it and not it.is_ours then land(self, it) end
    end
  end
end

bus.on(TOPIC, on_fetched)
bus.on("missed", function() on_fetched() end)

local function get(self, url)
  local answer, why = self.http.get(url, {
    timeout = TIMEOUT, max = math.min(MAX_ANSWER_BYTES, host.limits.http.body), follow = false,
    headers = { accept = "application/json, application/jwk-set+json" },
  })
  if not answer then return nil, why end
  if answer.status ~= 200 then return nil, url .. " answers " .. answer.status, answer.status end
  return answer.body
end

-- Fetches the issuer's metadata (RFC 8414, OpenID Connect Discovery) and returns the URL of the keys.
local function discover(self)
  local last
  for _, url in ipairs(locations.metadata(self.issuer)) do
    local body, why, status = get(self, url)
    if not body and not (status and status >= 400 and status < 500) then return nil, why end
    last = why
    local document = body and json.decode(body)
    if type(document) == "table" and document.issuer ~= nil then
      if document.issuer ~= self.issuer then return nil, url .. ": the metadata names another issuer" end
      local fine, wrong = locations.check(document.jwks_uri, self.plain_http)
      if not fine then return nil, url .. ": jwks_uri: " .. wrong end
      return document.jwks_uri
    end
    last = last or url .. ": the answer is not an issuer's metadata"
  end
  return nil, last
end

-- Fetches the JWK Set and returns its text if it has usable keys; or nil, why.
local function download(self)
  local uri, why = self.uri, nil
  if not uri then
    if not self.found_uri or self.failures > 0 then self.found_uri, why = discover(self) end
    uri = self.found_uri
    if not uri then return nil, why end
  end
  local text
  text, why = get(self, uri)
  if not text then return nil, why end
  local fine
  fine, why = adopt(self, text, 0)
  if not fine then return nil, uri .. ": " .. why end
  return text
end

local function fetch(self, for_unknown)
  local text, why = download(self)
  local pause = 0
  if text then
    host.store.set(TEXT .. self.name, os.time() .. "\n" .. text, self.max_age)
    if for_unknown then pause = self.refetch end
  else
    self.failures = self.failures + 1
    pause = about(math.min(MAX_PAUSE_S, 2 ^ self.failures / 4))
    host.log.write("warn", "keys not fetched", { issuer = self.issuer or self.uri, why = why, again = ("%.1fs"):format(pause), failures = self.failures })
  end
  self.quiet_until = host.time.now() + pause
  if pause > 0 then
    host.store.set(TURN .. self.name, "done", pause)
  else
    host.store.delete(TURN .. self.name)
  end
end

local function begin(self, for_unknown)
  local it = { signal = host.task.event(), is_ours = true, ends = host.time.now() + MAX_FETCH_S }
  self.under_way = it
  local begun, why = host.job.begin_own(function()
    local _ <close> = setmetatable({}, { __close = function()
      land(self, it)
      bus.everywhere(TOPIC, self.name)
    end })
    fetch(self, for_unknown)
  end, MAX_FETCH_S)
  if begun then return end
  host.log.write("warn", "keys not fetched", { issuer = self.issuer or self.uri, why = why })
  self.quiet_until = host.time.now() + 1
  host.store.delete(TURN .. self.name)
  land(self, it)
end

-- Starts a fetch of the keys unless one ended just now. Waits for its end, up to a number of seconds, or not at all.
local function renew(self, seconds, for_unknown)
  if self.under_way and host.time.now() > self.under_way.ends then land(self, self.under_way) end -- the worker that fetched the keys did not report the end
  if not self.under_way then
    if host.time.now() < self.quiet_until then return end
    if host.store.add(TURN .. self.name, "busy", MAX_FETCH_S) ~= false then -- if the store is full, the keys are fetched without this mark
      begin(self, for_unknown)
    elseif host.store.get(TURN .. self.name) == "busy" then
      self.under_way = { signal = host.task.event(), ends = host.time.now() + MAX_FETCH_S } -- another worker fetches the keys
    else
      self.quiet_until = host.time.now() + 0.5
    end
  end
  local it = self.under_way
  if it and seconds > 0 then it.signal:wait(seconds) end
end

-- The cached keys of the issuer, unless they are too old.
local function usable(self)
  local known = self.known
  return known and host.time.now() - known.fetched_at < self.max_age and known
end

--- The key for `kid` and `algorithm`, and its set, which is another table once the keys have changed; or nil, why, and
--- "unavailable" if keys could not be fetched.
function remote:find(kid, algorithm)
  local is_fresh, known = false, usable(self)
  if not known then
    catch_up(self)
    if not usable(self) then
      renew(self, MAX_FETCH_S)
      is_fresh = true
    end
    known = usable(self)
    if not known then return nil, "the issuer's keys cannot be fetched at the moment", "unavailable" end
  elseif host.time.now() >= known.refresh_at then
    renew(self, 0)
  end
  local set = known.set
  local key, why, may_be_new = set:find(kid, algorithm)
  if not key and may_be_new and not is_fresh then
    renew(self, TIMEOUT, true)
    set = self.known.set
    key, why = set:find(kid, algorithm)
  end
  if not key then return nil, why end
  return key, set
end

return remote
