-- moonpool doctor: walks the way to an upstream step by step, and says at which step and why it stops, and what to do
-- next.
--   step   { step, state = "ok" | "doubt" | "failed" | "not reached", text, hint? }

local child_gateway = require "moonpool.workbench.client.child_gateway"
local probe_upstreams = require "moonpool.workbench.client.probe_upstreams"
local credentials = require "moonpool.workbench.client.credentials"
local json = require "moonpool.json"
local metadata = require "moonpool.workbench.client.metadata"
local place_of = require "moonpool.workbench.client.address"
local stderr = require "moonpool.workbench.format.stderr"

-- Removes control characters, because an upstream is not trusted.
local function plain(text) return (tostring(text):match "^[^\n]*":gsub("%c", " ")) end

-- -- at which step a failure is ------------------------------------------------------------------------------------------

local function is_tls(why) return why:find "SSL" or why:find "TLS" or why:find "certificate" end

local function step_of_url(failure)
  local why, reason = failure.why or "", failure.reason
  if reason == "address" or why:find "DNS" then return "address" end
  if is_tls(why) then return "tls" end
  if reason == "refused" then return "connect" end
  if failure.status == 401 or failure.status == 403 or reason == "barred" then return "token" end
  return "probe"
end

local function step_of_program(failure)
  local why = failure.why or ""
  return (failure.reason == "refused" or failure.reason == "closed" or why:find "program ended") and "program" or "probe"
end

local ways = {
  url = { "address", "connect", "tls", "probe", "authorization", "token", "list" },
  command = { "program", "probe", "list" },
}

local hints = {
  address = "check the name in the URL; `getent hosts NAME` asks the same resolver",
  connect = "is the server running, and does it listen at this port? A firewall may be between",
  probe = "the path of the MCP endpoint is part of the URL: /mcp, or /sse; and its port is that of `listen`, not that of the admin listener",
  program = "run the command in a terminal: what it prints on stderr is in the log of the gateway, too",
  list = "the server itself fails to list; `moonpool call` shows what its tools do",
}

-- -- the steps -----------------------------------------------------------------------------------------------------------

