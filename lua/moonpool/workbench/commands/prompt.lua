-- moonpool prompt: the messages of one prompt.

local connect = require "moonpool.workbench.client.connect"
local format_content = require "moonpool.workbench.format.format_content"
local json = require "moonpool.json"
local pairs_of = require "moonpool.workbench.format.key_values"
local stderr = require "moonpool.workbench.format.stderr"

local function show(result)
  for i, message in ipairs(result.messages or {}) do
    local text = format_content.text(message.content)
    io.stdout:write(i > 1 and "\n" or "", message.role, ":\n", text, text:sub(-1) == "\n" and "" or "\n")
  end
end

return function(args)
  if not args[1] then return stderr.misuse("prompt takes the name of a prompt", "as in moonpool prompt review diff=…; moonpool list shows them") end
  local arguments, what, hint = pairs_of(args, 2)
  if not arguments then return stderr.misuse(what, hint) end
  return connect.run(args, nil, function(s)
    return connect.print(args, show, s:ask("prompts/get", { name = args[1], arguments = json.object(arguments) }))
  end)
end
