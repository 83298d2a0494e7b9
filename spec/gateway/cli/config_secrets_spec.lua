-- Reports about a configuration quote its lines, and those of a reload are in the log, in /status and in the answer to
-- POST /reload, which every user of the machine can read: no secret that stands in the file is in them.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"

local MARK <const> = "MARK7c1e"

-- Each has at least one error; `S` is a secret.
local files = {
  'admin: {listen: "127.0.0.1:0", tokens: {operate: {joe: "SSSSSSSS"}}, wrong: 1}\n',
  "admin: {listen: '127.0.0.1:0', tokens: {operate: {joe: SSSSSSSS}, view: [S]}, wrong: 1}\n",
  'admin: {tokens: {operate: {joe: S: x}}}\n',
  'admin:\n  tokens:\n    operate:\n      joe: S: x\n',
  'admin:\n  tokens:\n    operate: {joe: "S",\n      ann: "S", }\n    wrong: {a: S}\n',
  'admin:\n  tokens:\n    operate:\n      joe: "SSSSSSS\n',
  'seal_keys: ["S"]\n',
  'seal_keys: "Saaaaaaaaaaaaaaaaaaaaaaa\n  Sbbbbbbbbbbbbbbbbb", foo: 1\n',
  'seal_keys:\n- S\n- "S"\n- |\n  S\n',
  'seal_keys: [SSSSSSSSSSSSSSSSSSSS, "S\n',
  'traces: {otlp: "http://u:S@h/"}\n',
  'traces: {otlp: "http://h/", headers: {x: "S\\nx", "y z": S}, wrong: 1}\n',
  'upstreams: {a: {url: "http://u:S@h/"}}\n',
  'upstreams: {a: {url: "http://h/", auth: {bearer: "S S"}, wrong: 1}}\n',
  'upstreams: {a: {url: "http://h/", auth: {basic: "S S"}, wrong: 1}}\n',
  'upstreams: {a: {url: "http://h/", auth: {header: "Bearer S S"}, wrong: 1}}\n',
  'upstreams: {a: {url: "http://h/", headers: {x: "S\\nx", authorization: \'Bearer S\'}}, wrong: 1}\n',
  'upstreams:\n  a:\n    command: [npx, "--token", "S", --api-key=S, wrong]\n    process: {env: {A: S, "B C": S}}\n    wrong: 1\n',
  'upstreams:\n  a:\n    command:\n    - npx\n    - --token\n    - S\n    - wrong: x\n',
  'upstreams:\n  a:\n    process:\n      env:\n        A=B: S\n        "B C": "S"\n',
  'upstreams:\n  a: {auth: {client_credentials: {client: x, secret: "S\\tS", wrong: 1}}}\n',
}

-- Keys whose values are addresses, each with one that is none or that is refused; `A` is the address.
local places = {
  "listen: A\n", "listen: [A, A]\n", "listen:\n- A\n", "listen: [{address: A, wrong: 1}]\n", "admin: {listen: A}\n", "hosts: [A]\nwrong: 1\n",
  "cors: {origins: [A], wrong: 1}\n", "trusted_proxies: [A]\nwrong: 1\n", "traces: {otlp: A}\nwrong: 1\n", "A: 1\n", "workers: A\n",
  "upstreams: {a: {url: A, wrong: 1}}\n", "upstreams:\n  a:\n    url: A\n", "upstreams: {a: {command: [npx, A], wrong: 1}}\n",
  "auth: {issuer: A, jwks: A, introspection: {url: A}}\nwrong: 1\n", "scripts: {grants: {tools: {http: [A]}}, wrong: 1}\n", "limits: {body: A}\n",
  "listen: A # A\n  wrong", "x: [A\n", "wrong: {x: A\n", "{A: A\n",
}

-- `S` is a secret.
local addresses = {
  "user:S@host", "user:S@host:8080/path", "//user:S@host/x", "http://user:S@host", "user:S@host?x", "//S@host", "S@host:80", "S@host/path",
  "user:S/S@host", "user:S@S@host", "user:S:S@[::1]:80", "user:S%40@host", "https://S@host", "ftp://u:S@host/", "u:SSSSSSSSSSSSSSSSSSSSSSSS@h", ":S@host",
}

-- How a value may be written: plain, or in quotes, where it may have spaces and quotes.
local forms = {
  { "%s" }, { '"%s"' }, { "'%s'" }, { '"%s"', "S S" }, { "'%s'", 'S"S' }, { "'%s'", "S''S" }, { '"%s"', "S'S" }, { "[%s,b:c@d]" }, { "{x: %s, y: '%s'}" },
}

