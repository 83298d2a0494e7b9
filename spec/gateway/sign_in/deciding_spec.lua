-- S-27, S-40, SD-04: scripts/sign_in/main.lua decides who may sign in, and with which scopes; again at each refresh, and
-- after a reload.
local gateway = require "spec.helpers.gateway"
local signing_in = require "spec.helpers.signing_in"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local who = [[return tool { "Says who calls.", function(_, call) return call.principal.id .. " " .. table.concat(call.principal.scopes, " ") end }]]

local function start(main)
  return signing_in.start({ scripts = { watch = false } }, { workers = 2, scripts = { ["tools/who.lua"] = who, ["sign_in/main.lua"] = main } })
end

local function reload(g, text, path)
  local before = g:status().scripts.generation
  local file <close> = assert(io.open(g.dir .. "/scripts/" .. (path or "sign_in/main.lua"), "w"))
  file:write(text)
  file:close()
  uv.kill(g.pid, "sighup")
  g:wait_status(function(status) return status.scripts.generation > before end)
end

-- Where a sign-in leads to: the parameters of the client's address.
local function returned(g, client, name)
  local browser = signing_in.browser(g)
  return signing_in.returned(browser:sign_in(browser:allow(browser:begin(client)), name))
end

describe("sign_in/main.lua", function()
  it("lets people in with the scopes that it gives, or refuses them without details", function()
    local g <close> = start [[return function(claims)
      if claims.sub == "bob" then return nil, "bob is on leave" end
      return { scopes = { "notes:read", "more" } }
    end]]
    local client = signing_in.register(g)
    local tokens = signing_in.tokens(g, client)
    assert.equal("password:ann more notes:read", (signing_in.who(g, tokens.access_token)))
    local bob = returned(g, client, "bob")
    assert.same({ "access_denied", "s t&ate" }, { bob.error, bob.state })
    assert.is_nil(bob.code)
    assert.is_nil(bob.error_description:find "leave")
    assert.has_nothing_left(g)
  end)

  it("refuses by a fault, and by a value that is none of its own", function()
    for _, text in ipairs { 'error "no"', "return 1", "return {}", 'return { scopes = { "a b" } }', 'return { scopes = {}, id = "root" }',
      "return setmetatable({}, {})", "claims.sub.x.y = 1", "while true do end" } do
      local g <close> = start("return function(claims) " .. text .. " end")
      local client = signing_in.register(g)
      local ok, back = pcall(returned, g, client, "ann")
      -- a function that takes too long ends the page: there is no way back to the client then
      assert.same({ text ~= "while true do end", nil }, { ok and back.error == "access_denied", ok and back.code or nil }, text)
    end
  end)

  it("is asked again at each refresh, and ends sign-ins when a reload has made it refuse them", function()
    local g <close> = start "return function() return true end"
    local client = signing_in.register(g)
    local ann, bob = signing_in.tokens(g, client), signing_in.tokens(g, client, nil, "bob")
    reload(g, 'return function(claims) if claims.name == "ann" then return { scopes = { "notes:read" } } end return nil, "not any more" end')
    assert.equal(401, (signing_in.who(g, ann.access_token)))        -- it was made by other rules
    local again = signing_in.refresh(g, client, ann.refresh_token):json()
    assert.equal("password:ann notes:read", (signing_in.who(g, again.access_token)))
    assert.equal(401, (signing_in.who(g, bob.access_token)))
    assert.equal("invalid_grant", signing_in.refresh(g, client, bob.refresh_token):json().error)
    reload(g, "return function() return true end")
    assert.equal("invalid_grant", signing_in.refresh(g, client, bob.refresh_token):json().error)
    local wide = signing_in.refresh(g, client, again.refresh_token):json()
    assert.equal("password:ann notes:read notes:write", (signing_in.who(g, wide.access_token)))
  end)

  it("that returns a table instead of a function is refused, and says what it has to end with", function()
    local dir = gateway.prepare { scripts = { ["sign_in/main.lua"] = "return {}" }, config = {} }
    local code, out, err = gateway.exec({ "check" }, { cwd = dir })
    gateway.run_program("/bin/rm", { "-r", dir })
    assert.equal(78, code)
    assert.matches("sign_in/main.lua:1: the file returns a table that is not a function", out .. err, 1, true)
    assert.matches("hint: end it with 'return function(claims) … end'", out .. err, 1, true)
  end)

  it("counts as changed with a module of lib/", function()
    local scripts = { ["tools/who.lua"] = who, ["lib/team.lua"] = "return { ann = true, bob = true }",
      ["sign_in/main.lua"] = 'local team = require "team"\nreturn function(claims) return team[claims.sub] end' }
    local g <close> = signing_in.start({ scripts = { watch = false } }, { scripts = scripts })
    local client = signing_in.register(g)
    local ann, bob = signing_in.tokens(g, client), signing_in.tokens(g, client, nil, "bob")
    reload(g, "return { ann = true }", "lib/team.lua")
    assert.equal(401, (signing_in.who(g, bob.access_token)))
    assert.equal("invalid_grant", signing_in.refresh(g, client, bob.refresh_token):json().error)
    assert.equal(200, signing_in.refresh(g, client, ann.refresh_token).status)
  end)

  it("that fails for a while ends nothing: a refresh is put off", function()
    local g <close> = start "return function() return true end"
    local client = signing_in.register(g)
    local ann = signing_in.tokens(g, client)
    reload(g, 'return function() error "the directory does not answer" end')
    local answer = signing_in.refresh(g, client, ann.refresh_token)
    assert.same({ 503, "temporarily_unavailable" }, { answer.status, answer:json().error })
    reload(g, "return function(claims) return claims.sub == 'ann' end")
    wait.for_fact("a token", 10, function() return signing_in.refresh(g, client, ann.refresh_token).status == 200 end)
  end)
end)
