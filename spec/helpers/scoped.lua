-- A gateway with things that only some principals may see. Its auth script reads the name and scopes from the token,
-- with _ for : and ~ for *:
-- "ann.orders_read.orders_write".
local gateway = require "spec.helpers.gateway"

local scoped = {}

scoped.revisions = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" }

scoped.scripts = {
  ["auth/main.lua"] = [[
return auth {
  issuer = "https://login.example.com", askable = { "orders:read", "orders:write" }, implies = { ["orders:write"] = { "orders:read" } },
  function(request)
    local parts = {}
    for part in try(request.bearer, "no token"):gmatch "[^.]+" do parts[#parts + 1] = (part:gsub("_", ":"):gsub("~", "*")) end
    local name = table.remove(parts, 1)
    return { id = name, scopes = parts, claims = { team = name == "ann" and "sales" or "other" } }
  end,
}]],
  ["tools/open.lua"] = 'return tool { "Open to all.", function() return "open" end }',
  ["tools/orders/tools.lua"] = [[
return {
  read = tool { "Reads.", scopes = { "orders:read" }, function() return "read" end },
  write = tool { "Writes.", scopes = { "orders:write" }, function() return "written" end },
  audit = tool { "Audits.", scopes = { "audit" }, function() return "audited" end },
  sell = tool { "Sells.", visible = function(who) return who.claims ~= nil and who.claims.team == "sales" end, function() return "sold" end },
  both = tool { "Both.", scopes = { "orders:write" }, visible = function(who) return who.claims ~= nil end, function() return "both" end },
  drop = tool { "Drops.", input = { all = t.boolean { default = false } }, function(args, call)
    if args.all then call:needs("orders:write") end
    return "dropped"
  end },
  flip = tool { "Switches.", input = { name = t.string }, function(args)
    if enabled("tool", args.name) then disable("tool", args.name) else enable("tool", args.name) end
    return "done"
  end },
  touch = tool { "Touches.", input = { uri = t.string }, function(args) resource_updated(args.uri) return "done" end },
} ]],
  ["resources/ledger.lua"] = 'return resource { "Ledger.", uri = "ledger://all", scopes = { "audit" }, "secret" }',
  ["resources/page.lua"] = 'return resource { "Page.", uri = "page://one", public = true, "for all" }',
  ["resources/order.lua"] = [[
return resource { "One.", uri = "order://{id}", scopes = { "audit" }, complete = { id = { "one" } }, function(vars) return vars.id end }]],
  ["prompts/audit.lua"] = [[return prompt { "Audit.", scopes = { "audit" }, args = { year = t.string { complete = { "2025", "2026" } } }, "audit" }]],
  ["prompts/hello.lua"] = 'return prompt { "Hello.", "hello" }',
}

--- Starts a gateway with these scripts; `more` are additional scripts.
function scoped.start(more, options)
  options = options or {}
  options.scripts = {}
  for path, text in pairs(scoped.scripts) do options.scripts[path] = text end
  for path, text in pairs(more or {}) do options.scripts[path] = text or nil end
  return gateway.start(options)
end

--- The names in a list, in the order in which they came.
function scoped.names(me, method, member, key)
  local found = {}
  for i, entry in ipairs(me:result(method or "tools/list")[member or "tools"]) do found[i] = entry[key or "name"] end
  return table.concat(found, " ")
end

return scoped
