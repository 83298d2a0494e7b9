-- auth.keys { keys = | file = | store = }: API keys, sent as `x-api-key: …` or `Authorization: Bearer …`. Only their
-- SHA-256 is stored:
-- the keys are random, so a slower hash is not needed.

local auth = require "moonpool.access.auth"
local fs = require "moonpool.lib.fs"
local grants = require "moonpool.runtime.grants"
local host = require "moonpool.host"
local keys = require "moonpool.keys"
local options = require "moonpool.access.auth.options"
local problem = require "moonpool.runtime.diagnostic"
local store = require "moonpool.lib.store"
local watched = require "moonpool.runtime.cached_file"

local MAX_KEYS = 100000

local form = "moonpool key new NAME prints one"
local line_form = "as in `ci sha256:… orders:read 2027-01-31`: moonpool key new NAME prints such a line"

local function hex(bytes) return (bytes:gsub(".", function(byte) return ("%02x"):format(byte:byte()) end)) end

local function read_hash(text)
  if type(text) ~= "string" then return nil end
  local digits = text:lower():gsub("^sha256:", "")
  return digits:find "^%x+$" and #digits == 64 and digits or nil
end

-- The end of a day of the calendar; nil for any other text.
local function read_day(text)
  local year, month, day = text:match "^(%d%d%d%d)-(%d%d)-(%d%d)$"
  if not year or os.date("%F", os.time { year = year, month = month, day = day, hour = 12 }) ~= text then return nil end
  return os.time { year = year, month = month, day = day + 1, hour = 0 }
end

-- One key from its description; or nil and why, without the name: the name in a file may be a key that is in the wrong
-- place.
local function entry_of(name, hash, scopes, expires)
  if not options.is_id(name) then return nil, "the name is not valid" end
  local digits = read_hash(hash)
  if not digits then return nil, "the key needs the SHA-256 of its text, in 64 hexadecimal digits" end
  local list, why = options.read_scopes(scopes)
  if not list then return nil, why end
  if type(expires) == "string" then expires = read_day(expires) or false end
  if expires ~= nil and math.type(expires) == nil then return nil, "the key's last day is not a day as in 2027-01-31" end
  return { name = name, hash = digits, scopes = list, expires = expires }
end

local function add(all, entry)
  if all[entry.hash] then return nil, "it is the same key as '" .. all[entry.hash].name .. "'" end
  all[entry.hash] = entry
  return true
end

-- A file of keys. A line has a name, sha256:…, scopes with commas between them or "-", and optionally the last day.
local function parse(text)
  local all, n, count = {}, 0, 0
  for line in (text .. "\n"):gmatch "(.-)\r?\n" do
    n = n + 1
    line = line:gsub("#.*", "")
    if line:find "%S" then
      local name, hash, scopes, day, more = line:match "^%s*(%S+)%s+(%S+)%s*(%S*)%s*(%S*)%s*(%S*)%s*$"
      if not name or more ~= "" then return nil, "the line is not a key", n, line_form end
      if name:sub(-1) == ":" then return nil, "the name of a key does not end with ':'", n, line_form end
      scopes = scopes ~= "-" and scopes ~= "" and scopes:gsub(",", " ") or nil
      local entry, why = entry_of(name, hash, scopes, day ~= "" and day or nil)
      if entry then entry, why = add(all, entry) end
      if not entry then return nil, why, n, line_form end
      count = count + 1
      if count > MAX_KEYS then return nil, "there are more than " .. MAX_KEYS .. " keys" end
    end
  end
  return all
end

local function read_table(given)
  local all = {}
  for name, one in pairs(given) do
    if type(one) ~= "table" then problem.raise(2, "auth.keys: a key is a table", "as in ci = { sha256 = \"…\", scopes = { \"orders:read\" } }") end
    local entry, why = entry_of(one.name or name, one.sha256, one.scopes, one.expires)
    if entry then entry, why = add(all, entry) end
    if not entry then problem.raise(2, "auth.keys: '" .. tostring(one.name or name) .. "': " .. why, form) end
  end
  return all
end

-- A store key that is not reserved by a grant is refused: any script could write itself an API key with any scopes.
local function check_reserved(prefix, script)
  for _, pattern in ipairs(grants.reserved "store") do
    if pattern:sub(-1) == "*" and grants.fits(pattern, prefix) then return end
  end
  problem.raise(3, "auth.keys: the keys '" .. prefix .. "' of the store are not reserved: any script could write one",
    ("moonpool.yaml: scripts: {grants: {%q: {store: [%q]}}}; and the same grant for the scripts that make keys"):format(script.path, prefix .. "*"))
end

-- Returns a function that finds an entry by its hash; that function returns nil, why, kind on failure.
local function finder(given, script)
  local ways = 0
  for _, name in ipairs { "keys", "file", "store" } do ways = ways + (given[name] ~= nil and 1 or 0) end
  if ways ~= 1 then
    problem.raise(2, "auth.keys needs exactly one of 'keys', 'file' and 'store'", "as in keys = { ci = { sha256 = \"…\", scopes = { … } } }")
  end
  if given.keys then
    if type(given.keys) ~= "table" then problem.raise(2, "auth.keys: 'keys' is a table") end
    local all = read_table(given.keys)
    return function(hash) return all[hash] end
  end
  if given.file then
    watched.check(script, given.file)
    local file = watched.new(fs.library(script.granted, script.path), script, given.file, parse)
    return function(hash)
      local all = file:get()
      if not all then return nil, "the keys cannot be read", "unavailable" end
      return all[hash]
    end
  end
  if type(given.store) ~= "string" then
    problem.raise(2, "auth.keys: 'store' must be the prefix of the keys' names in the store", "as in store = \"keys:\"")
  end
  check_reserved(given.store, script)
  return function(hash)
    local kept, away = store.get(given.store .. hash)
    if away then return nil, "the keys cannot be read", "unavailable" end
    if type(kept) ~= "table" then return nil end
    return entry_of(kept.name, hash, kept.scopes, kept.expires)
  end
end

return function(given, script)
  options.check("auth.keys", given, { "keys", "file", "store", "header", "prefix" })
  if given.header ~= nil and not options.is_header(given.header) then problem.raise(1, "auth.keys: 'header' must be the name of a header") end
  if given.prefix ~= nil and type(given.prefix) ~= "string" then
    problem.raise(1, "auth.keys: 'prefix' must be the prefix of ids", "as in prefix = \"robot:\"")
  end
  local header, prefix = (given.header or "x-api-key"):lower(), given.prefix or "key:"
  if options.is_of_people(prefix) then
    problem.raise(1, "auth.keys: ids with the prefix '" .. prefix .. "' belong to people who sign in at this gateway", "as in prefix = \"robot:\"")
  end
  local find = finder(given, script)
  options.take_prefix(prefix)
  return options.made(given, function(request)
    local key = request.headers[header] or request.bearer
    if not key then return nil, "there is no API key" end
    local hash = hex(host.digest.sum("sha256", key))
    local entry, why, kind = find(hash)
    if not entry or not keys.equal(entry.hash, hash) then return nil, why or "the API key is not known", kind and options.RETRY end
    if options.is_of_people(prefix .. entry.name) then return nil, "the API key's id is one of people who sign in here" end
    if entry.expires and os.time() >= entry.expires then return nil, "the API key has expired" end
    entry.principal = entry.principal or auth.keep { id = prefix .. entry.name, scopes = entry.scopes, expires = entry.expires }
    return entry.principal
  end)
end
