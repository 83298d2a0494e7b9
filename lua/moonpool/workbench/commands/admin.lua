-- moonpool reload, status, upstreams, log, drain, upgrade, switch, cluster, sessions, dashboard, tap and profile: requests to the admin
-- listener of a running gateway.

local characters = require "moonpool.runtime.characters"
local json = require "moonpool.json"
local records = require "moonpool.workbench.client.records"
local sign_ins = require "moonpool.workbench.format.sign_ins"
local stderr = require "moonpool.workbench.format.stderr"
local cluster = require "moonpool.workbench.format.cluster"
local duration = require "moonpool.workbench.format.duration"
local summary = require "moonpool.workbench.format.summary"
local switch = require "moonpool.workbench.format.switch"
local upgrade = require "moonpool.workbench.format.upgrade"
local upstreams = require "moonpool.workbench.format.upstreams"
local wire = require "moonpool.wire"

local asks = { status = { "GET", "/status" }, upstreams = { "GET", "/status" }, reload = { "POST", "/reload" },
  log = { "POST", "/api/log" }, drain = { "POST", "/api/drain" }, upgrade = { "POST", "/api/upgrade" }, dashboard = { "POST", "/api/code" },
  tap = { "GET", "" }, profile = { "POST", "" } }

local HEALTHY_S <const> = 5 -- seconds for a gateway to report that it is healthy; after that it counts as not healthy

local levels = { debug = true, info = true, warn = true, error = true }

-- The body of the request for `moonpool log`; nil, what is wrong and a hint if its options make no sense.
local function log_request(args)
  if not args.level then return nil, "log needs --level", "as in moonpool log --level debug --for 5m" end
  if not levels[args.level] then return nil, "'" .. args.level .. "' is no level", "the levels are debug, info, warn and error" end
  local seconds = duration(args["for"] or "5m")
  if not seconds or seconds > 86400 then return nil, "'" .. args["for"] .. "' is not a duration of at most 1d", "as in --for 5m" end
  return ('{"level":"%s","seconds":%d}'):format(args.level, seconds)
end

return function(args)
  local request, wrong, why
  local ask = asks[args.command]
  if args.command == "log" then
    request, wrong, why = log_request(args)
    if not request then return stderr.misuse(wrong, why) end
  elseif args.command == "switch" then
    ask, request, why = switch.request(args.words)
    if not ask then return stderr.misuse(request, why) end
  elseif args.command == "cluster" then
    ask, request, why = cluster.request(args.words)
    if not ask then return stderr.misuse(request, why) end
  end
  if args.command == "sessions" then
    ask, request, why = sign_ins.request(args)
    if not ask then return stderr.misuse(request, why) end
  end
  if args.healthy then
    if args.json then return stderr.misuse "--healthy and --json exclude each other" end
    ask = { "GET", "/healthz" }
  end
  if args.command == "drain" or args.command == "upgrade" then request = "{}" end
  if args.command == "dashboard" then
    request = "{}"
    if (args.address or ""):find "^unix:" then
      return stderr.misuse("browsers cannot open a Unix socket", "let admin.listen be an address, as in 127.0.0.1:7301")
    end
  end
  local target, what, hint, code = records.request(args, ask[1], ask[2], request)
  if not target then return stderr.wrong(what, hint, code) end
  if args.command == "tap" then return require "moonpool.workbench.commands.tap"(args, target) end
  if args.command == "profile" then return require "moonpool.workbench.commands.profile"(args, target) end
  target.seconds = args.healthy and HEALTHY_S or nil
  local status, body = wire.fetch(target)
  if not status then return stderr.wrong(stderr.unreached(args.address, body)) end
  if status == 401 then return stderr.wrong(stderr.no_token(args.address, args.token)) end
  if not args.json then body = body:gsub("[^\n]+", characters.shown) end -- another program may listen there
  local is_fine = status >= 200 and status < 300
  if is_fine and args.command == "dashboard" then return require "moonpool.workbench.commands.dashboard"(body, args, target.url:sub(1, -#ask[2] - 1)) end
  local late, see
  if is_fine and args.command == "switch" then late, see = switch.lateness(body) end
  if is_fine and args.command == "switch" and not args.json then body = switch.text(body) end
  if is_fine and args.command == "log" then late, see = switch.absence(body, "its level is as it was") end
  if is_fine and args.command == "log" then body = ("the level is %s for %s"):format(args.level, args["for"] or "5m") end
  if is_fine and args.command == "drain" then body = "it drains" end
  if args.command == "upgrade" and not args.json then
    if not is_fine then return stderr.wrong(upgrade.reason(body, status)) end
    body = upgrade.text(body)
  end
  local refusal = not is_fine and not args.json and body:match "^{" and json.decode(body)
  if type(refusal) == "table" and type(refusal.error) == "string" then return stderr.wrong(characters.shown(refusal.error)) end
  if body ~= "" and body:sub(-1) ~= "\n" then body = body .. "\n" end
  if is_fine and args.command == "upstreams" then return upstreams(body, args) end
  if is_fine and args.command == "cluster" then return cluster.print(body, args) end
  if is_fine and args.command == "sessions" then return sign_ins.print(body, args) end
  if is_fine then
    io.stdout:write(args.command == "status" and not args.json and not args.healthy and summary(body) or body)
    if late then return stderr.wrong(late, see) end
  elseif body == "" then
    return stderr.wrong("the gateway answered with " .. status)
  else
    io.stderr:write(body)
  end
  return is_fine and 0 or 1
end
