-- What `moonpool check` doubts about who may do what: things that nobody can reach, scopes that nobody needs, auth scripts that
-- let everybody in. Told of what can be known without a request; where scopes come out of tokens, little can.

local host = require "moonpool.host"
local auth = require "moonpool.auth"
local failure = require "moonpool.failure"
local principal = require "moonpool.principal"
local problem = require "moonpool.problem"
local registry = require "moonpool.registry"
local suggest = require "moonpool.suggest"

local words = { tools = "tool", resources = "resource", templates = "resource", prompts = "prompt" }
local kinds = { "tools", "resources", "templates", "prompts" }

local function text_of(path)
  for _, script in ipairs(host.scripts) do
    if script.path == path then return script.text end
  end
  return ""
end

local function sorted(set)
  local list = {}
  for name in pairs(set) do list[#list + 1] = name end
  table.sort(list)
  return list
end

-- The line of a scope, near the thing's own name where the file has several.
local function line_of(thing, scope)
  local text = text_of(thing.path)
  local from = problem.find(text, thing.name:match "[^_.-]+$") or 1
  return problem.find(text, scope, from) or problem.find(text, scope) or problem.find(text, "scopes")
end

-- The texts that stand in scripts: `is_auth` says in which.
local function literals(is_auth, set)
  for _, script in ipairs(host.scripts) do
    if (script.path:find "^auth/" ~= nil) == is_auth and not script.path:find "_spec%.lua$" then
      for quote, text in script.text:gmatch "([\"'])([!#-&(-[%]^-~]+)%1" do set[text] = quote end
    end
  end
  return set
end

-- The scopes that auth scripts speak of, and whether these are all that there can be.
local function granted()
  local set, is_all = literals(true, {}), true
  for _, one in ipairs(auth.all()) do
    is_all = is_all and one.scopes_supported ~= nil
    for _, scope in ipairs(one.scopes_supported or {}) do set[scope] = true end
    for scope, others in pairs(one.from.implies or {}) do
      set[scope] = true
      for _, other in ipairs(others) do set[other] = true end
    end
  end
  return set, is_all
end

local function each_thing(visit)
  for _, kind in ipairs(kinds) do
    local things, names = registry.everything(kind)
    for _, name in ipairs(names) do visit(words[kind], things[name]) end
  end
end

-- What is wrong with the scopes of a thing, and what to do; or nil.
local function unreachable(word, thing, scope, known, is_all)
  if known == nil then
    return "nobody can reach the " .. word .. " '" .. thing.name .. "' over HTTP: it needs '" .. scope .. "', and nobody is asked who they are",
      host.asks_nobody and "'auth: none' is in the config" or "a script in " .. host.root .. "/auth/ would say who has it"
  end
  if principal.cover(table.concat(sorted(known), " "), { scope }) then return nil end
  local hint = suggest.hint(scope, known)
  if is_all then
    return "nobody can reach the " .. word .. " '" .. thing.name .. "': no auth script grants '" .. scope .. "'",
      hint or "'scopes_supported' or 'implies' of a script in auth/ names those that there are"
  end
  if hint then return "the auth scripts do not speak of the scope '" .. scope .. "' of the " .. word .. " '" .. thing.name .. "'", hint end
end

local function check_things(put)
  local known, is_all
  if auth.all()[1] and not host.asks_nobody then known, is_all = granted() end
  each_thing(function(word, thing)
    for _, scope in ipairs(thing.scopes or {}) do
      local what, hint = unreachable(word, thing, scope, known, is_all)
      if what then put(thing.path, line_of(thing, scope), what, hint) end
    end
  end)
end

-- Scopes that are offered, and that no thing and no call:needs asks for.
local function check_offers(put)
  local needed = literals(false, {})
  each_thing(function(_, thing)
    for _, scope in ipairs(thing.scopes or {}) do needed[scope] = true end
  end)
  for _, one in ipairs(auth.all()) do
    for _, scope in ipairs(one.scopes_supported or {}) do
      local is_needed = false
      for other in pairs(needed) do is_needed = is_needed or principal.cover(scope, { other }) end
      for _, other in ipairs(one.from.implies and one.from.implies[scope] or {}) do is_needed = is_needed or needed[other] ~= nil end
      if not is_needed then
        put(one.path, problem.find(text_of(one.path), scope), "nothing needs the scope '" .. scope .. "'", suggest.hint(scope, needed))
      end
    end
  end
end

-- Asks each auth script about a request that brings nothing, from far away.
local function check_doors(put)
  for _, one in ipairs(auth.all()) do
    local request = { method = "POST", path = "/mcp", headers = {}, peer = "192.0.2.1" }
    local ok, value = host.guarded(one.handler, failure.handler, request)
    local p = ok and value and principal.new(value, one.from)
    if p then
      put(one.path, problem.find(text_of(one.path), "return"), "whoever brings no credentials at all is let in, as '" .. p.id .. "'",
        "end with nil and why, or fail, where nobody is known")
    end
  end
end

--- The doubts, as a list of texts.
return function()
  local list, told = {}, {}
  local function put(path, line, what, hint)
    local text = problem.text(host.root .. "/" .. path, line, what, hint, text_of(path))
    if not told[text] then list[#list + 1], told[text] = text, true end
  end
  check_things(put)
  check_offers(put)
  check_doors(put)
  return list
end
