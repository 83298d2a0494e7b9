-- scripts/upstreams/NAME.lua: what an operator decides in Lua about one upstream. The file's name is the upstream's.
--   script   { definition, headers, ask, scopes, visible }, and scopes_of(name), headers_of(call)

local failure = require "moonpool.runtime.outcome"
local frozen = require "moonpool.runtime.frozen"
local glob = require "moonpool.runtime.glob"
local host = require "moonpool.host"
local principal = require "moonpool.access.principal"
local suggest = require "moonpool.runtime.suggest"

local scripts = {}

local written = { name = "moonpool.upstream.scripts", what = "an upstream" }
local form = "as in upstream { definition = function(def, kind) return def end }"
local types = { definition = "function", headers = "function", ask = "function", scopes = "table", visible = "function" }
local names = { "definition", "headers", "ask", "scopes", "visible" }

local made = {}       -- name of an upstream -> its script

--- upstream { … } in a file of scripts/upstreams/. It checks nothing: the path and name of the file are not known here.
function scripts.new(spec) return frozen.new(written, {}, { spec = spec }) end

function scripts.is(value) return frozen.is(value, written) end

-- The scopes as rows { fits, scopes }: one list for all things, or lists by pattern.
local function read_scopes(scopes, complain)
  if scopes == nil then return {} end
  local rows, by_pattern = {}, scopes[1] == nil and scopes or { ["*"] = scopes }
  for pattern, list in pairs(by_pattern) do
    if type(pattern) ~= "string" or type(list) ~= "table" or #list == 0 then
      complain("scopes", "'scopes' must be a list of scopes, or lists by name", "as in scopes = { [\"delete_*\"] = { \"admin\" } }")
      return {}
    end
    for _, scope in ipairs(list) do
      local why = principal.scope_trouble(scope)
      if why then complain("scopes", why, "as in scopes = { \"orders:read\" }") end
    end
    rows[#rows + 1] = { fits = glob(pattern), scopes = list }
  end
  return rows
end

local FORBIDDEN = { authorization = true, cookie = true, host = true, connection = true, ["content-length"] = true, ["content-type"] = true,
  ["transfer-encoding"] = true, accept = true, te = true, upgrade = true }

local function is_forbidden(name)
  name = name:lower()
  return FORBIDDEN[name] or name:find "^mcp%-" or name:find "^proxy%-" or not name:find "^[%w!#$%%&'*+%-.^_`|~]+$"
end

-- The header lines that the function `headers` gives for a call. An error of it ends the call.
local function header_lines(f, call)
  local given = f(call)
  local list = {}
  if given == nil then return list end
  if type(given) ~= "table" then error("'headers' must return a table of headers, not a " .. type(given), 0) end
  for name, value in pairs(given) do
    if type(name) ~= "string" or is_forbidden(name) then error("'headers' may not set '" .. tostring(name) .. "'", 0) end
    value = host.secret.reveal(value) or tostring(value)
    if value:find "[\r\n%z]" then error("the header '" .. name .. "' has a line end in its value", 0) end
    list[#list + 1] = name .. ": " .. value
  end
  return list
end

local function protected_definition(name, f)
  return function(definition, kind)
    local ok, value = host.script.briefly(f, failure.handler, definition, kind)
    if ok then return value end
    host.log.write("error", "definition function failed", { upstream = name, name = tostring(definition.name), why = failure.reason(value),
      hint = "hidden until 'definition' returns a definition" })
    return nil
  end
end

--- Prepares the value that a file returned. Calls complain(word or line, what, hint) for each error.
function scripts.build(name, value, _, complain)
  local spec = frozen.content(value).spec
  if type(spec) ~= "table" then return complain("upstream", "upstream needs a table", form) end
  for option, given in pairs(spec) do
    local want = types[option]
    if not want then
      complain(tostring(option), "upstream has no option '" .. tostring(option) .. "'", suggest.listed(tostring(option), names, "options"))
    elseif type(given) ~= want then
      complain(option, "'" .. option .. "' must be a " .. want .. ", not a " .. type(given), form)
    end
  end
  local rows = read_scopes(type(spec.scopes) == "table" and spec.scopes or nil, complain)
  local script = { name = name, visible = spec.visible, ask = spec.ask, define = spec.definition and protected_definition(name, spec.definition) }
  function script.scopes_of(original)
    local list, seen = {}, {}
    for _, row in ipairs(rows) do
      for _, scope in ipairs(row.fits(original) and row.scopes or {}) do
        if not seen[scope] then seen[scope], list[#list + 1] = true, scope end
      end
    end
    return list[1] and list or nil
  end
  if spec.headers then
    function script.headers_of(call) return header_lines(spec.headers, call) end
  end
  return script
end

--- Sets the scripts of all upstreams, by name.
function scripts.set(found) made = found end

--- The script of an upstream, or nil.
function scripts.of(name) return made[name] end

function scripts.all() return made end

return scripts
