-- Answers `moonpool explain`: the rule that decides whether a principal sees a thing and may use it, in words. The
-- request is "moonpool/explain", which only gateways started with --specs serve.

local host = require "moonpool.host"
local access = require "moonpool.access.access"
local auth = require "moonpool.access.auth"
local errors = require "moonpool.runtime.rpc_error"
local failure = require "moonpool.runtime.outcome"
local policy = require "moonpool.things.policy"
local principal = require "moonpool.access.principal"
local registry = require "moonpool.registry.registry"
local suggest = require "moonpool.runtime.suggest"
local uris = require "moonpool.runtime.uris"

local explain = {}

local upstreams -- the module that explains upstreams, from explain.answer


local function invalid(message) return nil, errors.new("invalid_params", message) end

-- -- authentication --------------------------------------------------------------------------------------------------------

--- The metatable of a request's headers: finds a header whatever the case of its name.
explain.any_case = { __index = function(self, name) return type(name) == "string" and rawget(self, name:lower()) or nil end }

-- Runs the auth scripts in their order, as for a request. Returns the principal, or nil.
local function authenticate(request, put)
  local asked = auth.all()
  if host.config.auth_disabled or not asked[1] then
    put("auth", (host.config.auth_disabled and "'auth: none' in the config" or "there are no auth scripts") .. ": requests are not authenticated")
    return principal.anonymous
  end
  for _, one in ipairs(asked) do
    local file = host.script.root .. "/" .. one.path
    local ok, value, why = xpcall(one.handler, failure.handler, request)
    if not ok and not failure.is_expected(value) then
      put("auth", file .. " failed, so the request is refused: " .. failure.reason(value))
      return nil
    end
    if ok and value then
      local p, trouble = principal.new(value, one.from)
      put("auth", file .. (p and " authenticates it as " .. p.id or " returned no valid principal: " .. trouble))
      return p
    end
    put("auth", file .. " does not authenticate it: " .. failure.words(ok and why or value.why, "no reason"))
  end
end

-- The principal that `params` describe; or nil and an error.
local function who_of(params, put)
  if params.request then
    local headers = setmetatable(params.request.headers or {}, explain.any_case)
    local request = { method = "POST", path = "/mcp", headers = headers, bearer = params.request.bearer, peer = "127.0.0.1", address = "127.0.0.1" }
    return authenticate(request, put)
  end
  local id = params.principal
  if id == "anonymous" then return principal.anonymous end
  if id == "local" then return principal.lone end
  local p, why = principal.new({ id = id, scopes = params.scopes, claims = params.claims }, auth.declared())
  if not p then return invalid(why) end
  return p
end

-- -- rules -----------------------------------------------------------------------------------------------------------------

-- How a principal comes to hold a scope, in words.
local function how(p, scope)
  for i = 1, #p.scopes do
    if p.scopes[i] == scope then return "held" end
  end
  for i = 1, #p.scopes do
    if principal.cover(p.scopes[i], { scope }) then return "held, by " .. p.scopes[i] end
  end
  return "held, implied by another scope"
end

-- Steps, one for each rule. A step adds lines to the explanation. If its rule decides, the step returns what the client
-- gets and why.
local steps = {}

-- Explains the upstream of a thing: its connection and its rules. This step decides nothing.
function steps.upstream(_, thing, put)
  if thing.upstream then upstreams.describe(thing, put) end
end

function steps.enabled(_, thing, put)
  put("enabled", registry.is_off(thing) and "no" or "yes")
  if registry.is_off(thing) then return "absent", "it is switched off" end
end

function steps.visible(p, thing, put)
  if not thing.visible then return end
  local ok, value = host.script.briefly(thing.visible, failure.handler, p)
  put("visible", not ok and "fails: " .. failure.reason(value) or value and "yes" or "no")
  if not ok or not value then return "absent", "'visible' hides it" end
end

function steps.scopes(p, thing, put)
  if not thing.scopes then
    put("scopes", "none are needed")
    return
  end
  local _, missing = principal.allows(p, thing.scopes)
  local lacks = {}
  for _, scope in ipairs(missing or {}) do lacks[scope] = true end
  for _, scope in ipairs(thing.scopes) do put("scope", scope .. ": " .. (lacks[scope] and "missing" or how(p, scope))) end
  if not missing then return end
  local list = table.concat(missing, " ")
  if principal.can_ask(p, thing.scopes) then
    return "403", "it lacks " .. list .. ", which clients may ask for (403 insufficient_scope, scope=\""
      .. access.to_ask(p, table.concat(thing.scopes, " ")) .. "\")"
  end
  return "absent", "it lacks " .. list
end

function steps.policies(_, thing, put, kind)
  local names = policy.names(kind, thing)
  put("policies", names[1] and table.concat(names, ", ") .. ", in this order: each may refuse the call" or "none")
