return resource {
  "An image that never changes.",
  uri = "test://static-binary", mime = "image/png", ttl = 60 * seconds, public = true,
  function() return bytes(require("samples").png) end,
}
