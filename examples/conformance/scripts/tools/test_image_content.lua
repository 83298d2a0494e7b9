--- Answers with an image.
return function() return image(require("samples").png, "image/png") end
