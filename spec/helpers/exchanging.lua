-- An authorization server that exchanges tokens (RFC 8693), stub upstreams that take only its tokens, and clients with
-- tokens of an issuer that the gateway trusts.
--   local state = {}; exchanging.start(state, function(it) … it.as, it.u, it.g; it.client "ann" … end, { exchange = { scope = "x" } })
-- `state`: life of tokens in seconds, `refuse` = sub -> { status, error }, `answer(reply, form)` instead of tokens;
-- `forms`, and the `good` tokens, token -> sub
local cjson = require "cjson.safe"
local base64 = require "spec.helpers.base64"
local stub = require "spec.helpers.stub"
local tokens = require "spec.helpers.tokens"
local upstream = require "spec.helpers.upstream"

local exchanging = { SECRET = "s3cret-of-the-gateway" }

local key = tokens.issuer("ES256", "k1")

--- The auth script that verifies the clients' tokens.
exchanging.script = ("return auth.jwt { issuer = %q, audience = %q, key = [[%s]] }"):format(tokens.ISSUER, tokens.AUDIENCE, key.pem)

--- A token of a person. `more`: further claims.
function exchanging.token(sub, more) return key:token(tokens.merge({ sub = sub, scope = "crm:use" }, more)) end

--- A field of a form; nil without it.
function exchanging.field(form, name)
  local value = ("&" .. form):match("&" .. name .. "=([^&]*)")
  return value and (value:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

--- The `sub` of a token.
function exchanging.sub_of(token)
  local text = token and token:match "^[^.]+%.([^.]+)%."
  return text and cjson.decode(base64.decode((text:gsub("-", "+"):gsub("_", "/")) .. ("="):rep(-#text % 4))).sub
end

function exchanging.server(state)
  state.forms, state.good, state.refuse = {}, {}, state.refuse or {}
  return stub.start(function(request, reply)
    if request.method ~= "POST" then return reply:send(404) end
    table.insert(state.forms, request.body)
    local sub = exchanging.sub_of(exchanging.field(request.body, "subject_token"))
    local no = state.refuse[sub]
    if no then return reply:send(no[1], { ["content-type"] = "application/json" }, cjson.encode { error = no[2], error_description = "hunter2" }) end
    if state.answer then return state.answer(reply, request.body) end
    local token = ("of-%s-%d-hunter2"):format(sub, #state.forms)
    state.good[token] = sub
    reply:json { access_token = token, issued_token_type = "urn:ietf:params:oauth:token-type:access_token", token_type = "Bearer",
      expires_in = state.life or 3600 }
  end)
end

--- A stub upstream that answers only requests with a good token. Its tool `counter` counts in a session; each person
--- has a tool of that name besides.
function exchanging.guarded(state, options)
  local u = upstream.start(options or { revision = "2025-11-25" })
  local function person(x)
    x.entry.token = (x.headers.authorization or ""):match "^Bearer (.+)$"
    x.entry.sub = state.good[x.entry.token or ""]
    return x.entry.sub
  end
  u:when("*", function(x)
    local sub = person(x)
    if not sub then return upstream.faults.status(401)(x) end
    if state.on_request and state.on_request(x, sub) then return end
    if x.method == "tools/list" then
      local tools = { '{"name":"counter","inputSchema":{"type":"object"}}', '{"name":"echo","inputSchema":{"type":"object"}}',
        ('{"name":"only-%s","inputSchema":{"type":"object"}}'):format(sub) }
      return x:result(x:complete('{"tools":[' .. table.concat(tools, ",") .. "]}", true))
    end
    x:serve()
  end)
  return u
end

--- Runs use(it) with an authorization server, an upstream `crm` and a gateway; then looks for secrets in what the
--- gateway shows.
--- `more`: exchange, entry, config, constants, scripts, options (of the stub), workers.
function exchanging.start(state, use, more)
  more = more or {}
  local as <close> = exchanging.server(state)
  local u <close> = exchanging.guarded(state, more.options)
  local exchange = { token_url = as.url .. "/token", client = "moonpool", secret = exchanging.SECRET, audience = "https://crm.example.com", scope = "crm:read" }
  for name, value in pairs(more.exchange or {}) do
    exchange[name] = value
    if value == false then exchange[name] = nil end
  end
  local entry = { prefix = "crm_", auth = { exchange = exchange } }
  for name, value in pairs(more.entry or {}) do entry[name] = value end
  local scripts = { ["auth/main.lua"] = exchanging.script }
  for name, text in pairs(more.scripts or {}) do scripts[name] = text end
  local config = { log = { level = "debug" } }
  for name, value in pairs(more.config or {}) do config[name] = value end
  local g <close> = upstream.gateway({ crm = u }, { workers = more.workers or 2, entries = { crm = entry }, config = config, scripts = scripts,
    constants = more.constants })
  local it = { as = as, u = u, g = g, state = state, entry = entry, sent = {} }
  function it.client(sub, revision, claims, options)
    options = options or {}
    options = { token = exchanging.token(sub, claims), capabilities = options.capabilities }
    table.insert(it.sent, options.token)
    return g:client(revision or "2026-07-28", options)
  end
  -- Reloads with what `it.entry` is now.
  function it.reload()
    local path = g.dir .. "/moonpool.yaml"
    local file = io.open(path)
    local whole = cjson.decode(file:read "a")
    file:close()
    for name, value in pairs(entry) do whole.upstreams.crm[name] = value end
    file = io.open(path, "w")
    file:write(cjson.encode(whole))
    file:close()
    local answer = g:admin("/reload", "POST")
    if answer.status ~= 200 then error(answer.body, 2) end
  end
  use(it)
  local shown = g:log() .. g:admin("/status").body .. g:admin("/metrics").body
  for _, secret in ipairs { "hunter2", exchanging.SECRET, table.unpack(it.sent) } do
    if shown:find(secret, 1, true) then error("the gateway shows a secret: " .. secret, 2) end
  end
end

--- How many tokens were asked for, of one person or of all.
function exchanging.asked(state, sub)
  local count = 0
  for _, form in ipairs(state.forms) do
    if not sub or exchanging.sub_of(exchanging.field(form, "subject_token")) == sub then count = count + 1 end
  end
  return count
end

--- The names of the tools that a client sees, in one text.
function exchanging.listed(c)
  local names = {}
  for i, tool in ipairs(c:result("tools/list", {}).tools) do names[i] = tool.name end
  return table.concat(names, " ")
end

return exchanging
