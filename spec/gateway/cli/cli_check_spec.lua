-- `moonpool check` and `moonpool list`: the scripts that are served, as clients see them, and warnings of undefined
-- names.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"

local function with(scripts, ...)
  local dir = gateway.prepare { scripts = scripts }
  local code, out, err = gateway.exec({ ... }, { cwd = dir })
  os.execute("rm -rf '" .. dir .. "'")
  return code, out, err
end

local shop = {
  ["tools/refund.lua"] = [[return tool {
    "Pay an order back.\nAsk before.", title = "Refund",
    input = { id = t.integer { "The order's number", min = 1 }, why = t.one_of { "late", "broken", default = "late" }, notes = t.optional(t.list(t.string)) },
    output = { paid = t.number }, destructive = true, timeout = 5 * seconds,
    function() return { paid = 1 } end }]],
  ["resources/order.lua"] = [[return resource { "An order.", uri = "orders://{id}", mime = "application/json", function() return {} end }]],
  ["prompts/review.lua"] = [[return prompt { "Review it.", args = { diff = t.string "A diff" }, function(args) return args.diff end }]],
}

describe("moonpool check", function()
  it("prints each thing as clients see it", function()
    local code, out, err = with(shop, "check")
    assert.same({ 0, "" }, { code, err })
    assert.equal([[
tool  refund  "Refund"  (destructive, at most 5 s)
  Pay an order back.
  Ask before.
  arguments
    id     integer         required, at least 1: The order's number
    why    late | broken   default "late"
    notes  list of string  optional
  output
    paid  number  required

resource  orders://{id}  (application/json)
  An order.

prompt  review
  Review it.
  arguments
    diff  required  A diff
]], out)
  end)

  it("prints the definitions as JSON", function()
    local code, out = with(shop, "check", "--json")
    local told = cjson.decode(out)
    assert.equal(0, code)
    assert.equal("Refund", told.tools[1].title)
    assert.equal("integer", told.tools[1].inputSchema.properties.id.type)
    assert.equal("orders://{id}", told.resourceTemplates[1].uriTemplate)
    assert.equal("review", told.prompts[1].name)
    assert.same({}, told.resources)
  end)

  it("prints every mistake, not only the first", function()
    local code, out, err = with({
      ["tools/a.lua"] = "return tool { 'A.', inputs = {}, function() end }",
      ["tools/b.lua"] = "return",
      ["tools/c.lua"] = "return tool {",
    }, "check")
    assert.same({ 78, "" }, { code, out })
    for _, place in ipairs { "a.lua:1: ", "b.lua: ", "c.lua:1: " } do assert.truthy(err:find("scripts/tools/" .. place, 1, true), err) end
  end)

  it("warns of undefined names in functions, and of no others", function()
    local code, out, err = with({ ["tools/x.lua"] = [[
local helper
local own = 1
return tool { "X.", function(args, call)
  if args.a then return jsn.encode(args) end
  local list = { own, string, helper, sleep, _VERSION }
  local function inner() return list, own, misspelt_at_depth end
  do local _ENV = { quiet = 1 } list[1] = quiet end
  return inner()
end }
]], ["lib/y.lua"] = "return { f = function() retrn() end }", ["tools/g.lua"] = [[
return tool { "Looks names up by itself.", function() return _G["x"], nothing_known end }]] }, "check")
    assert.equal(0, code)
    assert.truthy(out:find("tool  x\n", 1, true))
    assert.equal([[
scripts/lib/y.lua:1: unknown name 'retrn'
    return { f = function() retrn() end }
  hint: a script's own names begin with 'local'

scripts/tools/x.lua:4: unknown name 'jsn'
    if args.a then return jsn.encode(args) end
  hint: did you mean 'json'?

scripts/tools/x.lua:6: unknown name 'misspelt_at_depth'
    local function inner() return list, own, misspelt_at_depth end
  hint: a script's own names begin with 'local'
]], err)
  end)

  it("warns of names that a library does not have, and says what there is instead", function()
    local code, _, err = with({ ["tools/x.lua"] = [[
local function own() string.trim = function(s) return s end end
return tool { "X.", function(args)
  local _ = own() or string.trim(args.a), utf8.graphemes and utf8.graphemes(args.a), math.pow == nil, secret.anything
  os.execute("ls")
  io.open("x")
  if http.gett("http://x") then return table.concta({}) end
  return args.string.whatever, os.exit(1)
end }]] }, "check")
    assert.equal(0, code)
    assert.equal([[
scripts/tools/x.lua:4: unknown name 'os.execute'
    os.execute("ls")
  hint: scripts have 'exec' instead; 'trust: full' in the config opens the whole standard library

scripts/tools/x.lua:5: unknown name 'io'
    io.open("x")
  hint: scripts have 'fs' instead; 'trust: full' in the config opens the whole standard library

scripts/tools/x.lua:6: unknown name 'http.gett'
    if http.gett("http://x") then return table.concta({}) end
  hint: did you mean 'get'?

scripts/tools/x.lua:6: unknown name 'table.concta'
    if http.gett("http://x") then return table.concta({}) end
  hint: did you mean 'concat'?

scripts/tools/x.lua:7: unknown name 'os.exit'
    return args.string.whatever, os.exit(1)
  hint: os has no such name
]], err)
  end)

  it("warns of a timeout that limits.call.time ends first, and --strict counts it", function()
    local scripts = {
      ["tools/slow.lua"] = 'return tool {\n  "Slow.",\n  timeout = 2 * minutes,\n  function() end,\n}',
      ["tools/quick.lua"] = 'return tool { "Quick.", timeout = 30 * seconds, function() end }',
      ["tools/task.lua"] = 'return tool { "In the background.", timeout = 2 * hours, task = "optional", function() end }',
      ["tools/two.lua"] = [[
return {
  short = tool { "Short.", timeout = 1, function() end },
  long = tool { "Long.",
    timeout = 3600, function() end },
}]],
      ["resources/page.lua"] = 'return resource { "Page.", uri = "x://page", timeout = 90.5, function() return "" end }',
    }
    local code, _, err = with(scripts, "check")
    assert.equal(0, code)
    assert.equal([[
scripts/tools/slow.lua:3: 'timeout' of the tool 'slow' is 120 s, and limits.call.time ends each call after 60 s
    timeout = 2 * minutes,
  hint: set limits.call.time to 120s in moonpool.yaml, or lower 'timeout'; a tool with 'task' may run longer in the background

scripts/tools/two.lua:4: 'timeout' of the tool 'two_long' is 3600 s, and limits.call.time ends each call after 60 s
    timeout = 3600, function() end },
  hint: set limits.call.time to 3600s in moonpool.yaml, or lower 'timeout'; a tool with 'task' may run longer in the background

scripts/resources/page.lua:1: 'timeout' of the resource 'x://page' is 90.5 s, and limits.call.time ends each call after 60 s
    return resource { "Page.", uri = "x://page", timeout = 90.5, function() return "" end }
  hint: set limits.call.time to 91s in moonpool.yaml, or lower 'timeout'
]], err)
    assert.equal(1, (with(scripts, "check", "--strict")))
    local dir = gateway.prepare { scripts = scripts, config = { limits = { call = { time = "1h" } } } }
    assert.same({ 0, "" }, { (gateway.exec({ "check", "--strict" }, { cwd = dir })), select(3, gateway.exec({ "check" }, { cwd = dir })) })
    os.execute("rm -rf '" .. dir .. "'")
  end)

  it("warns of nothing in what is shipped", function()
    for _, file in ipairs { "examples/hello", "examples/weather", "examples/conformance" } do
      local _, _, err = gateway.exec { "check", file .. "/moonpool.yaml" }
      assert.equal("", err)
    end
    local dir = gateway.prepare { scripts_path = require "luv".fs_realpath "scripts" }
    local _, _, err = gateway.exec({ "check" }, { cwd = dir })
    os.execute("rm -rf '" .. dir .. "'")
    assert.equal("", err)
  end)
