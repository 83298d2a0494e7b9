-- Warnings of `moonpool check` about access: things that no principal can reach, scopes that nothing requires, and auth
-- scripts that accept every request. Only facts that do not depend on a request are reported; if scopes come from
-- tokens, few facts are known.

local host = require "moonpool.host"
local auth = require "moonpool.access.auth"
local failure = require "moonpool.runtime.outcome"
local principal = require "moonpool.access.principal"
local problem = require "moonpool.runtime.diagnostic"
local registry = require "moonpool.registry.registry"
local sorted = require "moonpool.runtime.sorted_keys"
local suggest = require "moonpool.runtime.suggest"

-- The line of a scope in a file; near the thing's name if the file has several things with the scope.
local function line_of(thing, scope)
  local text = problem.script_text(thing.path) or ""
  local from = problem.find(text, thing.name:match "[^_.-]+$") or 1
  return problem.find(text, scope, from) or problem.find(text, scope) or problem.find(text, "scopes")
end

-- The string literals of all scripts; `is_auth`: only those of auth scripts; false: only those of all other scripts.
local function literals(is_auth, set)
  for _, script in ipairs(host.script.list) do
    if (script.path:find "^auth/" ~= nil) == is_auth and not script.path:find "_spec%.lua$" then
      for quote, text in script.text:gmatch "([\"'])([!#-&(-[%]^-~]+)%1" do set[text] = quote end
    end
  end
  return set
end

-- The scopes that auth scripts mention, and whether no others are possible. With an issuer, a client asks for further
-- scopes when a call needs them (step-up): any scope, or those of `askable`.
local function granted()
  local set, is_all = literals(true, {}), true
  for _, one in ipairs(auth.all()) do
    local askable = one.from.askable
    is_all = is_all and one.scopes_supported ~= nil and askable ~= true
    for _, scope in ipairs(type(askable) == "table" and askable or {}) do set[scope] = true end
    for _, scope in ipairs(one.scopes_supported or {}) do set[scope] = true end
    for scope, others in pairs(one.from.implies or {}) do
      set[scope] = true
      for _, other in ipairs(others) do set[other] = true end
    end
  end
  return set, is_all
end

-- A warning about the scopes of a thing, and a hint; or nil.
local function unreachable(word, thing, scope, known, is_all)
  if known == nil then
    return "no client can reach the " .. word .. " '" .. thing.name .. "' over HTTP: it needs '" .. scope .. "', and no auth script authenticates requests",
      host.config.auth_disabled and "'auth: none' is in the config" or "a script in " .. host.script.root .. "/auth/ can grant it"
  end
  if principal.cover(table.concat(sorted(known), " "), { scope }) then return nil end
  local hint = suggest.hint(scope, known)
  if is_all then
    return "no client can reach the " .. word .. " '" .. thing.name .. "': no auth script grants '" .. scope .. "'",
      hint or "'scopes_supported' or 'implies' of a script in auth/ names the scopes that exist"
  end
  if hint then return "no auth script mentions the scope '" .. scope .. "' of the " .. word .. " '" .. thing.name .. "'", hint end
end

local function check_things(put)
  local known, is_all
  if auth.all()[1] and not host.config.auth_disabled then known, is_all = granted() end
  registry.each(function(word, _, thing)
    for _, scope in ipairs(thing.scopes or {}) do
      local what, hint = unreachable(word, thing, scope, known, is_all)
      if what then put(thing.path, line_of(thing, scope), what, hint) end
    end
  end)
end

-- Warnings about scopes that auth scripts give and that no thing and no call:needs requires.
local function check_offers(put)
  local needed = literals(false, {})
  registry.each(function(_, _, thing)
    for _, scope in ipairs(thing.scopes or {}) do needed[scope] = true end
  end)
  for _, one in ipairs(auth.all()) do
    for _, scope in ipairs(one.scopes_supported or {}) do
      local is_needed = false
      for other in pairs(needed) do is_needed = is_needed or principal.cover(scope, { other }) end
      for _, other in ipairs(one.from.implies and one.from.implies[scope] or {}) do is_needed = is_needed or needed[other] ~= nil end
      if not is_needed then
        put(one.path, problem.find(problem.script_text(one.path), scope), "nothing needs the scope '" .. scope .. "'", suggest.hint(scope, needed))
      end
    end
  end
end

-- Runs each auth script with a request from a remote address that brings no credentials.
local function check_without_credentials(put)
  for _, one in ipairs(auth.all()) do
    local request = { method = "POST", path = "/mcp", headers = {}, peer = "192.0.2.1", address = "192.0.2.1" }
    local ok, value = host.script.guarded(one.handler, failure.handler, request)
    local p = ok and value and principal.new(value, one.from)
    if p then
      put(one.path, problem.find(problem.script_text(one.path), "return"), "a request without credentials is authenticated as '" .. p.id .. "'",
        "return nil and a reason for requests without valid credentials")
    end
  end
end

--- The warnings, as a list of texts.
return function()
  local list, warned = {}, {}
  local function put(path, line, what, hint)
    local text = problem.of_script(path, line, what, hint)
    if not warned[text] then list[#list + 1], warned[text] = text, true end
  end
  check_things(put)
  check_offers(put)
  check_without_credentials(put)
  return list
end
