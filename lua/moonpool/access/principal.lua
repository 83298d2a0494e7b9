-- Principals: the id, scopes and claims of a caller. Scripts read them; what access decisions use is in a table that
-- scripts cannot reach.
--   value     the read-only object of scripts: { id, scopes, claims }
--   facts     the gateway's own data: { id, scopes, claims, issuer, subject, client, expires, key, held, askable }
--   held      the set of scopes, with the scopes that they imply
--   has_token true if the request's bearer token is an access token of an issuer, which auth.jwt or auth.introspection has verified
--   askable   scopes that a client may be told to ask its issuer for (A-5): nil none, true any, or a list

local frozen = require "moonpool.runtime.frozen"
local host = require "moonpool.host"
local json = require "moonpool.json"
local sorted_keys = require "moonpool.runtime.sorted_keys"
local suggest = require "moonpool.runtime.suggest"

local principal = {}

local MAX_SCOPES, MAX_NAME_BYTES = 256, 512       -- limits: scopes of one principal; bytes of an id; bytes of a scope
local MAX_CLAIMS, MAX_DEPTH = 10000, 16      -- limits: values in claims; levels of tables

local facts_of = setmetatable({}, { __mode = "k" })

-- -- read-only values ------------------------------------------------------------------------------------------------

local kind = { name = "moonpool.access.principal", what = "a principal", tostring = function(content) return content.id end }
local detail = { name = "moonpool.access.principal", what = "a principal" }       -- the metatable of a principal's scopes, and of tables in its claims

local function sealed(of) return frozen.new(detail, of) end

local plain = { string = true, number = true, boolean = true }

-- A read-only copy of claims; nil and why if JSON cannot express them.
local function copy(value, depth, count)
  if plain[type(value)] or value == json.null then return value end
  if type(value) ~= "table" then return nil, "claims cannot hold a " .. type(value) end
  if depth > MAX_DEPTH then return nil, "claims are nested deeper than " .. MAX_DEPTH .. " tables" end
  local made = setmetatable({}, debug.getmetatable(value) == json.array_mt and json.array_mt or nil)
  for name, item in pairs(value) do
    count.n = count.n + 1
    if count.n > MAX_CLAIMS then return nil, "claims hold more than " .. MAX_CLAIMS .. " values" end
    if type(name) ~= "string" and math.type(name) ~= "integer" then return nil, "claims have a name that is a " .. type(name) end
    local kept, why = copy(item, depth + 1, count)
    if kept == nil then return nil, why end
    made[name] = kept
  end
  return sealed(made)
end

-- -- making a principal ----------------------------------------------------------------------------------------------

local fields = { id = "string", scopes = "table", claims = "table", issuer = "string", subject = "string", client = "string", expires = "number" }
local reserved = { anonymous = "requests without a principal", ["local"] = "the person who runs the gateway" }

--- Describes the fault of a scope; nil: none. A scope is one word of printable characters (RFC 6749, 3.3).
function principal.scope_trouble(scope)
  if type(scope) ~= "string" then return "a scope must be a string, not a " .. type(scope) end
  if scope == "" or #scope > MAX_NAME_BYTES or scope:find "[^!#-[%]^-~]" then
    return "'" .. scope:sub(1, 64) .. "' is not a scope: one word, without quotes and backslashes"
  end
end

