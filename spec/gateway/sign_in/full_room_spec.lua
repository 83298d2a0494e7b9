-- SD-18: a full room of sign-ins gives no token that the gateway could forget, and endings still have their places.
local signing_in = require "spec.helpers.signing_in"

local function assert_refused(response)
  assert.equal(503, response.status)
  assert.is_nil(response.body:find "mp[arc]_")
  assert.is_nil(response.headers.location)
end

describe("a store whose room for sign-ins is full", function()
  it("gives no code and no token, still takes endings, and serves who is signed in", function()
    local g <close> = signing_in.start(nil, { constants = { store_sign_ins = 12 } })
    local client = signing_in.register(g)
    local tokens, code = signing_in.tokens(g, client), signing_in.code(g, client)
    local response
    for _ = 1, 12 do
      local ann = signing_in.browser(g)
      response = ann:sign_in(ann:allow(ann:begin(client)))
      if response.status ~= 303 then break end
    end
    assert_refused(response)
    assert_refused(signing_in.redeem(g, client, code))
    assert.equal(401, (signing_in.who(g, "mpa_x")))
    assert.equal("password:ann notes:read notes:write", (signing_in.who(g, tokens.access_token)))
    assert.equal(200, signing_in.post(g, "/oauth/revoke", { token = tokens.refresh_token, client_id = client.client_id }).status)
    assert.equal(401, (signing_in.who(g, tokens.access_token)))
    assert.has_nothing_left(g)
  end)
end)
