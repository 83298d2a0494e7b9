-- SD-06: a used refresh token whose successor was lost.
local signing_in = require "spec.helpers.signing_in"
local wait = require "spec.helpers.wait"

describe("a refresh whose answer was lost", function()
  local WHO <const> = "password:ann notes:read notes:write"

  -- The answer to a used refresh token, once it does not give the same successor any more.
  local function later(g, client, used, successor)
    local answer
    wait.for_fact("the end of the grace", 10, function()
      answer = signing_in.refresh(g, client, used):json()
      return answer.refresh_token ~= successor
    end)
    return answer
  end

  it("has one second chance, if nothing of its successor was seen; that one is dead then", function()
    local g <close> = signing_in.start(nil, { workers = 2, constants = { sign_in_grace_ms = 1000 } })
    local client = signing_in.register(g)
    local first = signing_in.tokens(g, client)
    local lost = signing_in.refresh(g, client, first.refresh_token):json()
    local second = later(g, client, first.refresh_token, lost.refresh_token)
    assert.equal(WHO, (signing_in.who(g, second.access_token)))
    for _ = 1, 4 do assert.equal(401, (signing_in.who(g, lost.access_token))) end
    assert.equal(WHO, (signing_in.who(g, first.access_token)))
    local third = signing_in.refresh(g, client, second.refresh_token):json()
    assert.equal(WHO, (signing_in.who(g, third.access_token)))
    assert.equal("invalid_grant", signing_in.refresh(g, client, lost.refresh_token):json().error)         -- of a dead pair: a thief
    assert.equal(401, (signing_in.who(g, third.access_token)))
  end)

  it("has none after that, or when an access token of the successor was used", function()
    local g <close> = signing_in.start(nil, { workers = 2, constants = { sign_in_grace_ms = 1000 } })
    local client = signing_in.register(g)
    local first, other = signing_in.tokens(g, client), signing_in.tokens(g, client)
    local seen = signing_in.refresh(g, client, other.refresh_token):json()
    assert.equal(WHO, (signing_in.who(g, seen.access_token)))
    local lost = signing_in.refresh(g, client, first.refresh_token):json()
    local second = later(g, client, first.refresh_token, lost.refresh_token)
    assert.equal("invalid_grant", later(g, client, other.refresh_token, seen.refresh_token).error)
    assert.equal(401, (signing_in.who(g, seen.access_token)))
    assert.equal("invalid_grant", later(g, client, first.refresh_token, second.refresh_token).error)
    assert.equal(401, (signing_in.who(g, second.access_token)))
  end)
end)
