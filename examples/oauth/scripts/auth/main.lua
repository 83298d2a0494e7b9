-- Tokens of one authorization server, for this resource alone. A client requests the scopes of `scopes_supported` at first; further
-- scopes that a tool needs, it requests when it calls the tool.
return auth.jwt { issuer = "http://127.0.0.1:7390", scopes_supported = { "notes:read" } }
