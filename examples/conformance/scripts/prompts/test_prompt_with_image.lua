return prompt {
  "Brings an image along.",
  function() return { user(image(require("samples").png, "image/png")), user "Please look at the image above." } end,
}
