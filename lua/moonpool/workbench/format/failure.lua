-- The words of the command line for a request that has no answer, from the facts that a gateway without clients of its
-- own gives ("moonpool/client").

local json = require "moonpool.json"

local hints = {
  [401] = "the gateway requires authentication: --bearer-env NAME sends the token in that variable",
  [403] = "the principal lacks permission, or the gateway does not serve this host name",
  [404] = "the path of its endpoint is part of the URL: /mcp, or /sse; and its port is that of `listen`, not that of the admin listener",
  [405] = "the path of its endpoint is part of the URL: /mcp, or /sse",
}

local function text_or_nil(value) return type(value) == "string" and value or nil end

-- The body may be an error of JSON-RPC, or of OAuth.
local function of_status(failure)
  local value = type(failure.body) == "string" and json.decode(failure.body)
  if type(value) ~= "table" then value = {} end
  local message = type(value.error) == "table" and text_or_nil(value.error.message)
  if message then return message, hints[failure.status] end
  local about = text_or_nil(value.error_description)
  return "the gateway answered with status " .. failure.status .. (about and ": " .. about or ""), hints[failure.status]
end

-- Failures of TLS in the words of libcurl.
local function of_tls(why, ca)
  local about = why:match "^SSL certificate problem: (.*)$" or why:match "^SSL certificate OpenSSL verify result: (.*)$" or why:match "^SSL: (.*)$"
  if about and about:find "subject name" then
    return "the server's certificate is for another name: " .. about, "the name in the URL must be one of the certificate"
  end
  if about then return "the server's certificate is not trusted: " .. about, "use --ca FILE to name certificates to trust" end
  if why == "the CA certificates cannot be read" then return "cannot read certificates from " .. (ca or "the system") end
  if why:find "wrong version number" or why:find "packet length too long" then
    return "TLS: the server speaks plain HTTP at this port", "its URL begins with http://"
  end
  if why:find "SSL" or why:find "TLS" then return why:find "^TLS: " and why or "TLS: " .. why, nil end
end

local words = {
  timeout = "no answer in time", total = "no answer in time", too_large = "the answer is too large",
  revision = "the server supports none of the revisions that were tried", closed = "the gateway closed the connection",
}

--- The text and perhaps a hint. `ca`: the file of certificates to trust, or nil.
return function(failure, ca)
  local why = failure.why or ""
  if failure.reason == "status" or failure.status and failure.status >= 300 then return of_status(failure) end
  if failure.reason == "revision" then return failure.says or words.revision end
  local text, hint = of_tls(why, ca)
  if text then return text, hint end
  if failure.reason == "refused" then
    local is_nobody = why:find "[Rr]efused" or why:find "connect to server"
    return (why:gsub("^%l", string.upper)), is_nobody and "is it running there? `moonpool run` starts a gateway" or nil
  end
  if why:find "closed the connection without a response" or why:find "connection closed before the response" then
    return why, "if the address has proxy_protocol, only its proxies may connect there: use theirs; the gateway's log says why it refuses"
  end
  if why ~= "" then return why end
  return words[failure.reason] or failure.reason
end