end)

describe("moonpool list", function()
  it("prints a line each", function()
    assert.same({ 0, "tool  refund  Pay an order back.\nresource  orders://{id}  An order.\nprompt  review  Review it.\n", "" }, { with(shop, "list") })
  end)
end)

describe("moonpool check of the names that a gateway is reached by", function()
  local add = { ["tools/add.lua"] = "--- Adds.\nreturn function() return 1 end" }
  local proxied = "listen: {address: 127.0.0.1:0, trusted_proxies: 127.0.0.1}\n"
  local tokens = "tokens: {operate: {joe: " .. ("o"):rep(32) .. "}}"

  local function check(config, ...)
    local here = require "spec.helpers.certificates".here()
    local dir = gateway.prepare { config = config, scripts = add, files = { ["cert.pem"] = here.certificate, ["key.pem"] = here.key } }
    local code, _, err = gateway.exec({ "check", ... }, { cwd = dir })
    os.execute("rm -rf '" .. dir .. "'")
    return code, err
  end

  it("warns where clients would get 403, and exits with 1 with --strict", function()
    for config, warning in pairs {
      [proxied .. "public_url: https://mcp.example.com\nauth: none\n"] = [[
moonpool.yaml: 'hosts' does not have the name of 'public_url', so requests with this Host get 403: 'mcp.example.com'
  hint: add the name to hosts
]],
      [proxied .. "public_url: https://mcp.example.com:8443\nhosts: ['*.mcp.example.com']\nauth: none\n"] = [[
moonpool.yaml: 'hosts' does not have the name of 'public_url', so requests with this Host get 403: 'mcp.example.com'
  hint: add the name to hosts
]],
      ["public_url: https://mcp.example.com\nhosts: [mcp.example.com]\nauth: none\n"] = [[
moonpool.yaml: no address of 'listen' has TLS or 'trusted_proxies', so all clients of 'https://mcp.example.com' have the address of a proxy
  hint: name the proxy, as in listen: {address: "127.0.0.1:7300", trusted_proxies: [127.0.0.1]}
]],
      ["listen: [127.0.0.1:0, 0.0.0.0:0]\nauth: none\n"] = [[
moonpool.yaml: clients on other machines get 403, because 'hosts' has only names of this machine; 'listen' is '0.0.0.0:0'
  hint: write the names that clients use, as in hosts: [mcp.example.com, localhost]
]],
      ["admin: {listen: 0.0.0.0:0, " .. tokens .. ", tls: {certificate: cert.pem, key: key.pem}}\n"] = [[
moonpool.yaml: the dashboard opens by IP address alone, because there is no 'admin.hosts'; 'admin.listen' is '0.0.0.0:0'
  hint: write the names of its certificate, as in admin: {hosts: [gateway.example.com]}
]],
    } do
      assert.same({ 0, warning }, { check(config) })
      assert.same({ 1, warning }, { check(config, "--strict") })
    end
  end)

  it("warns where an issuer's tokens are for a gateway behind a proxy that has no public address", function()
    local function checked(config, script)
      local dir = gateway.prepare { config = config, scripts = { ["tools/add.lua"] = add["tools/add.lua"], ["auth/main.lua"] = script } }
      local code, _, err = gateway.exec({ "check", "--strict" }, { cwd = dir })
      os.execute("rm -rf '" .. dir .. "'")
      return { code, err }
    end
    local issuer = 'return auth { issuer = "https://login.example.com", function() return nil end }'
    assert.same({ 1, [[
moonpool.yaml: clients reach '127.0.0.1:0' through a proxy, and there is no 'public_url': the metadata that tell them where to get a token begin with http://
  hint: write the address that clients use, as in public_url: https://mcp.example.com
]] }, checked(proxied, issuer))
    assert.same({ 0, "" }, checked(proxied, "return auth { function() return nil end }"))
    assert.same({ 0, "" }, checked(proxied .. "public_url: https://mcp.example.com\nhosts: [mcp.example.com]\n", issuer))
    assert.same({ 0, "" }, checked("listen: 127.0.0.1:0\n", issuer))
  end)

  it("says nothing where all get through", function()
    for _, config in ipairs {
      "hosts: [mcp.example.com]\n", "hosts: [mcp.example.com]\nadmin: 127.0.0.1:7301\n", "listen: 0.0.0.0:0\nhosts: [localhost]\nauth: none\n",
      proxied .. "public_url: https://mcp.example.com:8443\nhosts: ['*.example.com']\nauth: none\n", "listen: 'unix:/tmp/x.sock'\n",
      "public_url: http://mcp.example.com\nhosts: [MCP.example.com]\nlisten: 0.0.0.0:0\nauth: none\n", "listen: 0.0.0.0:0\nhosts: '*'\nauth: none\n",
      "admin: {listen: 0.0.0.0:0, " .. tokens .. "}\n", "admin: {listen: 127.0.0.1:0, tls: {certificate: cert.pem, key: key.pem}}\n",
      "admin: {listen: 0.0.0.0:0, " .. tokens .. ", hosts: [a.example.com], tls: {certificate: cert.pem, key: key.pem}}\n",
    } do
      assert.same({ 0, "" }, { check(config, "--strict") }, config)
    end
  end)
end)
