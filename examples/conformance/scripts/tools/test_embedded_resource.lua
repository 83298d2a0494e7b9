--- Answers with a resource inside.
return function() return embed("test://embedded-resource", "This is an embedded resource content.", "text/plain") end
