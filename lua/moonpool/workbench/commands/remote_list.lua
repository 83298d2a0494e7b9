-- moonpool list --url: lists the tools, resources and prompts of a server at a URL, one per line.

local connect = require "moonpool.workbench.client.connect"

local MAX_PAGES = 1000

local kinds = {
  { "tools", "tools/list", "tools", "tool", "name" }, { "resources", "resources/list", "resources", "resource", "uri" },
  { "resources", "resources/templates/list", "resourceTemplates", "resource", "uriTemplate" }, { "prompts", "prompts/list", "prompts", "prompt", "name" },
}

-- Removes control characters, because the server is not trusted.
local function plain(value) return (tostring(value):match "^[^\n]*":gsub("%c", " ")) end

-- Shows the name of a resource if its URI does not contain the name.
local function put(word, name, thing)
  local about = plain(thing.description or thing.title or "")
  local own = plain(thing.title or thing.name or "")
  if own ~= "" and own ~= about and not plain(name):lower():find(plain(thing.name or ""):lower(), 1, true) then
    about = own .. (about ~= "" and ": " .. about or "")
  end
  print(word .. "  " .. plain(name) .. "  " .. about)
end

local function put_all(s, kind)
  local capability, method, member, word, field = table.unpack(kind)
  if not (s.capabilities or {})[capability] then return true end
  local cursor
  for _ = 1, MAX_PAGES do
    local page, wrong = s:request(method, { cursor = cursor })
    if not page then return nil, wrong end
    for _, thing in ipairs(page[member] or {}) do put(word, thing[field], thing) end
    cursor = page.nextCursor
    if not cursor then return true end
  end
  return nil, { message = method .. ": more than " .. MAX_PAGES .. " pages" }
end

return function(args)
  return connect.run(args, nil, function(s)
    for _, kind in ipairs(kinds) do
      local fine, wrong = put_all(s, kind)
      if not fine then return connect.failed(wrong) end
    end
    return 0
  end)
end
