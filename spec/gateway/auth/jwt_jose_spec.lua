-- Tokens across implementations: the gateway accepts the tokens of npm's jose, and jose accepts the gateway's, for
-- every algorithm.
local gateway = require "spec.helpers.gateway"
local node = require "spec.helpers.node"
local tokens = require "spec.helpers.tokens"

local json = tokens.json

local function jose(what, input)
  local command = ("exec '%s' '%s/tokens.mjs' %s %s %s"):format(node.path, node.folder, what, tokens.ISSUER, tokens.AUDIENCE)
  if input then
    local name = os.tmpname()
    local file <close> = assert(io.open(name, "wb"))
    file:write(input)
    file:flush()
    command = command .. " <" .. name .. "; rm " .. name
    command = command:gsub("^exec ", "")
  end
  local code, out, err = gateway.run_program("/bin/sh", { "-c", command }, { seconds = 30 })
  assert.equal("", err)
  assert.equal(0, code)
  return json.decode(out)
end

describe("tokens that jose issues", function()
  it("are accepted, with its key set and with its PEM", function()
    local issued = jose "issue"
    local g <close> = gateway.start {
      workers = 1, files = { ["keys.json"] = json.encode(issued.jwks) }, config = { scripts = { allow = { read = { "keys.json" } } } },
      scripts = { ["tools/who.lua"] = ([[
        local options = { issuer = "%s", audience = "%s" }
        local set = jwt.verifier { issuer = options.issuer, audience = options.audience, key_file = "keys.json" }
        return tool { "Who.", input = { token = t.string, pem = t.string }, function(args)
          local one = jwt.verifier { issuer = options.issuer, audience = options.audience, key = args.pem }
          return try(set:verify(args.token)).sub .. " " .. try(one:verify(args.token)).scope
        end }]]):format(tokens.ISSUER, tokens.AUDIENCE) },
    }
    local me = g:client "2026-07-28"
    local count = 0
    for algorithm, token in pairs(issued.tokens) do
      local result = me:result("tools/call", { name = "who", arguments = { token = token, pem = issued.pems[algorithm] } })
      assert.equal("ann a b", result.content[1].text, algorithm)
      count = count + 1
    end
    assert.equal(11, count)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("tokens that moonpool issues", function()
  it("are accepted by jose", function()
    local list, expected = json.array {}, {}
    for _, algorithm in ipairs { "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519" } do
      local issuer = tokens.issuer(algorithm, "k1")
      list[#list + 1] = { algorithm = algorithm, pem = issuer.pem, token = issuer:token() }
      expected[algorithm] = "alice"
    end
    assert.same(expected, jose("verify", json.encode { tokens = list }))
  end)
end)
