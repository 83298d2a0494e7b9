-- Servers of PyPI that people use, behind the gateway.
require("spec.helpers.servers").describe("pypi", it, function(why) pending(why) end)
