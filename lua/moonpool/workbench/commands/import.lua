-- moonpool import: adds the MCP servers of another program's configuration: Claude Desktop, Claude Code, Cursor, VS
-- Code, Windsurf, Gemini CLI, Cherry Studio.

local canonical = require "moonpool.runtime.canonical"
local config_file = require "moonpool.config_file"
local json = require "moonpool.json"
local new_file = require "moonpool.workbench.format.new_file"
local jsonc = require "moonpool.workbench.format.jsonc"
local stderr = require "moonpool.workbench.format.stderr"
local secrets = require "moonpool.workbench.format.secrets"
local sorted_keys = require "moonpool.runtime.sorted_keys"
local suggest = require "moonpool.runtime.suggest"
local yaml_entry = require "moonpool.workbench.format.yaml_entry"

local MAX_BYTES <const> = 1024 * 1024
local MAX_SERVERS <const> = 256

-- Members that say nothing about the connection, in the programs that have them.
local silent = { type = true, disabled = true, enabled = true, name = true, description = true, transport = true, ["$schema"] = true, id = true, gallery = true,
  version = true, command = true, args = true, env = true, cwd = true, url = true, headers = true, isActive = true }

-- The members that programs have for the URL of a server.
local urls <const> = { "url", "serverUrl", "httpUrl", "baseUrl", "serverURL", "baseURL" }
for _, member in ipairs(urls) do silent[member] = true end


local function is_table(value) return type(value) == "table" end

local function read(path)
  local file, why = io.open(path, "rb")
  if not file then return nil, why end
  local text
  text, why = file:read(MAX_BYTES + 1)
  file:close()
  if not text then return nil, why and path .. ": " .. why or path .. ": the file is empty" end
  if #text > MAX_BYTES then return nil, path .. ": larger than 1 MiB" end
  return text
end

-- The servers of a file with those of its projects (~/.claude.json): `projects` has a table with mcpServers for each
-- path. A name that another server has already is followed by that of the project's folder.
local function with_projects(servers, projects)
  for _, path in ipairs(is_table(projects) and sorted_keys(projects) or {}) do
    local own = is_table(projects[path]) and projects[path].mcpServers
    for _, name in ipairs(is_table(own) and sorted_keys(own) or {}) do
      servers = servers or {}
      local free, n = name, 1
      while servers[free] ~= nil and canonical(servers[free]) ~= canonical(own[name]) do
        free, n = name .. "-" .. (path:match "([^/\\]+)[/\\]*$" or "project") .. (n > 1 and "-" .. n or ""), n + 1
      end
      servers[free] = own[name]
    end
  end
  return servers
end

-- The servers of a decoded file, by name, and the inputs of VS Code by id; nil if it has none.
local function servers_of(found)
  if not is_table(found) then return nil end
  local mcp = is_table(found.mcp) and found.mcp or {}
  local servers = found.mcpServers or found.servers or mcp.servers or mcp.mcpServers or found["mcp.servers"] or found.context_servers
  servers = with_projects(is_table(servers) and servers or nil, found.projects)
  local inputs = {}
  for _, input in ipairs(is_table(found.inputs) and found.inputs or is_table(mcp.inputs) and mcp.inputs or {}) do
    if is_table(input) and type(input.id) == "string" then inputs[input.id] = input end
  end
  return is_table(servers) and servers or nil, inputs
end

-- -- values ------------------------------------------------------------------------------------------------------------

local function variable_of(text)
  local name = text:upper():gsub("[^%w]+", "_"):gsub("^_+", ""):gsub("_+$", "")
  return name:find "^%a" and name or "V_" .. name
end

local function message_of(text) return (text:gsub("[${}\r\n]", " "):gsub("%s+", " "):sub(1, 120)) end

-- The notes of one import: variables that must be set, and lines for the user.
local function new_notes() return { variables = {}, order = {}, lines = {}, values = {} } end

