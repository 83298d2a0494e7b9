-- The provider `password`: a file with a line for each user, which `moonpool key password NAME` writes:
--   NAME scrypt:N:R:P:SALT:HASH [SCOPE,SCOPE…]

local cached_file = require "moonpool.runtime.cached_file"
local fs = require "moonpool.lib.fs"
local host = require "moonpool.host"
local keys = require "moonpool.keys"
local principal = require "moonpool.access.principal"
local records = require "moonpool.sign_in.records"

local passwords = {}

local FORM <const> = "a line is NAME scrypt:32768:8:3:SALT:HASH SCOPE,SCOPE; `moonpool key password NAME` writes it"
local MAX_USERS <const> = 10000
local LEAST_N <const>, LEAST_R <const>, LEAST_P <const> = 32768, 8, 3
local MOST_N_R <const> = 1 << 19
local HASH <const>, LEAST_SALT <const>, MOST_SALT <const> = 32, 8, 64      -- bytes: a line that ends within its hash is not taken for another one
local AT_ONCE <const> = 2        -- hashes: each takes 32 MiB, and a thread of four for 0.1 to 0.3 s
local MOST_WAITING <const> = 32   -- passwords: those take 5 s, and leave most of the pages' places to others
local MOST_OF_ADDRESS <const> = 8 -- passwords that wait or are hashed: no address takes all of these places
local PAUSE_S <const>, PAUSES <const> = 0.05, 100      -- a hash whose client has left goes on, and holds its place until then

local function scopes_of(text)
  local list = {}
  for scope in text:gmatch "[^,]+" do
    if principal.scope_trouble(scope) then return nil, scope end
    list[#list + 1] = scope
  end
  return list
end

local function entry_of(line)
  local name, kind, rest, more = line:match "^%s*(%S+)%s+(%a[%w]*)[:$](%S*)%s*(.-)%s*$"
  if not name then return nil, "the line is not one of a user" end
  if kind ~= "scrypt" then return nil, "only scrypt hashes are taken: OpenSSL 3.0, which checks them, has no " .. kind end
  local n, r, p, salt, hash = rest:match "^(%d+):(%d+):(%d+):([%w_-]+):([%w_-]+)$"
  n, r, p = tonumber(n), tonumber(r), tonumber(p)
  if not n or n < LEAST_N or r < LEAST_R or p < LEAST_P or r > 16 or p > 16 then return nil, "the hash is not scrypt with at least 32768:8:3" end
  if n > MOST_N_R or n * r > MOST_N_R then return nil, "the hash takes more than 64 MiB: N * r of scrypt is at most 524,288" end
  if n & (n - 1) ~= 0 then return nil, "N of scrypt is a power of two" end
  salt, hash = keys.unbase64url(salt), keys.unbase64url(hash)
  if not salt or not hash then return nil, "salt and hash are base64url" end
  if #hash ~= HASH or #salt < LEAST_SALT or #salt > MOST_SALT then return nil, "a hash has 32 bytes, and a salt 8 to 64: is the line cut?" end
  if more:find "%s" then return nil, "scopes have commas between them, without spaces" end
  local scopes, wrong = scopes_of(more)
  if not scopes then return nil, "'" .. tostring(wrong) .. "' is no scope" end
  return { name = name, n = n, r = r, p = p, salt = salt, hash = hash, scopes = scopes,
    mark = records.hash(rest .. " " .. more):sub(1, 16) }
end

local function parse(text)
  local all, n, count = {}, 0, 0
  for line in (text .. "\n"):gmatch "(.-)\r?\n" do
    n = n + 1
    if line:find "^%s*[^%s#]" then
      local entry, why = entry_of(line)
      if entry and all[entry.name] then entry, why = nil, "there is a line for this user already" end
      if not entry then return nil, why, n, FORM end
      all[entry.name] = entry
      count = count + 1
      if count > MAX_USERS then return nil, "there are more than " .. MAX_USERS .. " users" end
    end
  end
  if count == 0 then return nil, "there is no user in it", nil, FORM end      -- it is being written, or its disk was full
  return all
end

local path = host.config.sign_in.passwords
local granted = { read = { path }, write = {} }
local file = cached_file.new(fs.library(granted, "sign_in"), { path = "auth/sign_in", key = "sign_in.passwords", granted = granted, pause = 0.25 }, path, parse)

local allowed                    -- the set of names that may sign in; nil: all of them
for _, name in ipairs(host.config.sign_in.allow.users or {}) do
  allowed = allowed or {}
  allowed[name] = true
end

local stranger = { n = LEAST_N, r = LEAST_R, p = LEAST_P, salt = keys.random(16), hash = keys.random(32), name = "" }

--- The user's line; nil: there is none, or the user may not sign in. A second result says that this is not known now.
function passwords.find(name)
  local all, why = file:get()
  if not all then return nil, why end
  return (not allowed or allowed[name]) and all[name] or nil
end

local judged, rules        -- the users of whom `rules` is the hash

--- A hash of who may sign in, with which rights; nil: that is not known now.
function passwords.rules()
  local all = file:get()
  if all and all ~= judged then
    local lines = {}
    for name in pairs(all) do
      local user = passwords.find(name)
      lines[#lines + 1] = user and name .. " " .. user.mark or nil
    end
    table.sort(lines)
    judged, rules = all, records.hash(table.concat(lines, "\n"))
  end
  return all and rules
end

-- The hash of the word by the numbers and the salt of an entry; nil: there is none now.
local function hashed(word, entry)
  for _ = 1, PAUSES do
    local hash = host.digest.scrypt(word, entry.salt, entry.n, entry.r, entry.p)
    if hash ~= false then return hash end
    host.time.sleep(PAUSE_S)
  end
end

--- True if this is the user's password; nil and why: it cannot be checked now. Takes the same time for unknown users.
--- `from`: the address of the client.
function passwords.check(name, word, from)
  local entry, why = passwords.find(name)
  if why then return nil, why end
  entry = entry or stranger
  local place <close> = host.semaphore.take("sign_in passwords of " .. host.http.counted(from or ""), MOST_OF_ADDRESS, false, 0)
  local turn <close> = place and host.semaphore.take("sign_in passwords", AT_ONCE, true, MOST_WAITING)
  if not turn then return nil, "too many passwords wait to be checked" end
  local hash = hashed(word, entry)
  if not hash then return nil, "the password cannot be hashed now" end
  return keys.equal(hash, entry.hash) and entry ~= stranger
end

return passwords
