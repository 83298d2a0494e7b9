-- The scripts that a grant belongs to: all scripts, a folder or one file, by the file that contains the code. A wrong
-- grant is reported with its line.
local gateway = require "spec.helpers.gateway"
local granted = require "spec.helpers.granted"

local reading = granted.tool [[local text, why = fs.read(args.path) return { text = text, why = why }]]

describe("a grant", function()
  it("is for all, for a folder or for a file, and these add up", function()
    local g <close> = granted.start {
      allow = { read = "all" },
      grants = { ["tools/orders/"] = { read = { "orders" } }, ["tools/orders/refund.lua"] = { read = { "refunds" } } },
      files = { ["all/a"] = "a", ["orders/a"] = "o", ["refunds/a"] = "r" },
      scripts = { ["tools/plain.lua"] = reading, ["tools/orders/list.lua"] = reading, ["tools/orders/refund.lua"] = reading,
        ["tools/ordersx.lua"] = reading },
    }
    local me = g:client "2026-07-28"
    local function seen(name)
      local list = {}
      for _, path in ipairs { "all/a", "orders/a", "refunds/a" } do list[#list + 1] = granted.run(me, { path = path }, name).text or "-" end
      return table.concat(list)
    end
    assert.equal("a--", seen "plain")
    assert.equal("a--", seen "ordersx")
    assert.equal("ao-", seen "orders_list")
    assert.equal("aor", seen "orders_refund")
    me:close()
    assert.has_nothing_left(g)
  end)

  it("belongs to the file that contains the code, not to the file that calls it", function()
    local g <close> = granted.start {
      grants = { ["lib/files.lua"] = { read = { "data" } } }, files = { ["data/a"] = "from lib" },
      scripts = {
        ["lib/files.lua"] = [[return { get = function(path) return fs.read(path) end, with = function(f) return f() end }]],
        ["tools/run.lua"] = granted.tool [[local files = require "files"
          local own, why = files.with(function() return fs.read(args.path) end)
          return { lib = files.get(args.path), own = own, why = why }]],
      },
    }
    local me = g:client "2026-07-28"
    local got = granted.run(me, { path = "data/a" })
    assert.equal("from lib", got.lib)
    assert.is_nil(got.own)
    assert.matches("^tools/run.lua may not read data/a", got.why)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("cannot be taken from another file by changing its libraries", function()
    local g <close> = granted.start {
      grants = { ["tools/rich.lua"] = { read = { "data" } } }, files = { ["data/a"] = "rich" },
      scripts = {
        ["tools/poor.lua"] = "fs.read = function() return 'stolen' end\nhttp.get = nil\n" .. granted.tool "return { text = fs.read(args.path) }",
        ["tools/rich.lua"] = reading,
      },
    }
    local me = g:client "2026-07-28"
    assert.equal("rich", granted.run(me, { path = "data/a" }, "rich").text)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("for a script that does not exist is reported", function()
    local g <close> = granted.start { grants = { ["tools/rum.lua"] = { read = "x" }, ["tools/"] = { read = "x" } }, code = "return {}" }
    g:wait_log("unused grant: no script has this path", { at = "moonpool.yaml:1", path = "tools/rum.lua", hint = "did you mean 'tools/run.lua'?" })
    assert.is_nil(g:log():find("path=tools/ ", 1, true))
  end)

  it("does not exist without a line of the configuration", function()
    local code = [[local list = {}
      for name, f in pairs { net = function() return http.get "https://example.com/" end, read = function() return fs.read "moonpool.yaml" end,
        write = function() return fs.write("x", "") end, run = function() return exec { "true" } end, env = function() return env "HOME" end,
        secret = function() return secret "HOME" end } do
        local value, why = f()
        list[name] = value == nil and why:match "no grant allows it %(moonpool.yaml: (.*)%)$" or "?"
      end
      return list]]
    local got = granted.once { code = code }
    local function line(kind, wanted) return ('scripts: {grants: {"tools/run.lua": {%s: ["%s"]}}}'):format(kind, wanted) end
    assert.same({ net = line("net", "example.com:443"), read = line("read", "moonpool.yaml"), write = line("write", "x"),
      run = line("run", "true"), env = line("env", "HOME"), secret = line("env", "HOME") }, got)
  end)
end)

-- The output of `moonpool check` for this text.
local function check(text)
  local dir = gateway.prepare { config = text, scripts = { ["tools/a.lua"] = "--- Nothing.\nreturn function() return '' end" } }
  local code, out, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
  return code, out .. err
end

describe("moonpool.yaml", function()
  it("takes grants that are right", function()
    local code, told = check [[
scripts:
  allow: {net: api.example.com, read: [data], env: [APP_*, HOME]}
  grants:
    tools/orders/: {net: ["*.example.com:443", "db.internal:80 private"], run: [git, /usr/bin/jq]}
    tools/git.lua: {run: git}
    lib/x.lua: {}
]]
    assert.equal(0, code, told)
  end)

  for name, case in pairs {
    ["a kind that does not exist"] = { "scripts:\n  grants:\n    tools/a.lua: {raed: [x]}", "moonpool.yaml:3:19: unknown key 'raed' in a grant",
      "did you mean 'read'" },
    ["a path without its end"] = { "scripts:\n  grants:\n    tools/orders: {read: x}", "moonpool.yaml:3:5: 'tools/orders' is neither a script",
      "write 'tools/orders/' for a folder" },
    ["a path from the root"] = { "scripts: {grants: {/tools/: {read: x}}}", "moonpool.yaml:1:20: '/tools/' is neither a script",
      "starts in the scripts folder" },
    ["a path that steps up"] = { "scripts: {grants: {tools/../lib/: {read: x}}}", "'tools/../lib/' is neither a script", "starts in the scripts folder" },
    ["a grant that is no map"] = { "scripts: {grants: {tools/: [x]}}", "moonpool.yaml:1:28: a grant must be keys and values" },
    ["grants that are no map"] = { "scripts: {grants: tools/}", "'grants' must be keys and values, not a single value" },
    ["a map for a list"] = { "scripts: {grants: {tools/: {read: {a: b}}}}", "expected a single value or a list in 'read'" },
    ["an empty path"] = { "scripts: {allow: {read: ['']}}", "moonpool.yaml:1:26: 'read' is empty" },
    ["a variable that cannot be"] = { "scripts: {allow: {env: ['A-B']}}", "'A-B' is not a variable" },
    ["a star in the middle"] = { "scripts: {grants: {tools/: {env: ['A*B']}}}", "'A*B' is not a variable" },
    ["the same script twice"] = { "scripts: {grants: {tools/: {read: x}, tools/: {read: y}}}", "duplicate key 'tools/'" },
    ["a host that is none"] = { "scripts:\n  allow:\n    net: [a.test, 'https://a.example/']",
      "moonpool.yaml:3:19: 'https://a.example/' is not a host: a URL is not allowed here\n    net: [a.test, 'https://a.example/']\n                  ^\n",
      "hint: write host and port, as in api.example.com:443" },
    ["a port that is none"] = { "scripts: {grants: {tools/: {net: ['a.example:99999']}}}",
      "moonpool.yaml:1:35: 'a.example:99999' is not a host: the port must be 1 to 65535, or *" },
    ["a port that is a word"] = { "scripts: {allow: {net: 'a.test:x'}}", "the port must be 1 to 65535, or *" },
    ["an address without its brackets"] = { "scripts: {allow: {net: '::1'}}", "more than one ':'", "in brackets, as in [::1]:8080" },
    ["brackets without an address"] = { "scripts: {allow: {net: '[zz]:1'}}", "not an IPv6 address in the brackets" },
    ["a word behind a host"] = { "scripts: {allow: {net: a.test public}}", "unexpected word 'public'", "only the word 'private' may follow" },
    ["a private address"] = { "scripts: {allow: {net: 127.0.0.1 private}}", "'private' applies to host names only",
      "an IP address is granted as written; remove the word" },
    ["half an address"] = { "scripts: {allow: {net: '127.1:80'}}", "not an IPv4 address", "four numbers, as in 127.0.0.1" },
    ["a name with an empty part"] = { "scripts: {allow: {net: a..b}}", "a name consists of letters, digits" },
    ["a star before no domain"] = { "scripts: {allow: {net: '*a.test'}}", "'*' may stand alone" },
    ["a path for a host"] = { "scripts: {allow: {net: a/b}}", "a name consists of letters, digits" },
    ["a user for a host"] = { "scripts: {allow: {net: user@a.test}}", "a name consists of letters, digits" },
  } do
    it("refuses " .. name, function()
      local code, told = check(case[1])
      assert.equal(78, code, told)
      for i = 2, #case do assert.is_truthy(told:find(case[i], 1, true), told) end
    end)
  end
end)
