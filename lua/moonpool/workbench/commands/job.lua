-- moonpool job: runs one job now, in a child that loads the scripts.

local era = require "moonpool.protocol.era"
local json = require "moonpool.json"
local link = require "moonpool.workbench.client.link"
local stderr = require "moonpool.workbench.format.stderr"

local BAD_CONFIG = 78

return function(args)
  if not args[1] or args[2] then return stderr.misuse("job takes the name of one job", "as in moonpool job sweep; moonpool list shows them") end
  local child, why = link.child { "--specs", "--log-level", "info", args.config }
  if not child then return stderr.wrong(why) end
  local got, wrong = child.exchange({
    jsonrpc = "2.0", id = 1, method = "moonpool/job", params = {
      name = args[1],
      _meta = {
        ["io.modelcontextprotocol/protocolVersion"] = era.newest_stateless, ["io.modelcontextprotocol/clientCapabilities"] = json.object {},
        ["io.modelcontextprotocol/clientInfo"] = { name = "moonpool job", version = "1" },
      },
    },
  }, function() end)
  local code = child.close()
  if not got then return code == BAD_CONFIG and code or stderr.wrong(wrong) end
  if got.error then return stderr.wrong(got.error.message) end
  local result = got.result
  if result.what then return stderr.misuse(result.what, result.hint) end
  if result.why then return stderr.wrong("the job '" .. args[1] .. "' failed: " .. result.why) end
  if result.value ~= nil then print(type(result.value) == "string" and result.value or json.encode(result.value)) end
  return 0
end
