-- moonpool check --connect: after the usual checks, asks each upstream once. moonpool upstreams --connect: the same without the checks.

local connected = require "moonpool.workbench.client.connected"

return function(args)
  local code, has_answered = connected.run(args.config or "moonpool.yaml", false, args.upstream)
  if has_answered and not args.strict then return 0 end
  return code
end
