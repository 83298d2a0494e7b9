-- moonpool read: the contents of one resource.

local connect = require "moonpool.workbench.client.connect"
local format_content = require "moonpool.workbench.format.format_content"
local stderr = require "moonpool.workbench.format.stderr"
local wire = require "moonpool.wire"

local function put(item)
  if item.text then
    io.stdout:write(item.text, item.text:sub(-1) == "\n" and "" or wire.is_terminal(1) and "\n" or "")
  elseif wire.is_terminal(1) then
    io.stdout:write(("[blob %s %s, %d bytes]\n"):format(item.uri, item.mimeType or "application/octet-stream", format_content.size(item.blob or "")))
  else
    io.stdout:write(format_content.bytes(item.blob or ""))
  end
end

local function show(result)
  io.stdout:setvbuf "full"
  for _, item in ipairs(result.contents or {}) do put(item) end
end

return function(args)
  if not args[1] or args[2] then return stderr.misuse("read takes one URI", "as in moonpool read orders://7; moonpool list shows them") end
  if not args[1]:find "^%a[%w+.-]*:" then
    return stderr.misuse("'" .. args[1] .. "' is not a URI", "as in orders://7; moonpool list shows them")
  end
  return connect.run(args, nil, function(s) return connect.print(args, show, s:ask("resources/read", { uri = args[1] })) end)
end
