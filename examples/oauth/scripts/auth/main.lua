-- Accepts tokens of one authorization server, for this resource only. A client requests the scopes of
-- `scopes_supported` at first; it requests further scopes when it calls a tool that needs them.
return auth.jwt { issuer = "http://127.0.0.1:7390", scopes_supported = { "notes:read" } }
