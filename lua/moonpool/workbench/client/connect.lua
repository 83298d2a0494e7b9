-- Opens a session for the commands that use a server: a child that serves the scripts of a configuration, or a server
-- at a URL.

local scripted_answers = require "moonpool.workbench.client.scripted_answers"
local credentials = require "moonpool.workbench.client.credentials"
local era = require "moonpool.protocol.era"
local json = require "moonpool.json"
local place_of = require "moonpool.workbench.client.address"
local stderr = require "moonpool.workbench.format.stderr"
local session = require "moonpool.workbench.client.session"
local suggest = require "moonpool.runtime.suggest"

local BAD_CONFIG, INTERRUPTED = 78, 130

local connect = {}

local function on_note(message)
  local params = message.params or {}
  if message.method == "notifications/progress" then
    stderr.note(("progress %s%s%s"):format(params.progress, params.total and "/" .. params.total or "", params.message and "  " .. params.message or ""))
  elseif message.method == "notifications/message" then
    local data = type(params.data) == "string" and params.data or json.encode(params.data)
    stderr.note(("%s%s: %s"):format(params.level, params.logger and " " .. params.logger or "", data))
  end
end

local function options_of(args, on_ask)
  local options = { revision = args.revision, headers = args.headers, on_note = on_note, on_ask = on_ask }
  if args.url or args.every.server then
    options.server = { url = args.url, ca = args.ca, command = args.every.server }
  else
    options.revision, options.arguments = args.revision or era.newest_stateless, { "--log-level", "info", args.config }
  end
  return options
end

local function check_revision(wanted)
  local known = era.dates
  for _, revision in ipairs(known) do
    if wanted == nil or revision == wanted then return true end
  end
  return nil, "there is no revision '" .. wanted .. "'", suggest.hint(wanted, known) or "revisions are " .. table.concat(known, ", ")
end

-- Opens a session: the session and the result of `first`; or nil, the error, and the exit code of a child that ended.
local function open(args, on_ask, first)
  local s, why, hint, code = session.open(options_of(args, on_ask))
  if not s then return nil, { message = why, hint = hint }, code end
  local value, wrong = first(s)
  if value then return s, value end
  return nil, wrong, s:close()
end

--- Returns the server's description of itself; nil and an error if the server does not support the revision.
function connect.discover(s)
  if s.capabilities then return s.capabilities end
  local found, why = s:request "server/discover"
  if not found then return nil, why end
  s.capabilities = found.capabilities or {}
  return s.capabilities
end

-- Makes the URL whole. Returns what, hint if it is none, or if its certificates cannot be read.
local function check_server(args)
  if args.every.server then
    args.shown = args.every.server[1]
    if args.url then return "--url and a command exclude each other", "name the server either by --url URL, or by -- and its command" end
  end
  if not args.url then return nil end
  local place, what, hint = place_of(args.url)
  if not place then return what, hint end
  if place.unix then return "not a URL: '" .. args.url .. "'", "as in http://127.0.0.1:7300/mcp" end
  if args.ca and not place.is_secure then return "--ca is for a URL that begins with https://", "write https://, or leave --ca out" end
  args.shown, args.url = args.url, place.origin .. place.path
end

--- Prints the error of a session and returns the exit code for it.
function connect.failed(wrong)
  if wrong.message == "interrupted" then return stderr.wrong("interrupted: the request is cancelled", nil, INTERRUPTED) end
  local is_missing = wrong.message:find "^unknown " or wrong.message:find "^this server has no "
  return stderr.wrong(wrong.message, wrong.hint or is_missing and "moonpool list shows what there is" or nil)
end

--- Prints the result of a request: as JSON for the option --raw, else by show(result). Returns the exit code; that of the
--- error `wrong` if there is no result.
function connect.print(args, show, result, wrong)
  if not result then return connect.failed(wrong) end
  if args.raw then
    print(json.encode(result))
  else
    show(result)
  end
  return 0
end

--- Opens a session by the options in `args` and returns the exit code of use(session, value). `first`, by default
--- connect.discover, is the first request and decides if the server supports the revision: it returns `value`; or nil
--- and an error.
function connect.run(args, first, use)
  io.stdout:setvbuf "line"
  local fine, what, hint = check_revision(args.revision)
  if not fine then return stderr.misuse(what, hint) end
  local on_ask
  on_ask, what, hint = scripted_answers.read(args)
  if what then return stderr.misuse(what, hint) end
  what, hint = check_server(args)
  if what then return stderr.misuse(what, hint) end
  args.headers, what, hint = credentials.read(args)
  if not args.headers then return stderr.misuse(what, hint) end
  local s, found, code = open(args, on_ask, first or connect.discover)
  if not s then
    if code == BAD_CONFIG then return code end            -- the child has printed the reason
    if found.message == "interrupted" then return connect.failed(found) end
    return stderr.wrong((args.shown or "moonpool stdio") .. ": " .. tostring(found.message), found.hint)
  end
  local done = use(s, found)
  s:close()
  return done
end

return connect
