-- A server, a gateway whose scripts may connect to it, and a client, for a whole `describe`. At its end nothing may be
-- left of them. `kind` is spec.helpers.redis or spec.helpers.postgres; nothing is started where its server is missing.
--   local server, g, me
--   beside(redis, lazy_setup, lazy_teardown, function(...) server, g, me = ... end)
local assert = require "luassert"

return function(kind, lazy_setup, lazy_teardown, take)
  local server, g, me
  lazy_setup(function()
    if not kind.find() then return end
    server = kind.start()
    g = kind.gateway(server.at)
    me = g:client "2026-07-28"
    take(server, g, me)
  end)
  lazy_teardown(function()
    if not server then return end
    me:close()
    assert.has_nothing_left(g)
    g:stop()
    server:__close()
  end)
end
