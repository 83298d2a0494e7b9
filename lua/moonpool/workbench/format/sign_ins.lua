-- moonpool sessions: the sign-ins at a running gateway; ends those of a user.

local characters = require "moonpool.runtime.characters"
local json = require "moonpool.json"
local put_table = require "moonpool.workbench.format.table"
local stderr = require "moonpool.workbench.format.stderr"

local sign_ins = {}

local function escaped(text) return (text:gsub("[^%w%-._~]", function(c) return ("%%%02X"):format(c:byte()) end)) end

--- The method, path and body of the request for the options of the command; nil, an error text and a hint if they are
--- wrong.
function sign_ins.request(args)
  if args.user == "" then return nil, "--user needs a name", "`moonpool sessions` names the users" end
  if args.revoke and not args.user then return nil, "--revoke needs --user", "as in moonpool sessions --user ann --revoke" end
  if args.revoke then return { "POST", "/api/sign-ins/end" }, json.encode { user = args.user } end
  return { "GET", "/api/sign-ins" .. (args.user and "?search=" .. escaped(args.user) or "") }
end

local function time_of(seconds) return os.date("!%Y-%m-%d %H:%MZ", seconds) end

--- Prints the answer of the gateway. The exit code.
function sign_ins.print(body, args)
  local answer = json.decode(body)
  if answer.is_off then return stderr.wrong("nobody signs in at this gateway", "its configuration has no sign_in: see docs/how-to/sign-in.md") end
  if args.revoke then
    io.stdout:write(args.json and body or ("%d of the user's sign-ins ended\n"):format(answer.ended))
    return answer.ended > 0 and 0 or 1
  end
  local list = json.array {}
  for _, one in ipairs(answer.sign_ins) do list[#list + 1] = (not args.user or one.user == args.user) and one or nil end
  answer.sign_ins = list
  if args.json then
    io.stdout:write(json.encode(answer), "\n")
    return 0
  end
  local rows = { { "user", "client", "since", "used", "sign-in" } }
  for _, one in ipairs(answer.sign_ins) do
    rows[#rows + 1] = { characters.shown(one.user), characters.shown(one.name or one.client), time_of(one.since), time_of(one.used), one.sign_in }
  end
  io.stdout:write(rows[2] and put_table(rows) or "nobody is signed in\n")
  if answer.next then io.stdout:write(("the last %d of %d\n"):format(#answer.sign_ins, answer.total)) end
  return 0
end

return sign_ins
