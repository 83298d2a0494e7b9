-- The storm of reloads of spec/gateway/reload once more, where the gateway compares each planned call with the general
-- path: a difference ends it.
require("luv").os_setenv("MOONPOOL_PLANS", "both")
assert(loadfile("spec/gateway/reload/reload_storm_spec.lua", "t", _ENV))()
