-- A gateway whose tool runs Lua code given by a spec with the library's own C functions, which scripts cannot reach.
--   local g <close> = trusted.start()
--   local one, two = trusted.workers(g)                  a 2026-07-28 client on each of two workers
--   trusted.run(one, "return host.time.now() > 0")            code sees host, call, hearing; `kept`, a table that persists; `vm`, the name of its VM
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"

local trusted = {}

local script = [[
local host, hearing = package.loaded["moonpool.host"], package.loaded["moonpool.runtime.bus"]
local kept, vm = {}, ("%02x"):rep(8):format(host.random.bytes(8):byte(1, 8))
return tool { "Runs Lua.", input = { code = t.string }, function(args, call)
  local f = assert(load("local host, call, hearing, kept, vm = ... " .. args.code, "=code"))
  return json.encode { vm = vm, value = f(host, call, hearing, kept, vm) }
end }]]

--- Starts a gateway like gateway.start, with the same `options`. A configuration that is a text must have `scripts:
--- {trust: full}`.
function trusted.start(options)
  options = options or {}
  options.scripts = options.scripts or {}
  options.scripts["tools/lua.lua"] = script
  options.config = options.config or {}
  if type(options.config) == "table" then options.config.scripts = { path = "scripts", trust = "full" } end
  return gateway.start(options)
end

--- The params of a tools/call that runs `code`.
function trusted.code(code, meta)
  return { name = "lua", arguments = { code = code }, _meta = meta }
end

--- Reads an answer of the tool: the value, and the name of the VM; an error fails the spec.
function trusted.read(answer)
  local result = answer.result
  if not result or result.isError then error("the code failed: " .. cjson.encode(answer), 2) end
  local said = assert(cjson.decode(result.content[1].text))
  return said.value, said.vm
end

--- Runs `code` on the worker that the client is connected to; returns the result, and the name of the worker's VM.
function trusted.run(client, code, seconds)
  local answer = client:call("tools/call", trusted.code(code), seconds)
  return trusted.read(answer)
end

--- A client of 2026-07-28 for each of `count` (2) workers.
function trusted.workers(g, count)
  local list, by_vm = {}, {}
  for _ = 1, 200 do
    local client = g:client "2026-07-28"
    local _, vm = trusted.run(client, "return true")
    if by_vm[vm] then
      client:close()
    else
      by_vm[vm] = client
      list[#list + 1] = client
      client.vm = vm
      if #list == (count or 2) then return table.unpack(list) end
    end
  end
  error "the kernel gives all connections to one worker"
end

return trusted
