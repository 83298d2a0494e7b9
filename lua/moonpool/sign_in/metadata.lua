-- How clients find the authorization server (RFC 8414). What is not built is not named.

local host = require "moonpool.host"
local address = require "moonpool.sign_in.address"

local at = address.issuer .. "/oauth/"

return {
  issuer = address.issuer,
  authorization_endpoint = at .. "authorize", token_endpoint = at .. "token", registration_endpoint = at .. "register",
  revocation_endpoint = at .. "revoke",
  response_types_supported = { "code" }, response_modes_supported = { "query" },
  grant_types_supported = { "authorization_code", "refresh_token" },
  code_challenge_methods_supported = { "S256" },
  token_endpoint_auth_methods_supported = { "none", "client_secret_basic", "client_secret_post" },
  revocation_endpoint_auth_methods_supported = { "none", "client_secret_basic", "client_secret_post" },
  client_id_metadata_document_supported = host.config.sign_in.documents or nil,
  authorization_response_iss_parameter_supported = true,
}
