-- The people who sign in, and whether they still may: by the file of passwords, or by what the provider last said.
--   user      what tells people apart: a name of the file, or PROVIDER:SUBJECT
--   mark      what of the configuration or the file let the person in: another one means that she is judged anew
--   account   of a person whom a provider knows: { at, home, claims, refresh?, access?, ends? }, what it said at that
--             time, and what it is asked with the next time

local address = require "moonpool.sign_in.address"
local deciding = require "moonpool.sign_in.deciding"
local digest = require "moonpool.lib.digest"
local families = require "moonpool.sign_in.families"
local flight = require "moonpool.runtime.single_flight"
local has = require "moonpool.runtime.has"
local host = require "moonpool.host"
local json = require "moonpool.json"
local presets = require "moonpool.sign_in.presets"
local records = require "moonpool.sign_in.records"

local people = {}

local ASK_S <const>, PAUSE_S <const> = 20, 0.1
local MAX_SUBJECT <const> = 255         -- OpenID Connect Core, 2

local config = host.config.sign_in

people.OTHER_RULES = "the rules of sign-in have changed since the access token was made"

-- -- passwords -------------------------------------------------------------------------------------------------------------

if config.provider == "password" then
  local passwords = require "moonpool.sign_in.passwords"

  people.passwords = passwords

  -- The mark of a sign-in is that of the user's line, and that of the script which decides.
  local LINE <const> = 16
  local CHANGED <const> = "the user may not sign in any more, or has another password"

  local function mark_of(found) return found.mark .. deciding.mark end

  local function decide(found) return deciding.decide({ sub = found.name, name = found.name, scopes = found.scopes }, found.scopes) end

  --- A hash of what decides who may sign in; nil: that is not known now.
  function people.rules()
    local rules = passwords.rules()
    return rules and rules .. deciding.mark
  end

  --- A person whose password was right: { user, mark, scopes }; or nil and why she may not sign in.
  function people.admit_by_password(name)
    local found = passwords.find(name)
    if not found then return nil, "the user was removed" end
    local list, why = decide(found)
    return list and { user = name, mark = mark_of(found), scopes = list }, why
  end

  --- What a principal says of the person: { id, issuer, subject }.
  function people.facts(user) return { id = "password:" .. user, issuer = address.issuer, subject = user } end

  --- True if a token of the person is still taken; nil and why; nil, why and true where that is not known now.
  function people.may(user, mark)
    local found, away = passwords.find(user)
    if away then return nil, away, true end
    if not found or found.mark ~= mark:sub(1, LINE) then return nil, CHANGED end
    if mark ~= mark_of(found) then return nil, people.OTHER_RULES end
    return true
  end

  --- The same before a client gets another access token. Then the mark that the sign-in has from now on, and fourth the
  --- scopes that the person has now.
  function people.still_may(user, mark)
    local found, away = passwords.find(user)
    if away then return nil, away, true end
    if not found or found.mark ~= mark:sub(1, LINE) then return nil, CHANGED end
    local list, why, is_unknown = decide(found)
    if not list then return nil, why, is_unknown end
    return mark_of(found), nil, nil, list
  end

  --- True if the person may still sign in, by what is known here; else as `may`.
  people.judge = people.still_may

  --- Those of the scopes of a token that the configuration still gives.
  function people.scopes(list) return list end

  return people
end

-- -- providers -------------------------------------------------------------------------------------------------------------

local provider = require "moonpool.sign_in.provider"

local preset, allow = provider.preset, config.allow
local flights = flight.new()

local function short(...) return digest.sha256(json.encode { ... }):sub(1, 16) end

local home = short(provider.name, provider.issuer, config.client)
local lists = {}
for i, name in ipairs { "users", "emails", "groups", "roles", "tenants" } do lists[i] = allow[name] or false end

