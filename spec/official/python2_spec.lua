-- Servers made with this official SDK behind the gateway, and all official clients in front of it.
require("spec.helpers.sdks").describe("python-sdk 2.3.0", describe, it, function(why) pending(why) end)
