-- upstream "NAME" in scripts: calls of an upstream by its own names. A handle works for the call in which it is used:
-- its principal decides which channel is taken. Failures are `nil, why`. Policies, which guard clients, do not apply;
-- `only` and `hide` of the upstream do.

local auth = require "moonpool.upstream.auth"
local catalogue = require "moonpool.upstream.catalogue"
local config = require "moonpool.upstream.config"
local errors = require "moonpool.upstream.errors"
local forward = require "moonpool.upstream.forward"
local frozen = require "moonpool.runtime.frozen"
local host = require "moonpool.host"
local json = require "moonpool.json"
local served_names = require "moonpool.upstream.served_names"
local members = require "moonpool.runtime.members"
local pins = require "moonpool.upstream.pins"
local problem = require "moonpool.runtime.diagnostic"
local scripts = require "moonpool.upstream.scripts"
local suggest = require "moonpool.runtime.suggest"
local outside_hooks = require "moonpool.runtime.outside_hooks"

local script_handle = {}

--- The function that answers in place of an upstream, in specs of scripts: by name, f(method, name, args) -> value, or
--- nil, why.
script_handle.stand_ins = {}

--- Names of upstreams that scripts may use although no such upstream exists: those of the configuration, while recorded
--- calls are replayed.
script_handle.names = {}

local methods = members.of_object {}
local kind = { name = "moonpool.upstream", what = "an upstream", tostring = function(made) return "upstream '" .. made.name .. "'" end }

local function record_of(self)
  if not frozen.is(self, kind) then error("use a colon: upstream(\"NAME\"):call(…)", 3) end
  return frozen.content(self)
end

local function current_call()
  local call = host.call.current()
  if not call then problem.raise(3, "an upstream can be called only by handlers: no call is being answered while scripts load") end
  return call
end

--- Waits until the lists of an upstream were read, or could not be read, at most for its `list_wait`. If the upstream
--- gets the token of each caller, waits for the lists of this caller. federation/federated.lua sets the function;
--- without it there is nothing to wait for.
function script_handle.settle(_, _) end

-- The catalogue of an upstream, for the caller if its own token is sent; and a failure if the caller has none.
local function listed_of(record)
  local identity, denied = auth.identity(record, host.call.current())
  if not identity then return catalogue.of(record.name, catalogue.class), denied end
  script_handle.settle(record, current_call())
  return catalogue.of(record.name, catalogue.of_caller(identity.owner))
end

-- The entry of the catalogue for a thing, if it has one; and false if the upstream's filters hide it, or if it is
-- withheld.
local function entry_of(record, list, key)
  if not served_names.is_shown(record, key) then return nil, false end
  for _, entry in ipairs(listed_of(record).entries) do
    if entry.kind == list and entry.key == key then return entry, pins.why(record.name, entry) == nil end
  end
  return nil, list == "resources" or not pins.has(record.name)       -- a resource may come from an approved template
end