end

local order = { "upstream", "enabled", "visible", "scopes", "policies" }

local meets = {
  absent = "absent from all lists; by name, an unknown thing",
  ["403"] = "absent from lists; by name, HTTP 403 or a JSON-RPC error",
  runs = "listed, and it runs",
}

-- Runs the steps until one decides.
local function judge(p, thing, put, kind)
  local verdict, why
  for _, name in ipairs(order) do
    local met, reason = steps[name](p, thing, put, kind)
    if not verdict then verdict, why = met, reason end
  end
  return verdict or "runs", why or "no rule refuses it"
end

local function nothing() end

-- -- answers ------------------------------------------------------------------------------------------------------------------

-- Calls visit(kind, thing) for each thing with this name, and for the resource with this URI.
local function find(name, visit)
  local count = 0
  local function found(kind, thing)
    count = count + 1
    visit(kind, thing)
  end
  registry.each(function(_, key, thing, kind)
    if thing.name == name or key == name then found(kind, thing) end
  end)
  local resource = count == 0 and registry.resource(uris.normal(name))
  if resource then found("templates", resource) end
  return count
end

local function all_names()
  local names = {}
  registry.each(function(_, _, thing) names[#names + 1] = thing.name end)
  return names
end

local forms = {}

-- The explanation of one thing, rule by rule.
function forms.why(p, params, put)
  local runs, is_first = true, true
  local count = find(params.name, function(kind, thing)
    if not is_first then put("", "") end
    is_first = false
    put(registry.kinds[kind].word, thing.name .. "  (" .. (thing.upstream and "upstream " .. thing.upstream or host.script.root .. "/" .. thing.path) .. ")")
    local verdict, why = judge(p, thing, put, kind)
    put("decides", why)
    put("sees", meets[verdict])
    runs = runs and verdict == "runs"
  end)
  if count == 0 then
    local hidden, hint = upstreams.hidden(params.name)
    if hidden then return nil, hidden, hint end
    local unread = upstreams.unread(params.name)
    hint = suggest.hint(params.name, all_names()) or "moonpool list shows the names"
    return nil, "there is no tool, prompt or resource '" .. params.name .. "'", hint, unread
  end
  return runs
end

-- The verdict for each thing that is served. If the first word is the name of a served thing, the user probably left
-- out the principal.
function forms.all(p, params, put)
  if params.is_word and find(p.id, nothing) > 0 then
    return nil, "'" .. p.id .. "' is served here, and the first word is the principal", "moonpool explain anonymous " .. p.id .. "; or --as " .. p.id
      .. " for a principal of this name"
  end
  registry.each(function(word, name, thing, kind)
    local verdict, why = judge(p, thing, nothing, kind)
    put(verdict, word .. " " .. name .. (verdict ~= "runs" and ": " .. why or ""))
  end)
  return true
end

-- Lists the things that the principal sees, in the form of `moonpool list`.
function forms.list(p, _, _, line)
  registry.each(function(word, name, thing)
    if not registry.is_off(thing) and access.sees(p, thing) then line(word .. "  " .. name .. "  " .. thing.description:match "^[^\n]*") end
  end)
  return true
end

--- Answers "moonpool/explain": { text, runs }, or { what, hint, unread } when the params are wrong. `unread`: an
--- upstream that may have the thing and does not answer. `about_upstreams` is the part about upstreams
--- (federation/explain_upstream.lua). Lines of the text that begin with its STATE are to be replaced.
function explain.answer(params, about_upstreams)
  upstreams = about_upstreams
  local lines = {}
  local function line(text) lines[#lines + 1] = text end
  local function put(word, text) line(word == "" and "" or ("%-9s %s"):format(word, text)) end
  local p, err = who_of(params, put)
  if err then return nil, err end
  if params.form ~= "why" or find(params.name, nothing) == 0 then upstreams.read(put) end
  local runs, what, hint, unread = false, nil, nil, nil
  if p then
    if params.form ~= "list" then
      put("who", p.id)
      put("has", #p.scopes > 0 and table.concat({ table.unpack(p.scopes, 1, #p.scopes) }, " ") or "no scopes")
    end
    if p == principal.anonymous and auth.all()[1] and not host.config.auth_disabled then
      put("sees", "401: there are auth scripts, and anonymous requests are refused")
    else
      runs, what, hint, unread = forms[params.form](p, params, put, line)
    end
  else
    put("sees", "401: no auth script authenticates the request")
  end
  if what then return { what = what, hint = hint, unread = unread, resultType = "complete" } end
  return { text = table.concat(lines, "\n") .. (lines[1] and "\n" or ""), runs = runs, resultType = "complete" }
end

return explain
