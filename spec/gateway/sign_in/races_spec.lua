-- SY-23, SY-42: requests of one sign-in that come at the same moment, to two workers.
local signing_in = require "spec.helpers.signing_in"

local ROUNDS <const> = 6

-- Sends requests at once, each on a connection of its own, and gives their answers.
local function at_once(g, list)
  local connections, answers = {}, {}
  for i in ipairs(list) do connections[i] = g:connect() end
  for i, one in ipairs(list) do
    connections[i]:send { method = "POST", path = one[1], body = signing_in.form(one[2]),
      headers = { Host = "127.0.0.1:7300", ["Content-Type"] = "application/x-www-form-urlencoded" } }
  end
  for i, connection in ipairs(connections) do
    answers[i] = connection:read_response()
    connection:close()
  end
  return answers
end

describe("a code that comes several times at once", function()
  it("gives at most one pair, which the others end", function()
    local g <close> = signing_in.start(nil, { workers = 2 })
    local client = signing_in.register(g)
    for _ = 1, ROUNDS do
      local fields = { grant_type = "authorization_code", code = signing_in.code(g, client), redirect_uri = signing_in.redirect,
        client_id = client.client_id, code_verifier = signing_in.verifier }
      local list, given = {}, {}
      for i = 1, 8 do list[i] = { "/oauth/token", fields } end
      for _, answer in ipairs(at_once(g, list)) do
        if answer.status == 200 then given[#given + 1] = answer:json() else assert.equal("invalid_grant", answer:json().error) end
      end
      assert.is_true(#given <= 1)
      for _, tokens in ipairs(given) do
        assert.equal(401, (signing_in.who(g, tokens.access_token)))
        assert.equal("invalid_grant", signing_in.refresh(g, client, tokens.refresh_token):json().error)
      end
    end
    assert.has_nothing_left(g)
  end)
end)

describe("a refresh token that comes at once with its revocation", function()
  it("gives no token that works afterwards", function()
    local g <close> = signing_in.start(nil, { workers = 2 })
    local client = signing_in.register(g)
    for round = 1, ROUNDS do
      local tokens = signing_in.tokens(g, client)
      local refresh = { "/oauth/token", { grant_type = "refresh_token", refresh_token = tokens.refresh_token, client_id = client.client_id } }
      local revoke = { "/oauth/revoke", { token = tokens[round % 2 == 0 and "refresh_token" or "access_token"], client_id = client.client_id } }
      local answers = at_once(g, { refresh, refresh, revoke, refresh, refresh })
      assert.equal(200, answers[3].status)
      for _, answer in ipairs(answers) do
        local given = answer:json() or {}
        if given.access_token then assert.equal(401, (signing_in.who(g, given.access_token))) end
        if given.refresh_token then assert.equal("invalid_grant", signing_in.refresh(g, client, given.refresh_token):json().error) end
      end
      assert.equal(401, (signing_in.who(g, tokens.access_token)))
      assert.equal("invalid_grant", signing_in.refresh(g, client, tokens.refresh_token):json().error)
    end
    assert.has_nothing_left(g)
  end)
end)
