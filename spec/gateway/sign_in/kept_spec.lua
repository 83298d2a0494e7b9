-- SD-18, SY-41: a sign-in gives no token that the gateway could forget. What its disk does not take is refused.
local gateway = require "spec.helpers.gateway"
local signing_in = require "spec.helpers.signing_in"

local SEALED <const> = { seal_keys = { ("k"):rep(32) }, store = { file = "data/store.db" } }

local function start(options)
  options = options or {}
  options.files = { ["data/.keep"] = "" }
  return signing_in.start({ seal_keys = SEALED.seal_keys, store = SEALED.store }, options)
end

local function saved(g) g:wait_status(function(status) return status.gauges.store_unsaved == 0 end) end

-- What a client gets while nothing can be kept: no token, no code, and that it may try again.
local function assert_refused(response)
  assert.equal(503, response.status)
  assert.truthy(tonumber(response.headers["retry-after"]))
  assert.is_nil(response.body:find "mp[arc]_")
  assert.is_nil(response.headers.location)
end

-- Fills the disk of the gateway: its file cannot grow until `room` is called.
local function full_disk(g)
  local function limit(bytes)
    assert.equal(0, (gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--fsize=" .. bytes .. ":unlimited" })))
  end
  saved(g)
  limit "1"
  return function()
    limit "unlimited"
    saved(g)
  end
end

describe("while the disk is full", function()
  it("a code, a refresh and a page give nothing, and afterwards the same code, token and page do", function()
    local g <close> = start()
    local client = signing_in.register(g)
    local tokens, unused, refused = signing_in.tokens(g, client), signing_in.code(g, client), signing_in.code(g, client)
    local ann = signing_in.browser(g)
    local page = ann:allow(ann:begin(client))
    local room = full_disk(g)
    assert_refused(signing_in.redeem(g, client, refused))        -- the disk is found to be full here, and known to be from here on
    assert_refused(signing_in.redeem(g, client, unused))
    assert_refused(signing_in.refresh(g, client, tokens.refresh_token))
    assert_refused(signing_in.refresh(g, client, tokens.refresh_token))
    assert_refused(ann:sign_in(page))
    room()
    assert.equal(200, signing_in.redeem(g, client, unused).status)
    assert.equal(200, signing_in.refresh(g, client, tokens.refresh_token).status)
    -- what was taken while nobody knew that the disk is full may be used up; it has given nothing
    assert.equal("invalid_grant", signing_in.redeem(g, client, refused):json().error)
    assert.has_nothing_left(g)
  end)

  it("a revocation is 503, holds at once nevertheless, and is on the disk once that has room", function()
    local g <close> = start()
    local client = signing_in.register(g)
    local tokens = signing_in.tokens(g, client)
    local room = full_disk(g)
    assert_refused(signing_in.post(g, "/oauth/revoke", { token = tokens.refresh_token, client_id = client.client_id }))
    assert.equal(401, (signing_in.who(g, tokens.access_token)))
    room()
    assert.equal(400, signing_in.refresh(g, client, tokens.refresh_token).status)
    local again <close> = signing_in.again(g)
    assert.equal(401, (signing_in.who(again, tokens.access_token)))
    assert.equal(400, signing_in.refresh(again, client, tokens.refresh_token).status)
  end)
end)

describe("while the disk hangs", function()
  it("nothing is given, and a token that was asked for is given once it goes on", function()
    local flag = gateway.new_folder() .. "/slow"
    local g <close> = start { env = { SLOW_DISK = flag } }
    local client = signing_in.register(g)
    local tokens, code = signing_in.tokens(g, client), signing_in.code(g, client)
    saved(g)
    assert(io.open(flag, "w")):close()
    assert_refused(signing_in.refresh(g, client, tokens.refresh_token))
    assert_refused(signing_in.redeem(g, client, code))
    os.remove(flag)
    saved(g)
    assert.equal(200, signing_in.refresh(g, client, tokens.refresh_token).status)
    assert.equal(200, signing_in.redeem(g, client, code).status)
    assert.has_nothing_left(g)
  end)
end)
