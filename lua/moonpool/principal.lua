-- Who calls: an id, scopes, claims. Scripts read it; the house keeps what decides in a table of its own, out of their reach.
--   value     what scripts see: { id, scopes, claims }, read-only
--   facts     what the house knows of it: { id, scopes, claims, issuer, subject, client, expires, key, held, askable }
--   held      scopes with what they imply, as a set
--   askable   what a client may be sent to ask for (A-5): nil nothing, true anything, or a list of scopes

local host = require "moonpool.host"
local json = require "moonpool.json"
local suggest = require "moonpool.suggest"

local principal = {}

local MOST_SCOPES, LONGEST = 256, 512       -- scopes of one principal; bytes of an id, of a scope
local MOST_CLAIMS, DEEPEST = 10000, 16      -- values in claims, and tables inside each other

local facts_of = setmetatable({}, { __mode = "k" })

-- -- read-only values ------------------------------------------------------------------------------------------------

local function refuse_write() error("a principal cannot be changed", 2) end

local function frozen(of, to_text)
  return setmetatable({}, {
    __index = of, __newindex = refuse_write, __len = function() return #of end, __pairs = function() return next, of, nil end,
    __tostring = to_text, __metatable = false, __name = "moonpool.principal", __frozen = of,
  })
end

local plain = { string = true, number = true, boolean = true }

-- A read-only copy; nil and why where JSON could not say it.
local function copy(value, depth, count)
  if plain[type(value)] or value == json.null then return value end
  if type(value) ~= "table" then return nil, "claims cannot hold a " .. type(value) end
  if depth > DEEPEST then return nil, "claims are tables inside each other, more than " .. DEEPEST end
  local made = setmetatable({}, debug.getmetatable(value) == json.array_mt and json.array_mt or nil)
  for name, item in pairs(value) do
    count.n = count.n + 1
    if count.n > MOST_CLAIMS then return nil, "claims hold more than " .. MOST_CLAIMS .. " values" end
    if type(name) ~= "string" and math.type(name) ~= "integer" then return nil, "claims have a name that is a " .. type(name) end
    local kept, why = copy(item, depth + 1, count)
    if kept == nil then return nil, why end
    made[name] = kept
  end
  return frozen(made)
end

-- -- making one ------------------------------------------------------------------------------------------------------

local fields = { id = "string", scopes = "table", claims = "table", issuer = "string", subject = "string", client = "string", expires = "number" }
local reserved = { anonymous = "who has no name", ["local"] = "whoever runs the gateway" }

--- What is wrong with a scope, or nil: it is one word of printable characters (RFC 6749, 3.3).
function principal.scope_trouble(scope)
  if type(scope) ~= "string" then return "a scope is a text, not a " .. type(scope) end
  if scope == "" or #scope > LONGEST or scope:find "[^!#-[%]^-~]" then
    return "'" .. scope:sub(1, 64) .. "' is not a scope: one word, without quotes and backslashes"
  end
end