-- The texts of a list of content blocks, joined by line ends.
local function text_of(blocks)
  local texts = {}
  for _, block in ipairs(blocks) do
    if type(block) == "table" and block.type == "text" and type(block.text) == "string" then texts[#texts + 1] = block.text end
  end
  return table.concat(texts, "\n")
end

-- A text that differs for arguments that differ.
local function hashed(args)
  return (host.digest.sum("sha256", json.encode(args)):sub(1, 16):gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

local function why_of(record, failed, err)
  if failed then return errors.of(record, failed).message end
  return type(err) == "table" and type(err.message) == "string" and err.message or "upstream '" .. record.name .. "' gave an error"
end

local call_options = { timeout = "number" }

local function read_options(options)
  local made = {}
  for name, value in pairs(options or {}) do
    if not call_options[name] then
      problem.raise(3, "call has no option '" .. tostring(name) .. "'", suggest.listed(tostring(name), { "timeout" }, "options"))
    elseif type(value) ~= call_options[name] then
      problem.raise(3, "'" .. name .. "' must be a " .. call_options[name] .. ", got a " .. type(value), "as in timeout = 20 * seconds")
    end
    made[name] = value
  end
  return made
end

local function result_of(result)
  return {
    text = text_of(result.content), structured = result.structuredContent, content = result.content, is_error = result.isError == true,
    raw = result,
  }
end

-- Calls `real`, which asks the upstream; if calls are recorded or replayed, through the hook for that.
local function watch(record, what, called, args, real)
  if outside_hooks.upstream then return outside_hooks.upstream(record.name, what, called, args, real) end
  return real()
end

local function call_now(record, name, args, options)
  local entry, is_shown = entry_of(record, "tools", name)
  if not is_shown then return nil, "upstream '" .. record.name .. "' has no tool '" .. name .. "'" end
  local call, script = current_call(), scripts.of(record.name)
  local result, failed, err = forward.try_tool(record, name, entry and entry.facts or {}, args, call, {
    timeout = options.timeout, headers = script and script.headers_of and script.headers_of(call), is_quiet = true,
    digest = function() return hashed(args) end,
  })
  if not result then return nil, why_of(record, failed, err) end
  if result.isError == true then return nil, text_of(result.content) end
  return result_of(result)
end

--- handle:call(tool, args, options): { text, structured, content, is_error, raw }; or nil, why.
function methods.call(self, name, args, options)
  local record = record_of(self)
  if type(name) ~= "string" then problem.raise(2, "call takes the name of a tool, got a " .. type(name), "as in gh:call(\"search\", { q = \"x\" })") end
  if args ~= nil and type(args) ~= "table" then problem.raise(2, "the arguments of '" .. name .. "' must be a table, got a " .. type(args)) end
  options, args = read_options(options), args or {}
  local stand_in = script_handle.stand_ins[record.name]
  if stand_in then return stand_in("call", name, args) end
  return watch(record, "call", name, args, function() return call_now(record, name, args, options) end)
end

local function read_now(record, uri)
  local _, is_shown = entry_of(record, "resources", uri)
  if not is_shown then return nil, "upstream '" .. record.name .. "' has no resource '" .. uri .. "'" end
  local result, failed, err = forward.try_resource(record, uri, current_call())
  if not result then return nil, why_of(record, failed, err) end
  local text
  for _, part in ipairs(result.contents) do text = text or (type(part.text) == "string" and part.text or nil) end
  return { text = text, contents = result.contents, raw = result }
end

--- handle:read(uri): { text, contents, raw }; or nil, why. `text` is that of the first part that has one.
function methods.read(self, uri)
  local record = record_of(self)
  if type(uri) ~= "string" then problem.raise(2, "read takes a URI, got a " .. type(uri)) end
  local stand_in = script_handle.stand_ins[record.name]
  if stand_in then return stand_in("read", uri) end
  return watch(record, "read", uri, nil, function() return read_now(record, uri) end)
end

local function prompt_now(record, name, args)
  local _, is_shown = entry_of(record, "prompts", name)
  if not is_shown then return nil, "upstream '" .. record.name .. "' has no prompt '" .. name .. "'" end
  local result, failed, err = forward.try_prompt(record, name, args, current_call())
  if not result then return nil, why_of(record, failed, err) end
  local blocks = {}
  for i, message in ipairs(result.messages) do blocks[i] = message.content end
  return { text = text_of(blocks), messages = result.messages, raw = result }
end

--- handle:prompt(name, args): { text, messages, raw }; or nil, why.
function methods.prompt(self, name, args)
  local record = record_of(self)
  if type(name) ~= "string" then problem.raise(2, "prompt takes the name of a prompt, got a " .. type(name)) end
  local stand_in = script_handle.stand_ins[record.name]
  if stand_in then return stand_in("prompt", name, args or {}) end
  return watch(record, "prompt", name, args or {}, function() return prompt_now(record, name, args or {}) end)
end

local function tools_now(record)
  local list = json.array {}
  local listed, denied = listed_of(record)
  if denied then return nil, errors.of(record, denied).message end
  if not listed.facts.revision and not auth.is_personal(record) then
    current_call()
    script_handle.settle(record)
    listed = catalogue.of(record.name, catalogue.class)
  end
  if not listed.facts.revision then return nil, ("upstream '%s' has not listed its tools: it is not there, or has not answered yet"):format(record.name) end
  for _, entry in ipairs(listed.entries) do
    if entry.kind == "tools" and served_names.is_shown(record, entry.key) and not pins.why(record.name, entry) then
      list[#list + 1] = json.decode(entry.definition)
    end
  end
  return list
end

--- handle:tools(): the definitions of the tools that the upstream listed and its filters show, with its own names; or
--- nil, why, if it has listed nothing. Waits only while nothing was listed yet.
function methods.tools(self)
  local record = record_of(self)
  if script_handle.stand_ins[record.name] then return json.array {} end
  return watch(record, "tools", nil, nil, function() return tools_now(record) end)
end

--- handle:is_up(): false while calls are refused because the upstream is not there.
function methods.is_up(self)
  local record = record_of(self)
  if script_handle.stand_ins[record.name] then return true end
  return watch(record, "is_up", nil, nil, function()
    for _, one in ipairs(host.upstream.status()) do
      if one.name == record.name then return one.state ~= "down" and one.state ~= "barred" or one.retry_after == 0 end
    end
    return false
  end)
end

local made = {}

--- upstream "NAME": the handle of an upstream; upstream { … }: what a file of scripts/upstreams/ returns.
function script_handle.of(given)
  if type(given) == "table" then return scripts.new(given) end
  if type(given) ~= "string" then problem.raise(2, "upstream takes the name of an upstream, got a " .. type(given), "as in upstream \"github\"") end
  local record = config.by_name[given] or script_handle.names[given] and { name = given }
  if not record and not script_handle.stand_ins[given] then
    local known = {}
    for _, one in ipairs(config.list) do known[#known + 1] = one.name end
    problem.raise(2, "there is no upstream '" .. given .. "'", suggest.hint(given, known) or "`upstreams:` in the config names them")
  end
  if not made[given] then made[given] = frozen.new(kind, methods, record or { name = given }) end
  return made[given]
end

--- The value of handle:call for a result in the base revision.
script_handle.result_of = result_of

return script_handle