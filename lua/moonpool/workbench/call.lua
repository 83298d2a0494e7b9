-- moonpool call: one tool, once.

local credentials = require "moonpool.workbench.credentials"
local form = require "moonpool.workbench.form"
local json = require "moonpool.json"
local say = require "moonpool.workbench.say"
local session = require "moonpool.workbench.session"
local suggest = require "moonpool.suggest"
local values = require "moonpool.workbench.values"

local BAD_CONFIG = 78

local function on_note(message)
  local params = message.params or {}
  if message.method == "notifications/progress" then
    say.note(("progress %s%s%s"):format(params.progress, params.total and "/" .. params.total or "", params.message and "  " .. params.message or ""))
  elseif message.method == "notifications/message" then
    local data = type(params.data) == "string" and params.data or json.encode(params.data)
    say.note(("%s%s: %s"):format(params.level, params.logger and " " .. params.logger or "", data))
  end
end

-- The arguments, for the schema; or nil, what, hint.
local function read_arguments(args, schema, known)
  local found = {}
  if args.json then
    local value, why = json.decode(args.json)
    if type(value) ~= "table" or (value[1] ~= nil) then return nil, "--json needs an object: " .. (why or "this is none"), "as in --json '{\"a\": 1}'" end
    found = value
  end
  local properties = type(schema.properties) == "table" and schema.properties or {}
  for i = 2, #args do
    local name, text = args[i]:match "^([^=]+)=(.*)$"
    if not name then return nil, "'" .. args[i] .. "' is no argument", "write KEY=VALUE, as in " .. known .. " name=Ann" end
    if properties[name] == nil and schema.additionalProperties == false then
      return nil, "'" .. known .. "' has no argument '" .. name .. "'", suggest.hint(name, properties)
    end
    local value, why = values.read(text, properties[name] or {})
    if value == nil then return nil, name .. ": " .. why end
    found[name] = value
  end
  return found
end

-- -- what came back ----------------------------------------------------------------------------------------------------

local function size_of(base64)
  local padding = #base64:match "=*$"
  return #base64 // 4 * 3 - padding
end

local shown = {
  text = function(item) return item.text end,
  image = function(item) return ("[image %s, %d bytes]"):format(item.mimeType, size_of(item.data)) end,
  audio = function(item) return ("[audio %s, %d bytes]"):format(item.mimeType, size_of(item.data)) end,
  resource_link = function(item) return ("[link %s%s]"):format(item.uri, item.name and " " .. item.name or "") end,
  resource = function(item)
    local inside = item.resource
    if inside.text then return inside.text end
    return ("[blob %s %s, %d bytes]"):format(inside.uri, inside.mimeType or "application/octet-stream", size_of(inside.blob or ""))
  end,
}

local function print_result(result, args)
  if args.raw then
    print(json.encode(result))
    return
  end
  local to = result.isError and io.stderr or io.stdout
  if result.structuredContent ~= nil and not result.isError and #(result.content or {}) == 0 then
    to:write(json.encode(result.structuredContent), "\n")
  end
  for _, item in ipairs(result.content or {}) do
    local show = shown[item.type]
    local text = show and show(item) or json.encode(item)
    to:write(text, text:sub(-1) == "\n" and "" or "\n")
  end
  if result.task then to:write("[task ", result.task.taskId or "", "]\n") end
end

-- -- the call ----------------------------------------------------------------------------------------------------------

local function options_of(args, revision)
  local arguments = { "--log-level", "info" }
  if args.config then arguments[#arguments + 1] = args.config end
  return {
    revision = revision, url = args.url, headers = args.headers, ca = args.ca, arguments = arguments, on_note = on_note,
    on_ask = form.is_possible() and form.ask or nil,
  }
end

local function check_revision(wanted)
  local known = { session.newest, table.unpack(session.legacy) }
  for _, revision in ipairs(known) do
    if wanted == nil or revision == wanted then return true end
  end
  return nil, "there is no revision '" .. wanted .. "'", suggest.hint(wanted, known) or "revisions are " .. table.concat(known, ", ")
end

-- An open session and the tools it lists; or nil, an error of session, and the exit code of a child that ended.
local function try(args, revision)
  local s, why, hint, code = session.open(options_of(args, revision))
  if not s then return nil, { message = why, hint = hint }, code end
  local tools, wrong = s:list()
  if tools then return s, tools end
  return nil, wrong, s:close()
end

-- The same, in older revisions, too, where a gateway at a URL does not speak the newest and none was asked for.
local function open(args)
  local s, found, code = try(args, args.revision or session.newest)
  local is_final = s or not args.url or args.revision or found.is_gone and not found.status or found.status == 401 or found.status == 403
  if is_final then return s, found, code end
  for _, revision in ipairs { session.legacy[1], session.legacy[#session.legacy] } do
    local older, tools = try(args, revision)
    if older then return older, tools end
  end
  return nil, found, code
end

local function run(s, tools, args)
  local name = args[1]
  local tool = tools[name]
  if not tool then return say.misuse("there is no tool '" .. name .. "'", suggest.hint(name, tools) or "moonpool list says which there are") end
  local arguments, what, hint = read_arguments(args, tool.inputSchema, name)
  if not arguments then return say.misuse(what, hint) end
  local result, wrong = s:call(name, arguments)
  if not result then return say.wrong(wrong.message, wrong.hint) end
  print_result(result, args)
  return result.isError and 1 or 0
end

return function(args)
  io.stdout:setvbuf "line"
  if not args[1] then return say.misuse("call takes the name of a tool", "as in moonpool call greet name=Ann; moonpool list says which there are") end
  local fine, what, hint = check_revision(args.revision)
  if not fine then return say.misuse(what, hint) end
  args.headers, what, hint = credentials.read(args)
  if not args.headers then return say.misuse(what, hint) end
  local s, found, code = open(args)
  if not s then
    if code == BAD_CONFIG then return code end            -- the child has said why
    return say.wrong((args.url or "moonpool stdio") .. ": " .. tostring(found.message), found.hint)
  end
  local done = run(s, found, args)
  s:close()
  return done
end
