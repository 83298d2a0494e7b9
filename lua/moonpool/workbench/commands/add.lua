-- moonpool add: adds one upstream to the configuration.

local try_upstream = require "moonpool.workbench.client.try_upstream"
local config_file = require "moonpool.config_file"
local new_file = require "moonpool.workbench.format.new_file"
local stderr = require "moonpool.workbench.format.stderr"
local secrets = require "moonpool.workbench.format.secrets"
local yaml_entry = require "moonpool.workbench.format.yaml_entry"

local revisions = { auto = true, modern = true, legacy = true, sse = true }

local function is_name(name) return #name >= 1 and #name <= 32 and not name:find "[^%l%d_-]" end

-- A list of { name, value } from options such as 'Name: value' and NAME=value; or nil, what, hint.
local function pairs_of(list, pattern, what, as_in)
  local made = {}
  for _, text in ipairs(list or {}) do
    local name, value = text:match(pattern)
    if not name then return nil, "'" .. text .. "' is not " .. what, as_in end
    if secrets.is_pair(name, value) then
      return nil, name .. " seems to contain a secret", ("put it in a variable of the gateway, and write '${%s:?set it}' in its place")
        :format(name:upper():gsub("[^%w]", "_"))
    end
    made[#made + 1] = { name, value }
  end
  return made
end

-- The words of the program; or nil, what, hint.
local function command_of(args)
  local command = { table.unpack(args, 2) }
  for i, word in ipairs(command) do
    local option = i > 1 and command[i - 1]:match "^(%-[^=]*)$"
    local name, value = word:match "^([%w_-]+)=(.*)$"
    local is_secret = secrets.is_value(word) or name and secrets.is_pair(name, value)
      or option and not word:find "^%-" and secrets.is_name(option) and secrets.is_pair(option, word)
    if is_secret then
      return nil, "argument " .. i .. " of the program seems to contain a secret",
        "pass it in a variable: --env 'NAME=${NAME:?set it}', or write '${NAME:?set it}' in its place"
    end
  end
  return command
end

-- The entry from the command line; or nil, what, hint.
local function entry_of(args)
  local name = args[1]
  if not name or not args[2] then return nil, "add takes a name and a URL, or a name, -- and a command", "as in moonpool add files -- npx some-server" end
  if not is_name(name) then return nil, "'" .. name .. "' cannot be the name of an upstream", "1 to 32 lower-case letters, digits, '_' and '-'" end
  if args.revision and not revisions[args.revision] then return nil, "there is no revision '" .. args.revision .. "'", "auto, modern, legacy or sse" end
  local entry = { name = name, prefix = args.prefix, revision = args.revision ~= "auto" and args.revision or nil }
  local what, hint
  if args[2]:find "^https?://" then
    entry.url = args[2]
    if args[3] then return nil, "unexpected: '" .. args[3] .. "'", "an upstream with a URL has no further words" end
    if args.env then return nil, "--env is for a command", "headers and --bearer-env are for a URL" end
    if secrets.is_value(entry.url) then return nil, "the URL seems to contain a secret", "write '${NAME:?set it}' in its place, in single quotes" end
    local variable = args["bearer-env"]
    if variable and not variable:find "^[%a_][%w_]*$" then
      return nil, "'" .. variable .. "' is not the name of a variable", "as in --bearer-env GITHUB_TOKEN"
    end
    entry.bearer = variable and "${" .. variable .. ":?set it}"
    entry.headers, what, hint = pairs_of(args.every.header, "^([%w!#$%%&'*+.^_`|~-]+):%s*(.-)%s*$", "a header", "as in --header 'x-api-key: ${KEY}'")
    if not entry.headers then return nil, what, hint end
    return entry
  end
  if args[2]:find "^%a[%w+.-]*://" then return nil, "'" .. args[2] .. "' is not a URL of an MCP server", "a URL begins with https:// or http://" end
  if args["bearer-env"] or args.header then return nil, "--bearer-env and --header are for a URL", "pass credentials of a program by --env" end
  entry.env, what, hint = pairs_of(args.every.env, "^([%a_][%w_]*)=(.*)$", "a variable and its value", "as in --env 'KEY=${KEY:?set it}'")
  if not entry.env then return nil, what, hint end
  entry.command, what, hint = command_of(args)
  if not entry.command then return nil, what, hint end
  return entry
end

return function(args)
  local entry, what, hint = entry_of(args)
  if not entry then return stderr.misuse(what, hint) end
  local path, text = args.config or "moonpool.yaml", yaml_entry(entry)
  if config_file.upstream_names(path)[entry.name] then
    return stderr.wrong(path .. " has an upstream '" .. entry.name .. "' already", "choose another name, or edit its entry")
  end
  local edited, report = config_file.add_upstreams(path, text, { entry.name }, true)
  if not edited then
    io.stderr:write(report)
    if args["dry-run"] then io.stdout:write("upstreams:\n  ", (text:gsub("\n(.)", "\n  %1"))) end
    return 78
  end
  local variable = args["bearer-env"]
  if variable and not args.untried and not os.getenv(variable) then
    return stderr.wrong("the environment variable " .. variable .. " is not set",
      "export " .. variable .. "=… first; --untried adds the entry without connecting", 78)
  end
  if not args.untried then
    local code = try_upstream(entry, path)
    if code ~= 0 then
      stderr.note("  " .. path .. " is left as it is; --untried adds the entry without connecting")
      return code
    end
  end
  if args["dry-run"] then
    io.stdout:write("upstreams:\n  ", (text:gsub("\n(.)", "\n  %1")))
    return 0
  end
  local added
  added, report = new_file(path, function() return config_file.add_upstreams(path, text, { entry.name }, false) end)
  if not added then
    io.stderr:write(report)
    return 1
  end
  print("added " .. entry.name .. " to " .. path)
  return 0
end
