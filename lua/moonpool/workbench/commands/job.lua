-- moonpool job: runs one job now, in a child that loads the scripts.

local json = require "moonpool.json"
local link = require "moonpool.workbench.client.link"
local stderr = require "moonpool.workbench.format.stderr"

return function(args)
  if not args[1] or args[2] then return stderr.misuse("job takes the name of one job", "as in moonpool job sweep; moonpool list shows them") end
  local child, why = link.child { "--specs", "--log-level", "info", args.config }
  if not child then return stderr.wrong(why) end
  local result, wrong = link.asker(child, "job")("moonpool/job", { name = args[1] })
  if not result then return link.lost(child, wrong) end
  child.close()
  if result.what then return stderr.misuse(result.what, result.hint) end
  if result.why then return stderr.wrong("the job '" .. args[1] .. "' failed: " .. result.why) end
  if result.value ~= nil then print(type(result.value) == "string" and result.value or json.encode(result.value)) end
  return 0
end
