-- moonpool explain and moonpool list --as: show the operator the rule that decides which principal sees a thing.
local gateway = require "spec.helpers.gateway"
local scoped = require "spec.helpers.scoped"

describe("moonpool explain", function()
  local dir
  setup(function()
    local scripts = {
      ["tools/off.lua"] = 'return tool { "Off.", enabled = false, function() end }',
      ["tools/bug.lua"] = 'return tool { "B.", visible = function(who) return who.claims.x.y end, function() end }',
      ["policy/audit.lua"] = 'return policy { tools = { "orders_*" }, "Counts.", function(call, next) return next(call) end }',
    }
    for path, text in pairs(scoped.scripts) do scripts[path] = text end
    dir = gateway.prepare { scripts = scripts, config = {} }
  end)
  teardown(function() gateway.run_program("/bin/rm", { "-rf", dir }) end)

  local function run(args, env)
    local code, out, err = gateway.exec({ "explain", table.unpack(args) }, { cwd = dir, env = env })
    return out, code, err
  end

  local function explains(args, code, ...)
    local out, got, err = run(args)
    assert.equal(code, got, err)
    for _, part in ipairs { ... } do assert.matches(part, out, 1, true) end
  end

  it("says which rule decides, and what the client meets", function()
    explains({ "bob", "open" }, 0, "who       bob", "tool      open  (scripts/tools/open.lua)", "enabled   yes", "scopes    none are needed",
      "decides   no rule refuses it", "sees      listed, and it runs")
    explains({ "bob", "orders_write" }, 1, "scope     orders:write: missing", "policies  audit, in this order", '403 insufficient_scope, scope="orders:write"',
      "sees      absent from lists; by name, HTTP 403")
    explains({ "bob", "orders_write", "--scopes", "notes" }, 1, '403 insufficient_scope, scope="notes orders:write"')
    explains({ "bob", "orders_audit" }, 1, "decides   it lacks audit", "sees      absent from all lists; by name, an unknown thing")
    explains({ "bob", "orders_read", "--scopes", "orders:write" }, 0, "orders:read: held, implied by another scope")
    explains({ "bob", "orders_audit", "-s", "x *" }, 0, "audit: held, by *")
    explains({ "bob", "orders_sell", "--claims", '{"team":"sales"}' }, 0, "visible   yes")
    explains({ "bob", "orders_sell" }, 1, "visible   no", "decides   'visible' hides it")
    explains({ "bob", "bug" }, 1, "visible   fails: ")
    explains({ "bob", "off" }, 1, "enabled   no", "decides   it is switched off")
    explains({ "local", "orders_audit" }, 0, "audit: held, by *")
    explains({ "anonymous", "open" }, 1, "401")
  end)

  it("takes the principal by --as, as list does, and says that it is missing", function()
    explains({ "--as", "bob", "open" }, 0, "who       bob", "tool      open")
    explains({ "--as", "open" }, 0, "who       open", "runs      tool open")
    local out, code, err = run { "open" }
    assert.same({ "", 1 }, { out, code })
    assert.matches("'open' is served here, and the first word is the principal", err, 1, true)
    assert.matches("moonpool explain anonymous open; or --as open", err, 1, true)
    out, code, err = run { "--as", "bob", "-H", "x-api-key: k", "open" }
    assert.same({ "", 2 }, { out, code })
    assert.matches("--as and credentials exclude each other", err, 1, true)
  end)

  it("explains prompts, and resources by name, URI and template", function()
    explains({ "bob", "hello" }, 0, "prompt    hello")
    explains({ "bob", "page" }, 0, "resource  page")
    explains({ "bob", "page://one" }, 0, "resource  page")
    explains({ "bob", "order://7" }, 1, "resource  order  (scripts/resources/order.lua)", "it lacks audit")
  end)

  it("explains every thing in a line", function()
    explains({ "bob" }, 0, "runs      tool open", "absent    tool orders_audit: it lacks audit", "403       tool orders_read: it lacks orders:read",
      "absent    tool off: it is switched off", "runs      resource page://one", "absent    prompt audit")
  end)

  it("asks the auth scripts about credentials", function()
    local out, code = run({ "--bearer-env", "TOKEN", "orders_read" }, { TOKEN = "ann.orders_write" })
    assert.equal(0, code)
    assert.matches("auth      scripts/auth/main.lua authenticates it as ann\nwho       ann\nhas       orders:write\n", out, 1, true)
    explains({ "--header", "X-One: 1", "--header", "Authorization: Bearer bob", "orders_read" }, 1, "who       bob", "orders:read: missing")
    explains({ "--header", "X-One: 1", "orders_read" }, 1, "scripts/auth/main.lua does not authenticate it: no token", "401")
  end)

  it("says what is wrong with what it was given", function()
    for wanted, args in pairs {
      ["explain takes a principal"] = {}, ["explain takes one name"] = { "a", "b", "c" },
      ["TOKEN_THAT_IS_NOT is not set"] = { "-b", "TOKEN_THAT_IS_NOT", "open" },
      ["is not a header"] = { "-H", "x", "open" }, ["--claims needs an object"] = { "a", "open", "--claims", "1" },
      ["exclude credentials"] = { "-H", "x: y", "open", "--scopes", "a" },
    } do
      local _, code, err = run(args)
      assert.equal(2, code, err)
      assert.matches(wanted, err, 1, true)
    end
    local _, code, err = run { "bob", "opn" }
    assert.equal(1, code)
    assert.matches("did you mean 'open'?", err, 1, true)
    _, code, err = run { "anna\nb", "open" }
    assert.equal(1, code)
    assert.matches("without control characters", err, 1, true)
  end)

  it("list --as prints what one sees", function()
    local code, out = gateway.exec({ "list", "--as", "bob", "--scopes", "orders:read" }, { cwd = dir })
    assert.equal(0, code)
    assert.equal([[
tool  open  Open to all.
tool  orders_drop  Drops.
tool  orders_flip  Switches.
tool  orders_read  Reads.
tool  orders_touch  Touches.
resource  page://one  Page.
prompt  hello  Hello.
]], out)
    local wrong, _, err = gateway.exec({ "list", "--scopes", "a" }, { cwd = dir })
    assert.equal(2, wrong)
    assert.matches("this option needs --as", err, 1, true)
  end)
end)
