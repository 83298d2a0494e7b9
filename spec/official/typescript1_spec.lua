-- Servers made with this official SDK behind the gateway, and all official clients in front of it.
require("spec.helpers.sdks").describe("typescript-sdk 1.32.2", describe, it, function(why) pending(why) end)
