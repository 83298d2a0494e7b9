-- moonpool explain and moonpool list --as: show what a principal sees and may use. A child that loads the scripts
-- computes it.

local json = require "moonpool.json"
local circuit = require "moonpool.workbench.client.circuit"
local link = require "moonpool.workbench.client.link"
local stderr = require "moonpool.workbench.format.stderr"

-- Splits "a b" or "a,b" to a list.
local function list_of(text)
  local list = json.array {}
  for word in (text or ""):gmatch "[^%s,]+" do list[#list + 1] = word end
  return list
end

-- Makes the request to authenticate from the options; nil without such options; nil, what, hint if an option is
-- malformed.
local function request_of(args)
  local variable, request = args["bearer-env"], { headers = {} }
  if not variable and not args.header then return nil end
  if variable then
    request.bearer = os.getenv(variable)
    if not request.bearer then return nil, "the environment variable " .. variable .. " is not set", "export " .. variable .. "=… first" end
    request.headers.authorization = "Bearer " .. request.bearer
  end
  for row in (args.header or ""):gmatch "[^\n]+" do
    local name, value = row:match "^([%w!#$%%&'*+.^_`|~-]+):%s*(.-)%s*$"
    if not name then return nil, "'" .. row .. "' is not a header", "as in --header 'X-Api-Key: …'" end
    request.headers[name:lower()] = value
    local token = name:lower() == "authorization" and value:match "^[Bb][Ee][Aa][Rr][Ee][Rr] +(%S+)$"
    if token then request.bearer = token end
  end
  request.headers = json.object(request.headers)
  return request
end

-- Makes the parameters of the request to the child; or nil, what, hint.
local function params_of(args)
  local request, what, hint = request_of(args)
  if what then return nil, what, hint end
  local is_list, first = args.form == "list", (args.as or request) and 1 or 2 -- index of the name among the words
  if args.as and request then return nil, "--as and credentials exclude each other", "remove one of them" end
  local who = args.as or not request and args[1] or nil
  local name = not is_list and args[first] or nil
  if not who and not request then
    return nil, "explain takes a principal, or credentials", "as in moonpool explain ann orders_refund --scopes orders:read"
  end
  if not is_list and args[first + 1] then return nil, "explain takes one name", "without a name it explains everything" end
  if request and (args.scopes or args.claims) then return nil, "--scopes and --claims exclude credentials, whose scopes and claims the auth scripts decide" end
  local claims
  if args.claims then
    claims = json.decode(args.claims)
    if type(claims) ~= "table" then return nil, "--claims needs an object", "as in --claims '{\"team\": \"web\"}'" end
  end
  return {
    principal = who, name = name, request = request, scopes = not request and list_of(args.scopes) or nil, claims = claims,
    form = is_list and "list" or name and "why" or "all", is_word = not args.as,
  }
end

return function(args)
  local params, what, hint = params_of(args)
  if not params then return stderr.misuse(what, hint) end
  local child, why = link.child { "--specs", "--log-level", "error", args.config }
  if not child then return stderr.wrong(why) end
  local got, wrong = link.asker(child, "explain")("moonpool/explain", params)
  if not got then return link.lost(child, wrong) end
  child.close()
  local state_of = circuit.reader(args)
  if got.unread then
    return stderr.wrong(got.what, ("upstream '%s', which may have it, does not answer: `moonpool check --connect` says why. "
      .. "Its circuit is %s"):format(got.unread, state_of(got.unread)))
  end
  if got.what then return stderr.wrong(got.what, got.hint) end
  io.stdout:write((got.text:gsub("\1 +([^\n]+)", function(name) return "now       " .. state_of(name) end)))
  return got.runs and 0 or 1
end
