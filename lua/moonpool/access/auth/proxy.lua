-- auth.proxy { from = { "10.0.0.0/8" }, header = "x-forwarded-user" }: trusts a header with the user's id from a proxy
-- in front of the gateway, which has authenticated the user. The header is ignored in requests from other addresses.

local keys = require "moonpool.keys"
local options = require "moonpool.access.auth.options"
local problem = require "moonpool.runtime.diagnostic"

local function read_networks(from)
  local list = {}
  if type(from) ~= "table" or #from == 0 then
    problem.raise(2, "auth.proxy needs 'from': the addresses of the proxy", "as in from = { \"10.1.2.0/24\", \"unix\" }")
  end
  for _, text in ipairs(from) do
    if text == "unix" then
      list.unix = true
    else
      local bytes, bits
      if type(text) == "string" then bytes, bits = keys.network(text) end
      if not bytes then
        problem.raise(2, "auth.proxy: '" .. tostring(text) .. "' is neither an address nor a network", "as in \"10.1.2.0/24\", \"::1\" or \"unix\"")
      end
      list[#list + 1] = { bytes, bits }
    end
  end
  return list
end

local function is_from(networks, peer)
  if type(peer) ~= "string" then return false end
  if peer == "unix" then return networks.unix == true end
  for _, network in ipairs(networks) do
    if keys.is_within(peer, network[1], network[2]) then return true end
  end
  return false
end

return function(given)
  options.check("auth.proxy", given, { "from", "header", "scopes_header", "scopes" })
  local header, scopes_header = given.header or "x-forwarded-user", given.scopes_header
  if not options.is_header(header) or scopes_header ~= nil and not options.is_header(scopes_header) then
    problem.raise(1, "auth.proxy: 'header' and 'scopes_header' are names of headers")
  end
  local networks, scopes = read_networks(given.from), options.scopes("auth.proxy", given.scopes)
  header, scopes_header = header:lower(), scopes_header and scopes_header:lower()
  return options.made(given, function(request)
    local id = request.headers[header]
    if not id then return nil, "the header with the user's id is missing" end
    if not is_from(networks, request.peer) then return nil, "'" .. header .. "' is not an address of the proxy" end
    if not options.is_given_id(id) then return nil, "'" .. header .. "' contains no valid id, or that of an API key" end
    local own = scopes
    if scopes_header then
      local text = (request.headers[scopes_header] or ""):gsub(",", " ")
      local more, why = options.read_scopes(text)
      if not more then return nil, why end
      own = table.move(more, 1, #more, #scopes + 1, { table.unpack(scopes) })
    end
    return { id = id, scopes = own }
  end)
end