local function needs_variable(notes, variable, owner)
  if not notes.variables[variable] then
    notes.variables[variable] = owner
    notes.order[#notes.order + 1] = variable
  end
  return variable
end

-- A variable for a secret that is not copied. Two servers that use one name for two secrets get two variables.
local function variable_for(notes, server, name, value)
  local variable = variable_of(name)
  if notes.values[variable] and notes.values[variable] ~= value then variable = variable_of(server .. "_" .. name) end
  notes.values[variable] = value
  return needs_variable(notes, variable, server)
end

-- A reference to a new variable in the place of a secret, `what` in words, which is not copied.
local function hidden(context, server, name, value, what)
  local variable = variable_for(context.notes, server, name, value)
  context.notes.lines[#context.notes.lines + 1] = ("%s: %s is not copied: set %s"):format(server, what, variable)
  return "${" .. variable .. ":?set it}"
end

-- Puts moonpool's form of variables in the place of the other program's; a dollar that means itself is doubled.
local function translated(text, server, context)
  local notes, inputs = context.notes, context.inputs
  local function variable(inside)
    local env, default = inside:match "^env:([%a_][%w_]*):?%-?(.*)$"
    if not env then env, default = inside:match "^([%a_][%w_]*):%-(.*)$" end
    if env and default ~= "" then return "${" .. env .. ":-" .. default:gsub("[${}]", "") .. "}" end
    env = env or inside:match "^([%a_][%w_]*)$"
    if env == "workspaceFolder" or env == "workspaceRoot" then
      notes.lines[#notes.lines + 1] = server .. ": '${" .. env .. "}' is now '.', the folder of moonpool.yaml"
      return "."
    end
    if env == "userHome" then return "${HOME}" end
    if env == "pathSeparator" then return "/" end
    local input = inside:match "^input:(.+)$"
    if input then
      local about = inputs[input] and inputs[input].description
      return "${" .. needs_variable(notes, variable_of(input), server) .. ":?" .. (type(about) == "string" and message_of(about) or "set it") .. "}"
    end
    if env then return "${" .. needs_variable(notes, env, server) .. ":?set it}" end
    notes.lines[#notes.lines + 1] = server .. ": '${" .. inside .. "}' means nothing here and is kept as text"
    return "$${" .. inside .. "}"
  end
  local out, i = {}, 1
  while i <= #text do
    local inside = text:match("^%${([^}]*)}", i)
    local c = text:sub(i, i)
    if inside then
      out[#out + 1] = variable(inside)
      i = i + #inside + 3
    else
      out[#out + 1] = c == "$" and text:find("^%$[${]", i) and "$$" or c
      i = i + 1
    end
  end
  return table.concat(out)
end

-- The value of a variable, header or argument: moonpool's variables, and a variable where it looks like a secret.
local function copied(name, value, server, context, words)
  if secrets.is_pair(name, value) and not value:find "%${" then
    return hidden(context, server, words or name, value, name == "" and "an argument" or "the value of " .. name)
  end
  return translated(value, server, context)
end

local function text_of(value)
  if type(value) == "string" then return value end
  if type(value) == "number" or type(value) == "boolean" then return tostring(value) end
end

-- -- one server --------------------------------------------------------------------------------------------------------

-- A list of { name, value } in the order of the names; nil, why if it is no map of texts.
local function pairs_of(map, copy)
  local list = {}
  if map == nil or map == json.null then return list end
  if not is_table(map) then return nil, "it is not an object" end
  for _, name in ipairs(sorted_keys(map)) do
    local value = text_of(map[name])
    if type(name) ~= "string" or not value then return nil, "'" .. tostring(name) .. "' is not a text" end
    list[#list + 1] = { name, copy(name, value) }
  end
  return list
end

-- Takes the credential of an Authorization header out of the headers: a token, or the whole value of another scheme.
local function take_credential(entry, headers, server, context)
  for i, pair in ipairs(headers) do
    if pair[1]:lower() == "authorization" then
      table.remove(headers, i)
      local token = pair[2]:match "^[Bb][Ee][Aa][Rr][Ee][Rr]%s+(.+)$"
      local value = token or pair[2]
      value = value:find "%${" and translated(value, server, context)
        or hidden(context, server, server .. (token and "_token" or "_authorization"), value, "the value of Authorization")
      if token then entry.bearer = value else entry.authorization = value end
      return
    end
  end
end

-- A query member or password in a URL that looks like a secret becomes a variable.
local function url_of(url, server, context)
  local address, query = url:match "^([^?]*)%??(.*)$"
  if address:find "://[^/@]*@" then return nil, "its URL has a user or password, which is not supported" end
  address = translated(address:gsub("#.*$", ""), server, context)
  query = query:gsub("#.*$", ""):gsub("[^&]+", function(member)
    local name, value = member:match "^([^=$]+)=(.*)$"
    if not name then return translated(member, server, context) end
    if value ~= "" and not value:find "%${" and (secrets.is_name(name) or secrets.is_value(value)) then
      return name .. "=" .. hidden(context, server, server .. "_" .. name, value, "the " .. name .. " in its URL")
    end
    return name .. "=" .. translated(value, server, context)
  end)
  return address .. (query ~= "" and "?" .. query or "")
end

local function command_of(given, server, context)
  if given.command == nil then return nil, "it has neither 'command' nor 'url'" end
  if type(given.command) ~= "string" or given.command == "" then return nil, "its command is not a text" end
  local command, before = { translated(given.command, server, context) }, ""
  if given.args ~= nil and given.args ~= json.null and not is_table(given.args) then return nil, "its args are not a list" end
  for i, word in ipairs(is_table(given.args) and given.args or {}) do
    word = text_of(word)
    if not word then return nil, "argument " .. i .. " is not a text" end
    local name, value = word:match "^(%-*[%w_-]+)=(.+)$"
    local header, content = word:match "^([%w-]+):%s*(.+)$"
    if name and secrets.is_pair(name, value) then
      word = name .. "=" .. copied(name, value, server, context, server .. "_" .. name)
    elseif header and before:find "^%-" and secrets.is_pair(header, content) and not content:find "%${" then
      word = header .. ": " .. copied(header, content, server, context, server .. "_" .. header)
    elseif before:find "^%-" and not before:find "=" and not word:find "^%-" then
      word = copied(before:gsub("^%-+", ""), word, server, context, server .. "_" .. before)
    else
      word = copied("", word, server, context, server .. "_argument_" .. i)
    end
    command[#command + 1], before = word, word
  end
  return command
end

local function without_nulls(map)
  local made = {}
  for name, value in pairs(map) do
    if value ~= json.null then made[name] = value end
  end
  return made
end

-- A program that only passes messages on to a URL.
local function note_bridge(entry, context)
  local is_bridge
  for _, word in ipairs(entry.command) do
    is_bridge = is_bridge or word:find "^mcp%-remote$" or word:find "^mcp%-remote@"
    if is_bridge and word:find "^https?://" then
      local lines = context.notes.lines
      lines[#lines + 1] = entry.name .. ": mcp-remote is not needed: `url: " .. word:match "^[^?]*" .. "` connects without a program"
    end
  end
end

-- The members of a server in one form: those of a nested `transport` beside the others, no nulls, no empty command, and
-- the URL in `url`.
local function flat(given)
  local made = without_nulls(given)
  for name, value in pairs(is_table(made.transport) and without_nulls(made.transport) or {}) do
    if made[name] == nil or made[name] == "" then made[name] = value end
  end
  if made.command == "" then made.command = nil end
  for _, member in ipairs(urls) do
    local url = made[member]
    if type(url) == "string" and url ~= "" and (made.url == nil or made.url == "") then made.url = url end
  end
  return made
end

local function is_disabled(given)
  if not is_table(given) then return false end
  return given.disabled == true or given.enabled == false or given.isActive == false
end

-- The entry of one server; or nil, why.
local function entry_of(name, given, server, context)
  if not is_table(given) then return nil, "it is not an object" end
  given = flat(given)
  local entry, why = { name = server }
  local url = given.url
  local kind = given.type or given.transport
  if type(url) == "string" and url ~= "" and given.command == nil then
    if not url:find "^https?://" and not url:find "^%${" then return nil, "its URL is not of http or https" end
    entry.url, why = url_of(url, server, context)
    if not entry.url then return nil, why end
    local raw, wrong = pairs_of(given.headers, function(_, value) return value end)
    if not raw then return nil, "headers: " .. wrong end
    take_credential(entry, raw, server, context)
    for _, pair in ipairs(raw) do pair[2] = copied(pair[1], pair[2], server, context, server .. "_" .. pair[1]) end
    entry.headers = raw
    if kind == "sse" or not given.type and not given.httpUrl and url:find "/sse/?$" then entry.revision = "sse" end
  else
    entry.command, why = command_of(given, server, context)
    if not entry.command then return nil, why end
    note_bridge(entry, context)
    entry.env, why = pairs_of(given.env, function(variable, value) return copied(variable, value, server, context) end)
    if not entry.env then return nil, "env: " .. why end
    entry.cwd = type(given.cwd) == "string" and given.cwd ~= "" and translated(given.cwd, server, context) or nil
  end
  entry.is_disabled = is_disabled(given)
  local others = {}
  for _, member in ipairs(sorted_keys(given)) do
    if not silent[member] then others[#others + 1] = tostring(member) end
  end
  local about = name == server and server or server .. " ('" .. name:gsub("%c", " ") .. "')"
  if others[1] then context.notes.lines[#context.notes.lines + 1] = about .. ": left out: " .. table.concat(others, ", ") end
  return entry
end

local function name_of(name, taken)
  local base = name:lower():gsub("[^%l%d_-]+", "-"):gsub("^%-+", ""):gsub("%-+$", ""):sub(1, 32)
  if base == "" then base = "server" end
  local made, n = base, 1
  while taken[made] do
    n = n + 1
    made = base:sub(1, 31 - #tostring(n)) .. "-" .. n
  end
  taken[made] = true
  return made
end

-- -- the command -------------------------------------------------------------------------------------------------------

-- The names to import, in order; or nil, what, hint.
local function chosen(args, servers)
  local all, known = {}, {}
  for _, name in ipairs(sorted_keys(servers)) do
    if type(name) == "string" then
      all[#all + 1] = name
      known[name] = true
    end
  end
  if not args[2] then return all end
  local list = { table.unpack(args, 2) }
  for _, name in ipairs(list) do
    if not known[name] then
      return nil, "there is no server '" .. name .. "' in " .. args[1], suggest.hint(name, known) or "it has " .. table.concat(all, ", ")
    end
  end
  return list
end

-- A function that returns true if the configuration has this upstream, or a comment with its name where it would be a
-- comment.
local function find_present(path)
  local present, comments = config_file.upstream_names(path), {}
  for name in ("\n" .. (read(path) or "")):gmatch '\n *# "?([%l%d_-]+)"?:\r?%f[\r\n]' do comments[name] = true end
  return function(name, given)
    return present[name] or is_disabled(given) and comments[name]
  end
end

local function show(out, notes)
  for _, line in ipairs(notes.lines) do stderr.note("  " .. line) end
  if notes.order[1] then stderr.note("  set before the gateway starts: " .. table.concat(notes.order, ", ")) end
  io.stdout:write(out)
end

local function decoded(path)
  local text, why = read(path)
  if not text then return nil, why end
  local found, wrong = json.decode(jsonc(text))
  if found == nil then return nil, path .. ": not JSON: " .. tostring(wrong) end
  return found
end

return function(args)
  if not args[1] then return stderr.misuse("import takes a file", "as in moonpool import ~/.config/Claude/claude_desktop_config.json") end
  local found, why = decoded(args[1])
  if found == nil then return stderr.wrong(why, "name the JSON file of a client, as in ~/.config/Claude/claude_desktop_config.json") end
  local servers, inputs = servers_of(found)
  if not servers then return stderr.wrong(args[1] .. " has no MCP servers", "they are in `mcpServers`, or in `servers` for VS Code") end
  local names, what, hint = chosen(args, servers)
  if not names then return stderr.misuse(what, hint) end
  if #names > MAX_SERVERS then return stderr.wrong(args[1] .. " has more than " .. MAX_SERVERS .. " servers") end
  local context, entries, live, taken, left_out, kept = { notes = new_notes(), inputs = inputs }, {}, {}, {}, 0, 0
  local path = args.config or "moonpool.yaml"
  local is_present = find_present(path)
  for _, name in ipairs(names) do
    local server = name_of(name, taken)
    local entry, wrong
    local stays = is_present(server, servers[name])
    if not stays then entry, wrong = entry_of(name, servers[name], server, context) end
    if stays then
      kept = kept + 1
      stderr.note("  " .. server .. " is in " .. path .. " already and stays as it is")
    elseif entry then
      entries[#entries + 1] = yaml_entry(entry)
      if not entry.is_disabled then live[#live + 1] = server end
    else
      left_out = left_out + 1
      stderr.note(("  %s is left out: %s"):format(name:gsub("%c", " "), wrong))
    end
  end
  if not entries[1] then
    if kept > 0 and left_out == 0 then return 0 end
    return stderr.wrong("nothing to import from " .. args[1], names[1] and "a server has a command, or a url, as a client's file has them"
      or "its list of servers is empty: is it the file that the client uses?")
  end
  local text = table.concat(entries)
  if args["dry-run"] then
    show("upstreams:\n  " .. text:gsub("\n(.)", "\n  %1"), context.notes)
    return left_out > 0 and 1 or 0
  end
  local added, report = new_file(path, function() return config_file.add_upstreams(path, text, live, false) end)
  if not added then
    io.stderr:write(report)
    return 78
  end
  show(("added %s to %s\n"):format(live[1] and table.concat(live, ", ") or "comments alone", path), context.notes)
  stderr.note("  next: moonpool check --connect " .. path)
  return left_out > 0 and 1 or 0
end
