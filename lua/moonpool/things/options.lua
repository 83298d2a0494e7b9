-- The common part of tool, resource and prompt: checking their options, and the common members of their definitions.

local call = require "moonpool.protocol.call"
local hint_options = require "moonpool.things.hint_options"
local json = require "moonpool.json"
local principal = require "moonpool.access.principal"
local suggest = require "moonpool.runtime.suggest"

local options = {}

-- The options that all kinds have.
local common = {
  title = "string", icons = "table", meta = "table", timeout = "number", requires = "table", scopes = "table", visible = "function",
  enabled = "boolean",
}

-- Hints for options whose value has the wrong type.
local forms = { timeout = "as in timeout = 30 * seconds", scopes = "as in scopes = { \"orders:read\" }" }

-- The name of a Lua type in error texts: "table" becomes "a table".
local function one(kind) return (kind:find "^[aeio]" and "an " or "a ") .. kind end

-- True if a value has the type `want`: one type, or two as in "string or table".
local function is(value, want)
  if want == "integer" then return math.type(value) == "integer" end
  return (" " .. want .. " "):find(" " .. type(value) .. " ", 1, true) ~= nil
end

local function check_icons(icons, complain)
  for i, icon in ipairs(icons) do
    local src = type(icon) == "table" and icon.src
    if type(src) ~= "string" or not (src:find "^https://" or src:find "^data:") then                -- clients refuse icons of other schemes (IC-1)
      complain("icons", "icon " .. i .. " has no 'src' that is an https: or data: address", "as in icons = { { src = \"https://…/icon.png\" } }")
    end
  end
end

local function check_scopes(scopes, complain)
  if #scopes == 0 then complain("scopes", "'scopes' names no scope", "as in scopes = { \"orders:read\" }; without the option, every caller may use it") end
  for _, scope in ipairs(scopes) do
    local why = principal.scope_trouble(scope)
    if why then complain("scopes", why, "as in scopes = { \"orders:read\" }") end
    if not why and scope:find "%*" then complain("scopes", "'" .. scope .. "' has a '*': only principals may hold such a scope", "a scope without '*'") end
  end
end

local function check_values(spec, complain)
  if type(spec.scopes) == "table" then check_scopes(spec.scopes, complain) end
  if type(spec.timeout) == "number" and not (spec.timeout > 0 and spec.timeout <= 86400) then
    complain("timeout", "'timeout' must be above 0 and at most a day", "as in timeout = 30 * seconds")
  end
  for i, name in ipairs(type(spec.requires) == "table" and spec.requires or {}) do
    if type(name) ~= "string" or name == "" then complain("requires", "'requires' item " .. i .. " is not a name", "as in requires = { \"sampling\" }") end
  end
  for name in pairs(type(spec.meta) == "table" and spec.meta or {}) do
    if type(name) ~= "string" then complain("meta", "'meta' has a field without a name", "as in meta = { [\"example.com/team\"] = \"web\" }") end
  end
  if type(spec.icons) == "table" then check_icons(spec.icons, complain) end
end

--- Checks `spec`, the table given to tool, resource or prompt. `kind`: { word, own = { option = type }, order = names
--- for the hint, handler = type of its second item, form = an example }. Returns true unless no usable options are
--- left.
function options.check(kind, spec, complain)
  local word = kind.word
  if type(spec) ~= "table" then
    complain(word, word .. " needs a table", kind.form)
    return false
  end
  for name, value in pairs(spec) do
    local want = kind.own[name] or common[name]
    if name == 1 then
      if type(value) ~= "string" then complain(word, "a " .. word .. " begins with its description", kind.form) end
    elseif name == 2 then
      if not is(value, kind.handler) then complain(word, "a " .. word .. "'s handler comes after its description", kind.form) end
    elseif not want then
      complain(tostring(name), word .. " has no option '" .. tostring(name) .. "'",
        hint_options.of_thing(name, word) or suggest.listed(name, kind.order, "options"))
    elseif not is(value, want) then
      complain(name, "'" .. name .. "' must be " .. one(want) .. ", got " .. one(type(value)), forms[name])
    end
  end
  if spec[1] == nil or spec[1] == "" then complain(word, "the " .. word .. " has no description", "its first item: " .. kind.form) end
  if spec[2] == nil and type(spec[1]) ~= "function" then
    complain(word, "the " .. word .. " has no handler", "a function after the description: " .. kind.form)
  end
  check_values(spec, complain)
  return true
end

--- A JSON array of the option's values, also of an empty table; nil if the option is missing.
function options.list(value) return type(value) == "table" and json.array { table.unpack(value) } or nil end

--- The capabilities in `requires` as the tree that call.demand takes; nil for none.
function options.required(requires)
  return type(requires) == "table" and #requires > 0 and call.tree(requires) or nil
end

--- Copies the options that tools, resources and prompts have in common to the thing.
function options.guard(made, spec)
  if type(spec.scopes) == "table" then
    made.scopes = { table.unpack(spec.scopes) }
    table.sort(made.scopes)
  end
  made.visible, made.timeout, made.enabled, made.requires = spec.visible, spec.timeout, spec.enabled, spec.requires
  made.required_tree = options.required(spec.requires)
  made.is_private = made.scopes ~= nil or made.visible ~= nil
  return made
end

--- The `_meta` of a definition: the author's members, and those for MCP Apps; nil for none.
function options.meta(spec, ui)
  if not ui then return spec.meta end
  local meta = {}
  for name, value in pairs(spec.meta or {}) do meta[name] = value end
  meta.ui = ui
  return meta
end

return options