local given, own_scopes = {}, {}
for _, text in ipairs(config.scopes or {}) do
  for scope in text:gmatch "%S+" do
    if not own_scopes[scope] then given[#given + 1], own_scopes[scope] = scope, true end
  end
end

-- The mark of a sign-in begins with its provider's: a number of a user there may be another person's elsewhere.
-- The scopes of the configuration are in it where main.lua turns them into others: they cannot be taken out of a token.
local OF_HOME <const> = 8
people.home, people.mark = home, home:sub(1, OF_HOME) .. short(lists, deciding.mark, deciding.mark ~= "" and given or nil):sub(1, 8)

local ELSEWHERE <const> = "the person is of another provider"

local function is_of_home(mark) return mark:sub(1, OF_HOME) == home:sub(1, OF_HOME) end

function people.rules() return people.mark end

function people.facts(user) return { id = user, issuer = provider.issuer, subject = user:sub(#provider.name + 2) } end

function people.scopes(list)
  if deciding.mark ~= "" then return list end
  local left = {}
  for _, scope in ipairs(list) do left[#left + 1] = own_scopes[scope] and scope or nil end
  return left
end

-- True if a pattern of sign_in.allow.emails fits a verified address.
local function is_address_allowed(claims)
  local email = presets.text(preset.email(claims))
  local name, domain = (email or ""):match "^([^@%s\"<>]+)@([%w.-]+)$"
  if not name then return false end
  domain = domain:lower()
  for _, pattern in ipairs(allow.emails) do
    local wanted_name, wanted = pattern:match "^(.+)@([^@]+)$"
    wanted = wanted and wanted:lower()
    if wanted == domain and (wanted_name == name or wanted_name == "*" and preset.domain(claims, domain)) then return true end
  end
  return false
end

local function has_one(wanted, list)
  local set = {}
  for _, item in ipairs(wanted) do set[item] = true end
  for _, item in ipairs(list or {}) do
    if set[item] then return true end
  end
  return false
end

-- The subject of the claims; nil: it is none that can be kept.
local function subject_of(claims)
  local subject = presets.text(preset.subject(claims))
  return subject and #subject <= MAX_SUBJECT and subject:find "^[\32-\126]+$" and subject or nil
end

-- True if sign_in.allow lets the person in; nil and why not.
local function judge(claims)
  local subject = subject_of(claims)
  if not subject then return nil, "the provider names no subject" end
  if allow.tenants and not has(allow.tenants, claims.tid) then return nil, "the tenant is not in sign_in.allow.tenants" end
  if allow.users and has_one(allow.users, { subject, table.unpack(preset.aliases(claims)) }) then return true end
  if allow.emails and is_address_allowed(claims) then return true end
  if allow.groups and has_one(allow.groups, preset.groups(claims)) then return true end
  if allow.roles and has_one(allow.roles, preset.roles(claims)) then return true end
  if not (allow.users or allow.emails or allow.groups or allow.roles) then return true end
  return nil, preset.trouble(claims) or "sign_in.allow does not name the person"
end

-- The scopes of a person whom sign_in.allow lets in; else as deciding.decide.
local function decide(claims)
  local may, why = judge(claims)
  if not may then return nil, why end
  return deciding.decide(claims, given)
end

local function keep(key, account)
  records.put("account", key, account, config.refresh)
  records.settle()
end

local function with_tokens(account, tokens)
  account.refresh, account.access, account.ends = tokens.refresh, not tokens.refresh and tokens.access or nil, tokens.ends
  return account
end

--- Keeps what the provider said of a person at her sign-in: { user, mark, scopes }; or nil and why she may not sign in.
--- A third result says that she may, but that the provider has to be asked once more, for a refresh token.
function people.admit(claims, tokens, is_again)
  local list, why = decide(claims)
  if not list then return nil, why end
  local user = provider.name .. ":" .. subject_of(claims)
  local key = records.hash(user)
  local before = records.get("account", key)
  before = before and before.home == home and before or nil
  if not tokens.refresh and preset.again and not is_again and not (before and before.refresh) then return nil, nil, true end
  if not tokens.refresh and before and before.refresh then tokens.refresh = before.refresh end
  keep(key, with_tokens({ at = os.time(), home = home, claims = claims }, tokens))
  return { user = user, mark = people.mark, scopes = list }
end

--- The subject of a person as a page or a line of the log names it.
function people.shown(claims) return provider.name .. ":" .. tostring(subject_of(claims)) end

local function account_of(user)
  local key = records.hash(user)
  local account, text = records.get("account", key)
  if not account then return nil, "nothing is known of the person any more" end
  if account.home ~= home then return nil, ELSEWHERE end
  return account, key, text
end

-- The claims that are known of a person; nil and why; nil, why and true if the store does not answer.
local function claims_of(user)
  local is_there, account, why = pcall(account_of, user)
  if not is_there then return nil, "what is known of the person cannot be read", true end
  return account and account.claims, why
end

function people.may(user, mark)
  if mark == people.mark then return true end
  if not is_of_home(mark) then return nil, ELSEWHERE end
  if deciding.mark ~= "" then return nil, people.OTHER_RULES end
  local claims, why, is_unknown = claims_of(user)
  if not claims then return nil, why, is_unknown end
  return judge(claims)
end

local function is_fresh(account)
  local age = os.time() - account.at
  return age >= 0 and age < config.fresh
end

-- Ends all that a person has here, if her account still has this text: else false.
local function end_all(user, key, text)
  if not records.use("account", key, text) then return false end
  families.finish_all(user)
  return true
end

-- Asks the provider: the account as it is now; or nil and why the person may not sign in any more; or false: she has
-- signed in meanwhile, and what was asked with before says nothing of that. `text`: of the account; `ends`: when the task ends.
local function ask(user, key, account, text, ends)
  local function keep_on()
    text = text and records.replace("account", key, text, account, config.refresh)
    records.settle()
  end
  local claims, failure = provider.ask_again(account, account.claims, function(tokens)
    with_tokens(account, tokens)
    keep_on()
  end, ends)
  if not text then return false end
  if claims then
    account.claims, account.at = claims, os.time()
    keep_on()
    if not text then return false end
    local may, why = judge(claims)
    if may then return account end
    if not end_all(user, key, text) then return false end
    return nil, why
  end
  if failure.kind == "gone" or failure.kind == "other" then
    if not end_all(user, key, text) then return false end
    return nil, failure.why
  end
  if failure.kind ~= "unasked" then
    host.log.write("warn", "sign-in not possible", { why = failure.why, hint = "the provider was asked whether " .. user .. " may still sign in" })
  end
  local age = os.time() - account.at
  if age < 0 or age >= config.unchecked then return nil, "the provider could not be asked for sign_in.tokens.unchecked" end
  return account
end

-- One task of all workers asks about a person; others wait for what it finds.
local function ask_alone(user)
  local ends = host.time.now() + ASK_S
  while true do
    local account, key = account_of(user)
    if not account or is_fresh(account) then return account, key end
    if records.add("asking", key, true, ASK_S) then
      local _ <close> = setmetatable({}, { __close = function() records.drop("asking", key) end })
      local text
      account, key, text = account_of(user)          -- another task may have asked just now
      if not account or is_fresh(account) then return account, key end
      local asked, why = ask(user, key, account, text, ends)
      if asked ~= false then return asked, why end
    end
    host.time.sleep(PAUSE_S)
  end
end

function people.still_may(user, mark)
  if not is_of_home(mark) then return nil, ELSEWHERE end
  local is_known, account, why = flights:share(user, ASK_S, function()
    local ok, found, reason = pcall(ask_alone, user)
    if ok then return true, found, reason end
    if type(found) == "table" and found.sign_in_unavailable then return false end
    error(found, 0)
  end)
  if is_known == false then error({ sign_in_unavailable = "the store" }, 0) end
  if not is_known then return nil, account, true end         -- it was not asked, or in vain: `account` says why
  if not account then return nil, why or "it is not known whether the person may sign in", why == nil end
  local list, reason, is_unknown = decide(account.claims)
  if not list then return nil, reason, is_unknown end
  return people.mark, nil, nil, list
end

function people.judge(user, mark)
  if not is_of_home(mark) then return nil, ELSEWHERE end
  local claims, why, is_unknown = claims_of(user)
  if not claims then return nil, why, is_unknown end
  local list
  list, why, is_unknown = decide(claims)
  return list ~= nil or nil, why, is_unknown
end

return people
