-- Opens a session for the commands that use a server: a child that serves the scripts of a configuration, or a server at a URL.

local answers = require "moonpool.workbench.answers"
local credentials = require "moonpool.workbench.credentials"
local era = require "moonpool.protocol.era"
local json = require "moonpool.json"
local rpc_error = require "moonpool.runtime.rpc_error"
local say = require "moonpool.workbench.say"
local session = require "moonpool.workbench.session"
local suggest = require "moonpool.runtime.suggest"

local BAD_CONFIG, INTERRUPTED = 78, 130

local connect = {}

local function on_note(message)
  local params = message.params or {}
  if message.method == "notifications/progress" then
    say.note(("progress %s%s%s"):format(params.progress, params.total and "/" .. params.total or "", params.message and "  " .. params.message or ""))
  elseif message.method == "notifications/message" then
    local data = type(params.data) == "string" and params.data or json.encode(params.data)
    say.note(("%s%s: %s"):format(params.level, params.logger and " " .. params.logger or "", data))
  end
end

local function options_of(args, revision, on_ask)
  local arguments = { "--log-level", "info" }
  if args.config then arguments[#arguments + 1] = args.config end
  return { revision = revision, url = args.url, headers = args.headers, ca = args.ca, arguments = arguments, on_note = on_note, on_ask = on_ask }
end

local function check_revision(wanted)
  local known = era.dates
  for _, revision in ipairs(known) do
    if wanted == nil or revision == wanted then return true end
  end
  return nil, "there is no revision '" .. wanted .. "'", suggest.hint(wanted, known) or "revisions are " .. table.concat(known, ", ")
end

-- Opens a session: the session and the result of `first`; or nil, the error, and the exit code of a child that ended.
local function try(args, revision, on_ask, first)
  local s, why, hint, code = session.open(options_of(args, revision, on_ask))
  if not s then return nil, { message = why, hint = hint }, code end
  local value, wrong = first(s)
  if value then return s, value end
  return nil, wrong, s:close()
end

-- HTTP statuses by which a gateway shows that it supports only older revisions. Others (401, 403, 429, 5xx) do not depend on the revision.
local from_older = { [400] = true, [404] = true, [405] = true, [406] = true, [415] = true }

-- Opens a session like `try`. Without --revision it tries older revisions, too, if the server at the URL does not support the newest.
local function open(args, on_ask, first)
  local s, found, code = try(args, args.revision or era.newest_stateless, on_ask, first)
  local is_final = s or not args.url or args.revision or found.code == rpc_error.internal
    or found.is_gone and not from_older[found.status]
  if is_final then return s, found, code end
  for _, revision in ipairs { era.newest_stateful, era.dates[#era.dates] } do
    local older, value = try(args, revision, on_ask, first)
    if older then return older, value end
  end
  return nil, found, code
end

--- Returns the server's description of itself; nil and an error if the server does not support the revision.
function connect.discover(s)
  if not s.facts.stateless then return s.capabilities end
  local found, why = s:request "server/discover"
  if not found then return nil, why end
  s.capabilities = found.capabilities or {}
  return s.capabilities
end

--- Prints the error of a session and returns the exit code for it.
function connect.failed(wrong)
  if wrong.message == "interrupted" then return say.wrong("interrupted: the request is cancelled", nil, INTERRUPTED) end
  return say.wrong(wrong.message, wrong.hint)
end

--- Opens a session by the options in `args` and returns the exit code of use(session, value). `first`, by default connect.discover, is the
--- first request and decides if the server supports the revision: it returns `value`; or nil and an error.
function connect.run(args, first, use)
  io.stdout:setvbuf "line"
  local fine, what, hint = check_revision(args.revision)
  if not fine then return say.misuse(what, hint) end
  local on_ask
  on_ask, what, hint = answers.read(args)
  if what then return say.misuse(what, hint) end
  args.headers, what, hint = credentials.read(args)
  if not args.headers then return say.misuse(what, hint) end
  local s, found, code = open(args, on_ask, first or connect.discover)
  if not s then
    if code == BAD_CONFIG then return code end            -- the child has printed the reason
    if found.message == "interrupted" then return connect.failed(found) end
    return say.wrong((args.url or "moonpool stdio") .. ": " .. tostring(found.message), found.hint)
  end
  local done = use(s, found)
  s:close()
  return done
end

return connect
