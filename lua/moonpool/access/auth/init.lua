-- auth { … } in scripts/auth/: authenticates requests. The scripts are called in the order of their paths; the first
-- that returns a principal decides. If none does, the request is refused before its body is parsed (A-1, A-3).
--   handler   function(request): a principal, as principal.new takes it; or nil, why, and the seconds after which a retry may succeed
--   ref      the userdata that links the Lua table of a principal to the mp_principal of C

local copied = require "moonpool.runtime.copied"
local exact = require "moonpool.runtime.exact"
local frozen = require "moonpool.runtime.frozen"
local host = require "moonpool.host"
local failure = require "moonpool.runtime.outcome"
local json = require "moonpool.json"
local principal = require "moonpool.access.principal"
local problem = require "moonpool.runtime.diagnostic"
local recent = require "moonpool.runtime.lru"
local suggest = require "moonpool.runtime.suggest"
local timed = require "moonpool.runtime.timed"

local auth = {}

local MAX_CACHED = 512

--- Seconds for which a decision about a bearer token is cached.
auth.KNOWN = 5

local written = { name = "moonpool.access.auth", what = "an auth value" }
local form = "as in auth { function(request) … return { id = \"ann\", scopes = {} } end }"
local options = { askable = "table", issuer = "string", implies = "table", realm = "string", scopes_supported = "table" }
local order = { "askable", "issuer", "implies", "realm", "scopes_supported" }

-- Modules in this folder: each maps its options to the table that auth { … } takes.
local ready_made = { "bearer", "introspection", "jwt", "keys", "proxy", "tls" }

--- `has_token`: the function verifies access tokens of an issuer.
--- `by_bearer`: the function reads nothing of the request except the bearer token. After the principal, it may return
--- the number of seconds for which its decision is valid, at most auth.KNOWN.
function auth.new(spec, by_bearer, has_token) return frozen.new(written, {}, { spec = spec, by_bearer = by_bearer, has_token = has_token }) end

function auth.is(value) return frozen.is(value, written) end

--- The table `auth` for one script file. `script` is { path, granted }: the built-in methods use only the grants of the
--- script.
function auth.library(script)
  return setmetatable({}, {
    __metatable = false, __name = "auth",
    __call = function(_, spec) return auth.new(spec) end,
    __newindex = function() error("cannot change auth", 2) end,
    __index = function(_, name)
      for _, known in ipairs(ready_made) do
        if known == name then
          local make = require("moonpool.access.auth." .. (name == "keys" and "api_keys" or name))
          return exact.of("auth." .. name, function(spec) return auth.new(make(spec, script)) end)
        end
      end
      problem.raise(2, "there is no auth." .. tostring(name),
        suggest.hint(tostring(name), ready_made) or "there are auth." .. table.concat(ready_made, ", auth."))
    end,
  })
end

-- -- at load ------------------------------------------------------------------------------------------------------------

local function check_issuer(issuer, complain)
  local scheme, host_part = issuer:match "^(https?)://([^/?#]+)[^?#%s\"\\%c]*$"
  local is_near = host_part and (host_part:find "^localhost:?%d*$" or host_part:find "^127%." or host_part:find "^%[::1%]")
  if not scheme or (scheme == "http" and not is_near) then
    complain("issuer", "'issuer' must be an https URL without a query: '" .. issuer:sub(1, 128) .. "'", "as in issuer = \"https://login.example.com\"")
  end
end

local function check_scopes(list, option, complain)
  for _, scope in ipairs(list) do
    local why = principal.scope_trouble(scope)
    if why then return complain(option, "'" .. option .. "': " .. why) end
  end
end

local function check_implies(implies, complain)
  for scope, others in pairs(implies) do
    local why = principal.scope_trouble(scope)
    if why then return complain("implies", "'implies': " .. why) end
    if type(others) ~= "table" then
      return complain("implies", "'implies' gives '" .. scope .. "' a list of scopes", "as in implies = { admin = { \"read\", \"write\" } }")
    end
    check_scopes(others, "implies", complain)
  end
end

local function check(spec, complain)
  if type(spec) ~= "table" then
    complain("auth", "auth needs a table", form)
    return false
  end
  for name, value in pairs(spec) do
    local want = options[name]
    if name == 1 then
      if type(value) ~= "function" then complain("auth", "the first item of auth must be its function", form) end
    elseif not want then
      complain(tostring(name), "auth has no option '" .. tostring(name) .. "'",
        suggest.hint(tostring(name), order) or "options are " .. table.concat(order, ", "))
    elseif type(value) ~= want then
      complain(name, "'" .. name .. "' must be a " .. want .. ", not a " .. type(value))
    elseif name == "issuer" then
      check_issuer(value, complain)
    elseif name == "scopes_supported" or name == "askable" then
      check_scopes(value, name, complain)
    elseif name == "implies" then
      check_implies(value, complain)
    elseif name == "realm" and value:find "[%c\"\\\128-\255]" then
      complain("realm", "'realm' must be plain text, without quotes and backslashes")
    end
  end
  if spec[1] == nil then complain("auth", "auth needs a function", form) end
  return true
