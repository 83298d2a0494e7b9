-- Tokens of one authorization server, for this resource alone. `scopes_supported` is what a client asks for at first; what a tool needs
-- beyond, it asks for when the tool is called.
return auth.jwt { issuer = "http://127.0.0.1:7390", scopes_supported = { "notes:read" } }