-- What is wrong with the table an auth script gave, or nil.
local function complaint(given)
  if type(given) ~= "table" then return "a principal is a table with an id, not a " .. type(given) end
  for name, value in pairs(given) do
    local want = fields[name]
    if not want then
      local hint = suggest.hint(tostring(name), fields)
      return "a principal has no '" .. tostring(name) .. "'" .. (hint and ": " .. hint or "")
    end
    if type(value) ~= want then return "'" .. name .. "' of a principal is a " .. want .. ", not a " .. type(value) end
    if want == "string" and (value == "" or #value > LONGEST or value:find "%c" or not utf8.len(value)) then
      return "'" .. name .. "' of a principal is 1 to " .. LONGEST .. " bytes of UTF-8, without control characters"
    end
  end
  if not given.id then return "a principal needs an id" end
  if reserved[given.id] then return "'" .. given.id .. "' is the id of " .. reserved[given.id] end
  if given.expires and given.expires ~= given.expires then return "'expires' of a principal is not a number" end
end

-- Whether a set of scopes covers one: "a:b:c" is within "a:*", "a:b:*" and "*".
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

local function sorted(set)
  local list = json.array {}
  for name in pairs(set) do list[#list + 1] = name end
  table.sort(list)
  return list
end

-- The scopes as a set, with what they imply, and what that implies.
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

-- The list of scopes, sorted, each once; or nil and why.
local function read_scopes(given)
  local list, seen = {}, {}
  if #given == 0 and next(given) ~= nil then return nil, "'scopes' of a principal is a list, as in { \"orders:read\" }" end
  for _, scope in ipairs(given) do
    local why = principal.scope_trouble(scope)
    if why then return nil, why end
    if not seen[scope] then list[#list + 1], seen[scope] = scope, true end
    if #list > MOST_SCOPES then return nil, "a principal has at most " .. MOST_SCOPES .. " scopes" end
  end
  table.sort(list)
  return list
end

-- Unambiguous, whatever is in the parts.
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
  local value = frozen({ id = facts.id, scopes = frozen(json.array { table.unpack(facts.scopes) }), claims = facts.claims },
    function() return facts.id end)
  facts_of[value] = facts
  return value
end

--- The principal of what an auth script gave; or nil and what is wrong with that. `from`: { implies = { scope = scopes }, askable = }.
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
  }
  facts.key = binding(facts)
  return make(facts)
end

local function of_the_house(id, scopes)
  return make { id = id, scopes = scopes, held = set_of(scopes), key = "house:" .. id, is_of_house = true }
end

--- Who has no name; and who runs the gateway himself, on stdio or at the workbench, and may do everything.
principal.anonymous = of_the_house("anonymous", {})
principal.lone = of_the_house("local", { "*" })

-- -- asking it -------------------------------------------------------------------------------------------------------

function principal.is(value) return facts_of[value] ~= nil end

--- What the house knows of it.
function principal.facts(p) return facts_of[p] end

--- What binds things to it, as text.
function principal.key(p) return facts_of[p].key end

--- Whether auth named it: whoever else calls cannot be told from others.
function principal.is_named(p) return not facts_of[p].is_of_house end

--- Whether it may do what needs all of these scopes (A-6): true; or false and those it lacks.
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

--- All it holds, with what that implies, sorted.
function principal.held(p) return sorted(facts_of[p].held) end

--- Whether somebody covers all of `scopes`: a principal, or held scopes as text with spaces between.
function principal.cover(who, scopes)
  if type(who) ~= "string" then return (principal.allows(who, scopes)) end
  local held = {}
  for scope in who:gmatch "%S+" do held[scope] = true end
  for _, scope in ipairs(scopes or {}) do
    if not holds(held, scope) then return false end
  end
  return true
end

--- Whether its client may be sent to ask for all of these scopes.
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
  local mt = debug.getmetatable(value)
  if not (mt and mt.__frozen) then return value end
  local made = setmetatable({}, debug.getmetatable(mt.__frozen))
  for name, item in pairs(mt.__frozen) do made[name] = thawed(item) end
  return made
end

local PACKED = "\1"      -- before what is packed: no id has a control character

--- What scripts may know of it, and what it may do, as text, for every worker and every generation of scripts.
function principal.pack(p)
  local facts = facts_of[p]
  if facts.is_of_house then return facts.id end
  local askable = facts.askable
  return PACKED .. json.encode {
    id = facts.id, scopes = json.array { table.unpack(facts.scopes) }, claims = thawed(facts.claims), issuer = facts.issuer,
    subject = facts.subject, client = facts.client, expires = facts.expires, held = sorted(facts.held),
    askable = type(askable) == "table" and json.array { table.unpack(askable) } or askable,
  }
end

local house = { anonymous = principal.anonymous, ["local"] = principal.lone }
local unpacked = setmetatable({ anonymous = principal.anonymous, ["local"] = principal.lone }, { __mode = "v" })

--- The principal of such a text.
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

--- One of this id, with no scopes; or one of the house. An id is never read as a packed text.
function principal.bare(id)
  if house[id] then return house[id] end
  local facts = { id = id, scopes = {}, held = {} }
  facts.key = binding(facts)
  return make(facts)
end

host.principal = principal.bare

return principal
