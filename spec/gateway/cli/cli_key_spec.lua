-- moonpool key and moonpool token: auth.keys and auth.jwt accept their output.
local gateway = require "spec.helpers.gateway"
local tokens = require "spec.helpers.tokens"
local uv = require "luv"

local dir

local function moonpool(...) return gateway.exec({ ... }, { cwd = dir }) end

local function read(name)
  local file <close> = assert(io.open(dir .. "/" .. name, "rb"))
  return file:read "a"
end

before_each(function() dir = assert(uv.fs_mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/moonpool-XXXXXX")) end)
after_each(function() os.execute("rm -rf '" .. dir .. "'") end)

describe("moonpool key new", function()
  it("prints a key of 256 bits and the line with its hash, which does not have it", function()
    local code, out, err = moonpool("key", "new", "ci", "--scopes", "notes:read,notes:write", "--expires", "1d")
    assert.same({ 0, "" }, { code, err })
    local key = out:match "\n  (mp_[%w_-]+)\n"
    assert.equal(43, #key - 3)
    local hash, day = out:match "\n  ci sha256:(%x+) notes:read,notes:write (%d+%-%d+%-%d+)\n$"
    assert.equal(tokens.keys.sha256(key), (hash:gsub("%x%x", function(two) return string.char(tonumber(two, 16)) end)))
    assert.equal(os.date("%Y-%m-%d", os.time() + 86400), day)
    assert.is_not.equal(out, (select(2, moonpool("key", "new", "ci"))))
  end)

  it("appends to a file, and prints the key alone", function()
    local _, one = moonpool("key", "new", "one", "--file", "keys")
    moonpool("key", "new", "two", "--file", "keys", "-s", "a")
    assert.matches("^mp_[%w_-]+\n$", one)
    assert.matches("^one sha256:%x+ %-\ntwo sha256:%x+ a\n$", read "keys")
  end)

  it("says what it wants", function()
    for _, words in ipairs { { "new" }, { "new", "a b" }, { "new", "a", "-s", 'x"y' }, { "new", "a", "-e", "soon" }, { "nwe" }, {}, { "pair" } } do
      local code, out, err = moonpool("key", table.unpack(words))
      assert.same({ 2, "" }, { code, out })
      assert.matches("\n  hint: ", err)
    end
    assert.equal(1, (moonpool("key", "new", "a", "--file", "nowhere/keys")))
  end)
end)

describe("moonpool key password", function()
  local function set(name, word, ...)
    assert(io.open(dir .. "/word", "w")):write(word, "\n"):close()
    local input = assert(uv.fs_open(dir .. "/word", "r", 0))
    local code, out, err = gateway.exec({ "key", "password", name, "--file", "users.txt", ... }, { cwd = dir, stdin = input })
    uv.fs_close(input)
    return code, out, err
  end

  it("puts a line into a private file, and a new one in place of the user's old one", function()
    assert.same({ 0, "", "" }, { set("ann", "hello12345", "--scopes", "a,b") })
    assert.equal(384, uv.fs_stat(dir .. "/users.txt").mode & 511)
    assert.equal(0, (set("bob", "hello12345")))
    local first = read "users.txt"
    assert.matches("^ann scrypt:32768:8:3:[%w_-]+:[%w_-]+ a,b\nbob scrypt:%S+\n$", first)
    assert(io.open(dir .. "/users.txt", "a")):write("\n# end"):close()
    local code, out = set("ann", "hello54321")
    assert.equal(0, code)
    assert.truthy(out:find("all sign-ins of ann end", 1, true))
    local second = read "users.txt"
    assert.matches("^ann scrypt:%S+\nbob scrypt:%S+\n\n# end$", second)
    assert.equal(first:match "bob %S+", second:match "bob %S+")
    assert.is_not.equal(first:match "ann (%S+)", second:match "ann (%S+)")
    set("eve", "hello12345")
    assert.matches("\n# end\neve scrypt:%S+\n$", read "users.txt")
  end)
end)

describe("moonpool key pair and moonpool token", function()
  it("go together, by every algorithm", function()
    for _, algorithm in ipairs { "RS256", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519" } do
      local name = algorithm .. ".pem"
      local code, public = moonpool("key", "pair", name, "--alg", algorithm)
      assert.equal(0, code)
      assert.equal(384, uv.fs_stat(dir .. "/" .. name).mode & 511)
      local _, token, err = moonpool("token", "--key", name, "sub=ann", "aud=https://a.test", "groups:=[1]", "--scope", "a b", "--expires", "10m",
        "--alg", algorithm, "--kid", "k1")
      assert.equal("", err)
      local head, payload, signature, input = tokens.keys.split((token:gsub("\n$", "")))
      assert.is_true(tokens.keys.public(public):verify(algorithm, input, signature))
      assert.same({ alg = algorithm, typ = "at+jwt", kid = "k1" }, tokens.json.decode(head))
      local claims = tokens.json.decode(payload)
      assert.same({ "ann", "https://a.test", "a b", 1, 600 }, { claims.sub, claims.aud, claims.scope, claims.groups[1], claims.exp - claims.iat })
    end
  end)

  it("write over nothing, and say what is wrong", function()
    moonpool("key", "pair", "a.pem")
    local before = read "a.pem"
    local code, out, err = moonpool("key", "pair", "a.pem")
    assert.same({ 1, "" }, { code, out })
    assert.matches("a.pem exists already", err)
    assert.equal(before, read "a.pem")
    for said, words in pairs {
      ["needs %-%-key"] = { "sub=a" }, ["No such file"] = { "-k", "b.pem" }, ["is not a claim"] = { "-k", "a.pem", "sub" },
      ["is not a duration"] = { "-k", "a.pem", "-e", "1y" },
      ["does not fit RS256"] = { "-k", "a.pem", "--alg", "RS256" }, ["is no JSON"] = { "-k", "a.pem", "n:=x" },
    } do
      code, out, err = moonpool("token", table.unpack(words))
      assert.is_true(code ~= 0 and out == "")
      assert.matches(said, err)
    end
    assert.is_nil(select(3, moonpool("token", "-k", "a.pem", "--alg", "RS256")):find("PRIVATE", 1, true))
  end)
end)
