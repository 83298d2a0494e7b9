-- Servers of npm that people use, behind the gateway.
require("spec.helpers.servers").describe("npm", it, function(why) pending(why) end)
