--- Answers with a text, an image and a resource.
return function()
  return {
    text "Multiple content types test:",
    image(require("samples").png, "image/png"),
    embed("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
  }
end
