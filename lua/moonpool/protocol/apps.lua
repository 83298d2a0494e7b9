-- MCP Apps (revision 2026-01-26): an HTML page that a host shows beside the result of a tool. The tool names the
-- `ui://` URI of a resource; the resource holds the page and says which permissions the page wants.

local json = require "moonpool.json"
local suggest = require "moonpool.runtime.suggest"

local apps = { extension = "io.modelcontextprotocol/ui", mime = "text/html;profile=mcp-app" }

local permissions = { camera = true, microphone = true, geolocation = true, clipboardWrite = true }
local domains = { connectDomains = true, resourceDomains = true, frameDomains = true, baseUriDomains = true }
local page_options = { csp = "table", permissions = "table", domain = "string", prefersBorder = "boolean" }

function apps.is_page(uri) return uri:find "^ui://" ~= nil end

local function unknown(what, name, known, complain)
  complain(tostring(name), "'" .. what .. "' has no '" .. tostring(name) .. "'", suggest.hint(tostring(name), known))
end

--- The `_meta.ui` of a tool, from its option `ui = "ui://…"` or `ui = { "ui://…", visibility = { "app" } }`.
function apps.of_tool(ui, complain)
  if ui == nil then return nil end
  local given = type(ui) == "string" and { ui } or ui
  if type(given) ~= "table" then return nil end
  if type(given[1]) ~= "string" or not apps.is_page(given[1]) then
    complain("ui", "'ui' must be the URI of a page", "as in ui = \"ui://orders/table\", which a file in resources/ serves")
    return nil
  end
  for name in pairs(given) do
    if name ~= 1 and name ~= "visibility" then unknown("ui", name, { "visibility" }, complain) end
  end
  local visibility = given.visibility
  for _, who in ipairs(type(visibility) == "table" and visibility or {}) do
    if who ~= "model" and who ~= "app" then complain("visibility", "'visibility' may contain only \"model\" and \"app\"") end
  end
  return { resourceUri = given[1], visibility = type(visibility) == "table" and json.array { table.unpack(visibility) } or nil }
end

--- The `_meta.ui` of a page's resource, from its option `ui = { csp = …, permissions = { camera = true }, domain = …,
--- prefersBorder = … }`.
function apps.of_page(ui, complain)
  if type(ui) ~= "table" then return nil end
  local made = {}
  for name, value in pairs(ui) do
    local want = page_options[name]
    if not want then
      unknown("ui", name, page_options, complain)
    elseif type(value) ~= want then
      complain(name, "'" .. name .. "' must be a " .. want .. ", got a " .. type(value))
    else
      made[name] = value
    end
  end
  if made.csp then
    made.csp = {}
    for name, list in pairs(ui.csp) do
      if not domains[name] or type(list) ~= "table" then unknown("csp", name, domains, complain) end
      made.csp[name] = type(list) == "table" and json.array { table.unpack(list) } or nil
    end
  end
  if made.permissions then
    made.permissions = {}
    for name, wanted in pairs(ui.permissions) do
      if not permissions[name] then unknown("permissions", name, permissions, complain) end
      if wanted then made.permissions[name] = json.object {} end
    end
  end
  return made
end

return apps
