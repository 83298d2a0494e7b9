-- The conversations of spec/transcripts once more, without call plans and frozen answers: what both ways must say is
-- written once.
require("luv").os_setenv("MOONPOOL_PLANS", "off")
assert(loadfile("spec/gateway/transport/transcripts_spec.lua", "t", _ENV))()
