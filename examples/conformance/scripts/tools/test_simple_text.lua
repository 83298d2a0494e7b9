--- Answers with a fixed text.
return function() return "This is a simple text response for testing." end
