-- A gateway with a strict tool that runs Lua code from a spec, with the environment of any script.
--   local g <close> = code.start()
--   local value = code.run(client, "return store.get 'a'")
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"

local code = {}

code.script = [[
return tool { "Runs Lua.", input = { code = t.string }, function(args, call)
  _G.call = call
  local f = assert(load(args.code, "=code"))
  local value, why = f()
  if value == nil and why ~= nil then return nil, why end
  return json.encode { value = value }
end }]]

function code.start(options)
  options = options or {}
  options.scripts = options.scripts or {}
  options.scripts["tools/code.lua"] = code.script
  return gateway.start(options)
end

function code.params(text) return { name = "code", arguments = { code = text } } end

--- Returns the value that the code returned; or nil and why the tool failed.
function code.read(answer)
  local result = answer.result or error("no result: " .. cjson.encode(answer), 2)
  if result.isError then return nil, result.content[1].text end
  return assert(cjson.decode(result.content[1].text)).value
end

function code.run(client, text, seconds) return code.read(client:call("tools/call", code.params(text), seconds)) end

return code