local function counted(listed)
  local parts = {}
  for _, kind in ipairs { "tools", "prompts", "resources", "templates" } do
    local n = listed.counts[kind]
    if n then parts[#parts + 1] = n .. " " .. (n == 1 and kind:gsub("s$", "") or kind) end
  end
  return parts[1] and table.concat(parts, ", ") or "nothing"
end

local function token_of(found)
  if found.token then return found.token.kind end
  if found.credential then return found.credential end
  if found.has_headers then return "the headers of the entry" end
end

-- The text for each step that was passed.
local passed = {
  address = function(_, place) return place.host end,
  connect = function(_, place) return "port " .. place.port end,
  tls = function() return "the certificate is trusted and has this name" end,
  program = function() return "it runs" end,
  probe = function(found)
    local server_info = found.opened
    if not server_info then return "answers with status " .. tostring(found.failure.status) end
    return ("%s over %s%s"):format(plain(server_info.revision), plain(server_info.transport),
      server_info.server and ", " .. plain(server_info.server) .. (server_info.version and " " .. plain(server_info.version) or "") or "")
  end,
  token = function(found)
    local token = token_of(found)
    if found.token then return token .. ": the authorization server gives a token, and the server accepts it" end
    return token and token .. ": accepted" or "none is sent, and none is needed"
  end,
  list = function(found) return counted(found.listed) end,
}

-- Why there is no token, if the gateway should get one; nil if it has one, or gets none.
local function missing_token(found)
  local token = found.token
  if not token then return nil end
  if token.needs_caller then
    return token.kind .. ": it exchanges the token of each caller, and none is given here",
      "--bearer-env NAME gives the token in a variable, as a caller of the gateway would send it"
  end
  if token.why then
    return token.kind .. ": " .. token.why, token.is_ours and "look at issuer or token_url, client, secret and scope of " .. token.kind
      or "look at what the authorization server says about this token in its log"
  end
end

-- Why the credential is refused.
local function token_failure(found)
  local token, status = token_of(found), found.failure.status
  if found.token then
    return ("%s: the authorization server gives a token, and the server refuses it (status %s)"):format(token, tostring(status or 401)),
      "look whether it is meant for this server: audience, resource and scope of " .. token
  end
  if not token and status == 403 then
    return "refused, and no credential is configured (status 403)",
      "a credential may be needed (--bearer-env with a URL), or the server does not serve this host name (`hosts` of a gateway)"
  end
  if not token then
    return ("a credential is needed, and none is configured (status %s)"):format(status or "401"),
      "auth: {bearer: \"${TOKEN:?set it}\"} sends a token from a variable; --bearer-env with a URL"
  end
  if status == 403 then return token .. ": accepted, but it may not do this (status 403)", "give it the scopes that the server wants" end
  return token .. ": refused (status " .. tostring(status or 401) .. ")", "renew the token, and look whether it is meant for this server (its audience)"
end

-- The failed step, and the text and the hint of it.
local function failed_at(found)
  local failure = found.failure
  local step = failure and (found.kind == "url" and step_of_url or step_of_program)(failure)
  if missing_token(found) and (not failure or step == "token") then return "token", missing_token(found) end
  if not failure and found.list_failure then
    local text = found.list_failure.what
    return "list", text, found.list_failure.hint or hints.list
  end
  if not failure then return nil end
  if step == "token" then return step, token_failure(found) end
  return step, failure.what, (failure.reason == "address" or step == "tls") and failure.hint or hints[step]
end

-- Adds what the lists of an upstream have and clients do not get, and what is doubtful in them.
local function add_doubts(step, listed)
  local function add(form, count, why)
    step.state, step.text = "doubt", step.text .. "; " .. form:format(count, plain(why))
  end
  if listed.left_out then add("%d left out, the first because %s", listed.left_out, listed.why or "it is not valid") end
  if listed.withheld > 0 then add("%d withheld, the first because %s", listed.withheld, listed.withheld_why) end
  if listed.doubts > 0 then add(listed.doubts == 1 and "%d doubt: %s" or "%d doubts, the first: %s", listed.doubts, listed.doubts_why) end
end

local function steps_of(found)
  local place = found.kind == "url" and place_of(found.url) or nil
  local at, text, hint = failed_at(found)
  local steps, is_reached = json.array {}, true
  for _, name in ipairs(ways[found.kind]) do
    if name ~= "tls" or place.is_secure then
      local step = { step = name }
      if not is_reached then
        step.state = "not reached"
      elseif name == at then
        local said = found.failure and found.failure.said
        step.state, step.text, step.hint, is_reached = "failed", plain(text) .. (said and "; it says: " .. plain(said) or ""), hint, false
      elseif name == "authorization" then
        step.state, step.text, step.hint = metadata(place, found.ca, found.failure and found.failure.challenge)
        step.text = plain(step.text)
      else
        step.state, step.text = "ok", passed[name](found, place)
        if name == "list" then add_doubts(step, found.listed) end
        if name == "list" and found.listed.missing then step.state, step.text = "doubt", step.text .. "; " .. plain(found.listed.missing) end
      end
      steps[#steps + 1] = step
    end
  end
  return steps, at
end

local function put(name, steps)
  print(name)
  for _, step in ipairs(steps) do
    print((("  %-13s  %-11s  %s"):format(step.step, step.state, step.text or ""):gsub("%s+$", "")))
    if step.hint then print("    hint: " .. step.hint) end
  end
end

-- Prints the steps. Returns the exit code.
local function report(name, found, args)
  local steps, at = steps_of(found)
  if args.json then
    print(json.encode { upstream = name, ok = at == nil, stopped_at = at, steps = steps })
  else
    put(name, steps)
  end
  return at == nil and 0 or 1
end

-- -- the command ---------------------------------------------------------------------------------------------------------

local function of_url(args)
  local place, what, hint = place_of(args[1])
  if not place or place.unix then return stderr.misuse(what or "not a URL: '" .. args[1] .. "'", hint) end
  args.url = args[1]
  local headers
  headers, what, hint = credentials.read(args)
  if not headers then return stderr.misuse(what, hint) end
  local child, why = child_gateway.start({ url = place.origin .. place.path, ca = args.ca, patience = "15s" }, headers)
  if not child then return stderr.wrong(why) end
  return probe_upstreams.converse(child, function(ask)
    local found, wrong = ask({}, "moonpool/doctor")
    if not found then return nil, wrong end
    found.has_headers = next(headers) ~= nil
    return report((args[1]:gsub("[?#].*", "")), found, args)
  end)
end

local function of_name(args)
  for _, name in ipairs { "header", "ca" } do
    if args[name] then return stderr.misuse("--" .. name .. " is for a URL", "the entry of an upstream has its own credentials") end
  end
  local subject, what, hint
  if args["bearer-env"] then subject, what, hint = credentials.token(args["bearer-env"]) end
  if what then return stderr.misuse(what, hint) end
  local child, why = probe_upstreams.child(args.config or "moonpool.yaml")
  if not child then return stderr.wrong(why) end
  return probe_upstreams.converse(child, function(ask)
    local found, wrong = ask({ name = args[1], subject = subject }, "moonpool/doctor")
    if not found then return nil, wrong end
    if found.is_misuse then return stderr.misuse("--bearer-env is for a URL, or an upstream with auth.exchange", "the entry has its own credentials") end
    if found.names then return stderr.unknown_upstream(args[1], found.names) end
    return report(args[1], found, args)
  end)
end

return function(args)
  if not args[1] or args[2] then return stderr.misuse("doctor takes the name of an upstream, or a URL", "as in moonpool doctor github") end
  return (args[1]:find("://", 1, true) and of_url or of_name)(args)
end