end

--- Prepares the value that a file returned.
function auth.build(name, value, _, complain)
  local spec = frozen.content(value).spec
  if not check(spec, complain) then return nil end
  return {
    name = name, handler = spec[1], issuer = spec.issuer, realm = spec.realm, scopes_supported = spec.scopes_supported,
    from = { implies = spec.implies, askable = spec.issuer and (spec.askable or true) or nil,
      has_token = frozen.content(value).has_token },
    by_bearer = frozen.content(value).by_bearer, definition = { name = name },
    known = setmetatable({}, { __mode = "k" }),      -- a principal's table that never changes -> its ref
    lately = recent.new(MAX_CACHED),                -- id -> the table that a script returned, and its ref
  }
end

local function union(list, member)
  local all, seen = json.array {}, {}
  for _, one in ipairs(list) do
    local given = one[member]
    for _, value in ipairs(type(given) == "table" and given or { given }) do
      if not seen[value] then all[#all + 1], seen[value] = value, true end
    end
  end
  return all
end

local asked = {}        -- the scripts, in the order in which they are called

--- Replaces all auth scripts, by name. `own`, or nil: one of the gateway's own (sign_in), which is asked before them.
function auth.set(made, own)
  asked = {}
  for _, one in pairs(made) do asked[#asked + 1] = one end
  table.sort(asked, function(a, b) return a.path < b.path or (a.path == b.path and a.name < b.name) end)
  if own then table.insert(asked, 1, own) end
  if not asked[1] then return end
  local issuers, scopes = union(asked, "issuer"), union(asked, "scopes_supported")
  local realms = union(asked, "realm")
  local document = { authorization_servers = issuers, scopes_supported = scopes[1] and scopes or nil }
  host.auth.enable(realms[1] or "", table.concat(scopes, " "), issuers[1] and json.encode(document):sub(2, -2) or "", own ~= nil)
end

function auth.all() return asked end

--- The declarations of the auth scripts (implied scopes, scopes to ask for), as if one of the scripts had authenticated
--- the principal.
function auth.declared()
  local from = { implies = {}, askable = nil }
  for _, one in ipairs(asked) do
    for scope, others in pairs(one.from.implies or {}) do
      local all = from.implies[scope] or {}
      from.implies[scope] = table.move(others, 1, #others, #all + 1, all)
    end
    local askable = one.from.askable
    if type(askable) == "table" and type(from.askable) == "table" then
      table.move(askable, 1, #askable, #from.askable + 1, from.askable)
    elseif askable and from.askable ~= true then
      from.askable = type(askable) == "table" and { table.unpack(askable) } or askable
    end
  end
  return from
end

-- -- for each request ---------------------------------------------------------------------------------------------------

local unchanging = setmetatable({}, { __mode = "k" })

--- Marks a table of the gateway's own that never changes, so that the principal made from it is cached.
function auth.keep(given)
  unchanging[given] = true
  return given
end

local sign_ins = setmetatable({}, { __mode = "k" })      -- such a table, or a principal made from one -> the id of a sign-in

--- The principal of such a table is from a sign-in of this gateway, and ends with it.
function auth.of_sign_in(given, id) sign_ins[given] = id end

local compared = { id = true, scopes = true, issuer = true, subject = true, client = true, expires = true }

local function same_scopes(a, b)
  if a == nil then return true end
  if debug.getmetatable(a) ~= nil or #a ~= #b then return false end
  for i = 1, #a do
    if rawget(a, i) ~= b[i] then return false end
  end
  return next(a, #a > 0 and #a or nil) == nil
end

-- True if a script returned an equal table, member for member.
local function is_same(before, given)
  for name in next, given do
    if not compared[name] then return false end
  end
  return before.issuer == given.issuer and before.subject == given.subject and before.client == given.client
    and before.expires == given.expires and type(given.scopes) == type(before.scopes) and same_scopes(given.scopes, before.scopes)
end

-- The cached ref for an equal table.
local function recall(one, given)
  if type(given) ~= "table" or debug.getmetatable(given) ~= nil or type(given.id) ~= "string" then return nil end
  local last = one.lately:get(given.id)
  return last and is_same(last.given, given) and last.known or nil
end

-- A copy of the table that a script returned, and whether later tables may be compared with the copy; the table itself
-- where it cannot be copied. The principal is made of the copy: a script may change its table for another request while
-- this task is preempted, and what is cached is for both.
-- A principal with claims is not compared member by member: the contents of its tables may have changed.
local function copy_of(given)
  if type(given) ~= "table" or debug.getmetatable(given) ~= nil then return given, false end
  local copy = copied(given)
  if type(copy.scopes) ~= "table" or debug.getmetatable(copy.scopes) ~= nil then return copy, copy.scopes == nil and copy.claims == nil end
  copy.scopes = copied(copy.scopes)
  return copy, copy.claims == nil
end

-- With cluster.listen: why other nodes could not serve the principal, which goes to them sealed in a header of 120 KiB; nil:
-- they can.
local MAX_PACKED <const> = 89 * 1024
local function too_large(who)
  local size = host.config.cluster and host.config.cluster.listens and #principal.pack(who, true) or 0
  if size <= MAX_PACKED then return nil end
  return ("the principal takes %d bytes as JSON, and other nodes of the cluster take at most %d: give it fewer claims"):format(size, MAX_PACKED)
end

-- The reference to a principal for the value that a script returned; or nil and the fault of the value.
local function seat_of(one, given)
  local known = one.known[given] or recall(one, given)
  if known then return known end
  local own, is_comparable = given, false
  if not unchanging[given] then own, is_comparable = copy_of(given) end
  local who, trouble = principal.new(own, one.from)
  if not who then return nil, trouble end
  local facts = principal.facts(who)
  if facts.is_built_in then return nil, "'" .. facts.id .. "' is an id that auth scripts cannot give" end
  trouble = too_large(who)
  if trouble then return nil, trouble end
  local sign_in = sign_ins[given]
  local ref = host.auth.principal_ref(who, facts.id, facts.key, facts.expires, facts.issuer, sign_in)
  sign_ins[who] = sign_in
  known = { ref = ref, expires = facts.expires or math.huge }
  if unchanging[given] or who == given then
    one.known[given] = known
  elseif is_comparable then
    one.lately:put(own.id, { given = own, known = known })
  end
  return known
end

-- Logs why a script did not authenticate a request. Returns the reasons of all scripts that ran.
local function add_reason(reasons, one, why)
  local words = failure.words(why, "no reason")
  host.log.write("debug", "auth script declined", { script = one.path, why = words })
  return reasons and reasons .. "; " .. words or words
end

local challenge = "the request has no valid credentials: see WWW-Authenticate"
local later = "the request cannot be authenticated at the moment: try again later"
local expired = "the principal has expired"

-- Milliseconds for which C may cache the decision of script `i` for its bearer token; 0 means not at all.
local function known_for(i, one, seconds)
  if i > 1 or not one.by_bearer then return 0 end
  return type(seconds) == "number" and math.max(0, math.min(auth.KNOWN, seconds)) * 1000 // 1 | 0 or auth.KNOWN * 1000
end

-- Calls one script, as xpcall does.
local function ask(one, request)
  local measured <close> = timed.start(one, "auth", one.path)
  local ok, value, why, wait = xpcall(one.handler, failure.handler, request)
  measured.outcome = ok and (value and "known" or "unknown") or failure.is_expected(value) and "unknown" or "error"
  return ok, value, why, wait
end

--- Authenticates a request for C. Returns a ref, and the milliseconds for which it is valid for the bearer token alone;
--- or nil, an HTTP status, a message, the seconds until a retry, and the reason for the audit.
function auth.authenticate(request)
  local retry, reasons
  for i = 1, #asked do
    local one = asked[i]
    local ok, value, why, wait = ask(one, request)
    if ok and value then
      local known, trouble = seat_of(one, value)
      if not known then return nil, 500, failure.report(trouble, "auth failed", one.path) end
      if known.expires == math.huge or known.expires > os.time() then return known.ref, known_for(i, one, why) end
      why = expired
    elseif not ok then
      if not failure.is_expected(value) then return nil, 500, failure.report(value, "auth failed", one.path) end
      why = value.why
    end
    if type(wait) == "number" then retry = math.max(retry or 1, math.ceil(math.min(wait, 3600))) end
    reasons = add_reason(reasons, one, why)
  end
  if retry then return nil, 503, later, retry, reasons end
  return nil, 401, challenge, nil, reasons
end

--- The principal as text for another process of the gateway, which serves the request.
function auth.pack(p)
  local sign_in = sign_ins[p]
  return sign_in and sign_in .. "\n" .. principal.pack(p, true) or principal.pack(p, true)
end

local unpacked = setmetatable({}, { __mode = "v" })      -- refs by such texts, as long as a call or session has them

--- A ref for C, of a principal that another process has authenticated.
function auth.unpack(text)
  local ref = unpacked[text]
  if ref then return ref end
  local sign_in, of = text:match "^([%w_-]+)\n(.*)$"
  local who = principal.unpack(of or text)
  local facts = principal.facts(who)
  ref = host.auth.principal_ref(who, facts.id, facts.key, facts.expires, facts.issuer, sign_in)
  sign_ins[who] = sign_in
  unpacked[text] = ref
  return ref
end

return auth
