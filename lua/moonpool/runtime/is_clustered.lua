-- True if what several gateways share is in the server of `cluster`. Specs and replays have all of it in their process.

local host = require "moonpool.host"

return host.config.cluster ~= nil and not (host.script.is_replay or host.script.has_specs)