-- Describes the fault of the table that an auth script returned; nil: none.
local function complaint(given)
  if type(given) ~= "table" then return "a principal must be a table with an id, not a " .. type(given) end
  for name, value in pairs(given) do
    local want = fields[name]
    if not want then
      return suggest.with_hint("a principal has no '" .. tostring(name) .. "'", tostring(name), fields)
    end
    if type(value) ~= want then return "'" .. name .. "' of a principal is a " .. want .. ", not a " .. type(value) end
    if want == "string" and (value == "" or #value > MAX_NAME_BYTES or value:find "%c" or not utf8.len(value)) then
      return "'" .. name .. "' of a principal is 1 to " .. MAX_NAME_BYTES .. " bytes of UTF-8, without control characters"
    end
  end
  if not given.id then return "a principal needs an id" end
  if reserved[given.id] then return "'" .. given.id .. "' is the id of " .. reserved[given.id] end
  if given.expires and given.expires ~= given.expires then return "'expires' of a principal is not a number" end
end

-- True if a set of scopes includes one: "a:b:c" is included in "a:*", "a:b:*" and "*".
local function holds(held, scope)
  if held[scope] or held["*"] then return true end
  local at = 0
  while true do
    at = scope:find(":", at + 1, true)
    if not at then return false end
    if held[scope:sub(1, at) .. "*"] then return true end
  end
end

local function set_of(list)
  local set = {}
  for _, item in ipairs(list) do set[item] = true end
  return set
end

local function sorted(set) return json.array(sorted_keys(set)) end

-- The set of the scopes, with the scopes that they imply, directly or indirectly.
local function closure(scopes, implies)
  local held, grew = set_of(scopes), true
  while grew do
    grew = false
    for scope, others in pairs(implies or {}) do
      for _, other in ipairs(holds(held, scope) and others or {}) do
        grew, held[other] = grew or not held[other], true
      end
    end
  end
  return held
end

-- The list of scopes, sorted, without repetitions; or nil and why.
local function read_scopes(given)
  local list, seen = {}, {}
  if #given == 0 and next(given) ~= nil then return nil, "'scopes' of a principal must be a list, as in { \"orders:read\" }" end
  for _, scope in ipairs(given) do
    local why = principal.scope_trouble(scope)
    if why then return nil, why end
    if not seen[scope] then list[#list + 1], seen[scope] = scope, true end
    if #list > MAX_SCOPES then return nil, "a principal has at most " .. MAX_SCOPES .. " scopes" end
  end
  table.sort(list)
  return list
end

-- Joins texts into one, so that different parts never give the same text.
local function binding(facts)
  if not (facts.issuer or facts.subject or facts.client) then return "id:" .. facts.id end
  local parts = {}
  for i, name in ipairs { "issuer", "subject", "client" } do
    local part = facts[name]
    parts[i] = part and #part .. ":" .. part or "-"
  end
  return "of:" .. table.concat(parts, ",")
end

local function make(facts)
  local value = frozen.new(kind, { id = facts.id, scopes = sealed(json.array { table.unpack(facts.scopes) }), claims = facts.claims })
  facts_of[value] = facts
  return value
end

--- The principal for the table of an auth script; or nil and what is wrong. `from`: { implies = { scope = scopes },
--- askable = }.
function principal.new(given, from)
  if facts_of[given] then return given end
  local why = complaint(given)
  if why then return nil, why end
  local scopes, wrong = read_scopes(given.scopes or {})
  if not scopes then return nil, wrong end
  local claims
  if given.claims then
    claims, wrong = copy(given.claims, 1, { n = 0 })
    if not claims then return nil, wrong end
  end
  local facts = {
    id = given.id, scopes = scopes, claims = claims, issuer = given.issuer, subject = given.subject, client = given.client,
    expires = given.expires, held = closure(scopes, from and from.implies), askable = from and from.askable,
    has_token = from and from.has_token,
  }
  facts.key = binding(facts)
  return make(facts)
end

local function built_in(id, scopes)
  return make { id = id, scopes = scopes, held = set_of(scopes), key = "built-in:" .. id, is_built_in = true }
end

--- `anonymous`: the principal of a request that nothing authenticated. `lone`: the person who runs the gateway on stdio
--- or in the workbench, who may do everything.
principal.anonymous = built_in("anonymous", {})
principal.lone = built_in("local", { "*" })

-- -- reading a principal ---------------------------------------------------------------------------------------------

function principal.is(value) return facts_of[value] ~= nil end

--- The gateway's data about a principal.
function principal.facts(p) return facts_of[p] end

--- A text that identifies a principal: tasks, sessions and cursors are bound to it.
function principal.key(p) return facts_of[p].key end

--- True if an auth script named the principal. Other callers cannot be distinguished from each other.
function principal.is_named(p) return not facts_of[p].is_built_in end

--- True if the principal holds all of these scopes (A-6); or false and the missing ones.
function principal.allows(p, scopes)
  local held, missing = facts_of[p].held, nil
  for _, scope in ipairs(scopes or {}) do
    if not holds(held, scope) then
      missing = missing or {}
      missing[#missing + 1] = scope
    end
  end
  if missing then return false, missing end
  return true
end

--- All scopes that the principal holds, with those implied, sorted.
function principal.held(p) return sorted(facts_of[p].held) end

--- True if a principal, or an audience (scopes as text with spaces between them), holds all of `scopes`.
function principal.cover(who, scopes)
  if type(who) ~= "string" then return (principal.allows(who, scopes)) end
  local held = {}
  for scope in who:gmatch "%S+" do held[scope] = true end
  for _, scope in ipairs(scopes or {}) do
    if not holds(held, scope) then return false end
  end
  return true
end

--- True if the client of the principal may be told to ask its issuer for all of these scopes.
function principal.can_ask(p, scopes)
  local askable = facts_of[p].askable
  if type(askable) ~= "table" then return askable == true end
  local set = set_of(askable)
  for _, scope in ipairs(scopes) do
    if not holds(set, scope) then return false end
  end
  return true
end

-- -- between VMs -----------------------------------------------------------------------------------------------------

local function thawed(value)
  local of = frozen.behind(value)
  if of == value then return value end
  local made = setmetatable({}, debug.getmetatable(of))
  for name, item in pairs(of) do made[name] = thawed(item) end
  return made
end

local PACKED = "\1"      -- the first byte of a packed principal: an id has no control characters

--- The principal as text, for other workers and for later generations of scripts. `with_token`: of a request whose
--- token goes with it.
function principal.pack(p, with_token)
  local facts = facts_of[p]
  if facts.is_built_in then return facts.id end
  local askable = facts.askable
  return PACKED .. json.encode {
    id = facts.id, scopes = json.array { table.unpack(facts.scopes) }, claims = thawed(facts.claims), issuer = facts.issuer,
    subject = facts.subject, client = facts.client, expires = facts.expires, held = sorted(facts.held),
    askable = type(askable) == "table" and json.array { table.unpack(askable) } or askable,
    has_token = with_token and facts.has_token or nil,
  }
end

local by_id = { anonymous = principal.anonymous, ["local"] = principal.lone }
local unpacked = setmetatable({ anonymous = principal.anonymous, ["local"] = principal.lone }, { __mode = "v" })

--- The principal from such a text.
function principal.unpack(text)
  local known = unpacked[text]
  if known then return known end
  local facts = json.decode(text:sub(#PACKED + 1))
  facts.held, facts.key = set_of(facts.held), binding(facts)
  facts.claims = facts.claims and copy(facts.claims, 1, { n = 0 })
  local made = make(facts)
  unpacked[text] = made
  return made
end

--- A principal with this id and no scopes, or one of the constants. The id is never read as a packed principal.
function principal.bare(id)
  if by_id[id] then return by_id[id] end
  local facts = { id = id, scopes = {}, held = {} }
  facts.key = binding(facts)
  return make(facts)
end

host.hooks.principal = principal.bare

return principal
