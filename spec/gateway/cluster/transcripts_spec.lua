-- lane: first
-- The conversations of spec/transcripts, and those byte for byte, once more before three nodes behind a balancer, which
-- sends each request to any of them: all is as on one node.
local redis = require "spec.helpers.redis"

if not redis.find() then
  pending "redis-tools is not installed"
  return
end

require("luv").os_setenv("MOONPOOL_NODES", "3")
for _, path in ipairs { "spec/gateway/transport/transcripts_spec.lua", "spec/gateway/transport/wire_spec.lua" } do
  assert(loadfile(path, "t", _ENV))()
end
