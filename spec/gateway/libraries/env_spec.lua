-- `env` and `secret`: granted names of the gateway's environment; a secret can be used but is never shown.
local granted = require "spec.helpers.granted"
local stub = require "spec.helpers.stub"

local environment = { ORDERS_URL = "https://orders", APP_ONE = "1", APPX = "x", API_TOKEN = "t0ken-value" }

describe("env", function()
  it("returns granted variables, at load too, and refuses the others", function()
    local code = [[
      local value, why = env "APPX"
      local unset, unset_why = env "APP_NONE"
      return { at_load = at_load, url = env "ORDERS_URL", one = env "APP_ONE", refused = value == nil and why, unset = unset == nil and unset_why,
        default = env("APP_NONE", "other"), not_for = tostring(env("APPX", "other")) }]]
    local g <close> = granted.start {
      scripts = { ["tools/run.lua"] = "local at_load = env 'ORDERS_URL'\n" .. granted.tool(code) }, env = environment,
      allow = { env = { "ORDERS_URL", "APP_*" } },
    }
    local me = g:client "2026-07-28"
    assert.same({
      at_load = "https://orders", url = "https://orders", one = "1", default = "other", not_for = "nil",
      refused = 'tools/run.lua may not see or set the environment variable APPX: no grant allows it (moonpool.yaml: ' ..
        'scripts: {grants: {"tools/run.lua": {env: ["APPX"]}}})',
      unset = "the environment variable APP_NONE is not set",
    }, granted.run(me))
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("secret", function()
  local grant = { env = { "API_TOKEN" } }

  it("prints as *** wherever it can be printed", function()
    local code = [[
      local token = secret "API_TOKEN"
      local header = "Bearer " .. token .. "!"
      log.info("using", { token = token, header = header })
      print(token)
      call:progress(1, 2, "with " .. tostring(token))
      local joined, why = pcall(table.concat, { "a", token })
      local length = pcall(function() return #token end)
      return { text = tostring(token), json = json.encode { token = token }, format = ("%s"):format(token), nested = { token }, header = header,
        type = type(token), joined = joined, length = length, meta = tostring(getmetatable(token)), equal = token == "t0ken-value", why = tostring(why) }]]
    local g <close> = granted.start { code = code, env = environment, allow = grant }
    local me = g:client "2026-07-28"
    local got = granted.run(me)
    assert.equal("***", got.text)
    assert.equal('{"token":"***"}', got.json)
    assert.equal("***", got.format)
    assert.same({ "***" }, got.nested)
    assert.equal("***", got.header)
    assert.is_false(got.joined)
    assert.is_false(got.length)
    assert.is_false(got.equal)
    assert.equal("nil", got.meta)
    assert.equal("userdata", got.type)
    g:wait_log("using", { token = "***", header = "***" })
    me:close()
    assert.is_nil(g:log():find("t0ken", 1, true))
    assert.has_nothing_left(g)
  end)

  it("goes into headers and into the environment and stdin of programs", function()
    local server <close> = stub.start(function(request, reply) reply:send(200, {}, request.headers.authorization or "none") end)
    local code = [[
      local token = secret "API_TOKEN"
      local answer = try(http.get(args.path, { headers = { authorization = "Bearer " .. token } }))
      local result = try(exec({ "sh", "-c", "echo $TOKEN; cat" }, { env = { TOKEN = token }, stdin = token .. "\n" }))
      return { header = answer.body, out = result.stdout }]]
    local got = granted.once({
      code = code, env = environment, allow = { env = { "API_TOKEN", "TOKEN" }, net = { server.at }, run = { "sh" } },
      constants = { http_idle_ms = 5 },
    }, { path = server.url })
    assert.equal("Bearer t0ken-value", got.header)
    assert.equal("t0ken-value\nt0ken-value\n", got.out)
  end)

  it("is refused like env", function()
    local got = granted.once { code = [[local value, why = secret "API_TOKEN" return { value = value, why = why }]], env = environment }
    assert.matches("may not see or set the environment variable API_TOKEN", got.why)
  end)
end)
