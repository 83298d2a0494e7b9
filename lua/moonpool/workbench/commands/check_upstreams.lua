-- moonpool check --connect: after the usual checks, asks each upstream once. moonpool upstreams --connect: the same
-- without the checks.

local probe_upstreams = require "moonpool.workbench.client.probe_upstreams"

return function(args)
  local code, has_answered = probe_upstreams.run(args.config or "moonpool.yaml", false, args.upstream)
  if has_answered and not args.strict then return 0 end
  return code
end