describe("a report about a configuration", function()
  it("shows no user and no password of an address, with or without a scheme, wherever it stands", function()
    local dir = gateway.prepare {}
    for i, place in ipairs(places) do
      for j, address in ipairs(addresses) do
        local form = forms[(i + j) % #forms + 1]
        local secret = address:gsub("S+", function(run) return (form[2] or run):gsub("S+", MARK) end)
        local text = place:gsub("A", function() return (form[1]:gsub("%%s", function() return secret end)) end)
        local file = assert(io.open(dir .. "/moonpool.yaml", "wb"))
        file:write(text)
        file:close()
        local _, out, err = gateway.exec({ j == 1 and "config" or "check", "moonpool.yaml" }, { cwd = dir })
        assert.is_nil((out .. err):find(MARK, 1, true), text .. out .. err)
      end
    end
    os.remove(dir .. "/moonpool.yaml")
    os.remove(dir .. "/scripts")
    os.remove(dir)
  end)

  it("quotes lines without the secrets in them, also where the file is no valid YAML", function()
    for _, text in ipairs(files) do
      local dir = gateway.prepare { config = (text:gsub("%f[%w]S+%f[%W]", function(run) return MARK:rep(#run) end)) }
      local code, out, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
      assert.not_equal(0, code, text)
      assert.matches("moonpool.yaml:%d+:%d+: ", out .. err)
      assert.is_nil((out .. err):find(MARK, 1, true), text .. out .. err)
      os.remove(dir .. "/moonpool.yaml")
      os.remove(dir .. "/scripts")
      os.remove(dir)
    end
  end)

  it("shows what is no secret, with the caret below it", function()
    local dir = gateway.prepare { config = 'admin: {listen: "127.0.0.1:0", tokens: {operate: {joe: "' .. ("x"):rep(16) .. '"}}, wrong: 1}\nworkers: many\n' }
    local _, out, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
    assert.matches('    admin: {listen: "127.0.0.1:0", tokens: {operate: {joe: "****************"}}, wrong: 1}\n' .. (" "):rep(59) .. "^", out .. err, 1, true)
    assert.matches("workers: many", out .. err, 1, true)
    os.remove(dir .. "/moonpool.yaml")
    os.remove(dir .. "/scripts")
    os.remove(dir)
  end)

  it("shows times below sign_in.tokens, which are none", function()
    for _, config in ipairs { "sign_in: {tokens: {access: 1h, refresh: 90d, wrong: 1}}\n", "sign_in:\n  tokens:\n    access: 1hour\n" } do
      local dir = gateway.prepare { config = config }
      local _, out, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
      assert.equal(config:find "1hour" and "access: *****" or "access: 1h", (out .. err):match "access: [*%w]+")
      os.remove(dir .. "/moonpool.yaml")
      os.remove(dir .. "/scripts")
      os.remove(dir)
    end
  end)

  it("shows the names of variables and files, and not what ${NAME:-text} has for them", function()
    local config = 'upstreams: {a: {url: "http://h/", headers: {x: "${NAME}", y: "Bearer ${file:/run/a-b}", z: "${NAME:-' .. MARK .. '}"}, wrong: 1}}\n'
    local dir = gateway.prepare { config = config }
    local _, out, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
    local code = out .. err
    assert.matches('"*******${file:/run/a-b}"', code, 1, true)
    assert.is_nil(code:find(MARK, 1, true), code)
    os.remove(dir .. "/moonpool.yaml")
    os.remove(dir .. "/scripts")
    os.remove(dir)
  end)

  it("of a reload is in the log, in /status and in the answer without them", function()
    local good = 'listen: "127.0.0.1:0"\nadmin: {listen: "127.0.0.1:0", tokens: {operate: {joe: "' .. MARK:rep(4) .. '"}}}\nscripts: {watch: false}\n'
    local g <close> = gateway.start { config = good }
    local file = assert(io.open(g.dir .. "/moonpool.yaml", "wb"))
    file:write((good:gsub('"}}}\n', '"}}, wrong: 1}\n')))
    file:close()
    local answer = client.request(g, { method = "POST", path = "/reload" }, { admin = true })
    assert.matches("unknown key 'wrong'", answer.body, 1, true)
    g:wait_log "config refused"
    for _, text in ipairs { answer.body, g:admin("/status").body, g:log() } do assert.is_nil(text:find(MARK, 1, true), text) end
  end)
end)
