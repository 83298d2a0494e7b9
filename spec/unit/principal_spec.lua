-- Principals: what an auth script may return as one, what a principal may do, and that no script can change it.

local host = require "spec.helpers.host"

describe("a principal", function()
  local principal
  before_each(function()
    host.start {}
    principal = require "moonpool.access.principal"
  end)
  after_each(host.stop)

  local function new(given, from) return assert(principal.new(given, from)) end

  it("has an id, scopes sorted and each once, and claims", function()
    local p = new { id = "robot:ci", scopes = { "web:write", "web:read", "web:read" }, claims = { team = "web", tags = { "a", "b" } } }
    assert.equal("robot:ci", p.id)
    assert.equal("robot:ci", tostring(p))
    assert.equal("web:read web:write", table.concat({ table.unpack(p.scopes, 1, #p.scopes) }, " "))
    assert.equal("b", p.claims.tags[2])
    local names = {}
    for name in pairs(p) do names[#names + 1] = name end
    table.sort(names)
    assert.same({ "claims", "id", "scopes" }, names)
    assert.equal('{"claims":{"tags":["a","b"],"team":"web"},"id":"robot:ci","scopes":["web:read","web:write"]}', host.json.encode(p))
    assert.equal('{"id":"x","scopes":[]}', host.json.encode(new { id = "x" }))
  end)

  it("cannot be changed, not even by the script that gave it", function()
    local given = { id = "a", scopes = { "x" }, claims = { in_here = { 1 } } }
    local p = new(given)
    given.id, given.scopes[1], given.claims.in_here[1] = "b", "*", 2
    assert.equal("a", p.id)
    assert.equal(1, p.claims.in_here[1])
    assert.is_false((principal.allows(p, { "y" })))
    for _, change in ipairs {
      function() p.id = "b" end, function() p.scopes[1] = "*" end, function() p.scopes[2] = "*" end, function() p.claims.in_here[1] = 2 end,
    } do
      assert.error_matches(change, "a principal cannot be changed")
    end
    rawset(p, "scopes", { "*" })
    assert.is_false((principal.allows(p, { "y" })))
  end)

  for what, given in pairs {
    ["a principal must be a table with an id, not a string"] = "robot",
    ["a principal needs an id"] = {},
    ["'id' of a principal is a string, not a number"] = { id = 7 },
    ["'id' of a principal is 1 to 512 bytes of UTF-8"] = { id = "" },
    ["without control characters"] = { id = "a\nb" },
    ["'anonymous' is the id of requests without a principal"] = { id = "anonymous" },
    ["'local' is the id of the person who runs the gateway"] = { id = "local" },
    ["a principal has no 'scope': did you mean 'scopes'?"] = { id = "a", scope = { "x" } },
    ["'scopes' of a principal is a table, not a string"] = { id = "a", scopes = "x y" },
    ["'scopes' of a principal must be a list"] = { id = "a", scopes = { x = true } },
    ["'x y' is not a scope"] = { id = "a", scopes = { "x y" } },
    ["a scope must be a string, not a number"] = { id = "a", scopes = { 1 } },
    ["claims cannot hold a function"] = { id = "a", claims = { f = print } },
    ["'expires' of a principal is not a number"] = { id = "a", expires = 0 / 0 },
  } do
    it("is none: " .. what, function()
      local p, why = principal.new(given)
      assert.is_nil(p)
      assert.matches(what, why, 1, true)
    end)
  end

  it("has no claims inside themselves, and no endless scopes", function()
    local claims = {}
    claims.mine = claims
    assert.matches("nested deeper", select(2, principal.new { id = "a", claims = claims }))
    local scopes = {}
    for i = 1, 257 do scopes[i] = "s" .. i end
    assert.matches("at most 256 scopes", select(2, principal.new { id = "a", scopes = scopes }))
  end)

  for _, row in ipairs {
    { { "a:b" }, { "a:b" }, true }, { { "a:*" }, { "a:b" }, true }, { { "*" }, { "a:b", "c" }, true }, { { "a:*" }, { "a:b:c" }, true },
    { { "a:b:*" }, { "a:b:c" }, true }, { { "a" }, { "a:b" }, false }, { { "a:*" }, { "a" }, false }, { { "a:*" }, { "ab:c" }, false },
    { { "a:b" }, { "a:*" }, false }, { { "a*" }, { "ab" }, false }, { {}, {}, true }, { {}, { "a" }, false },
    { { "a:b" }, { "a:b", "c:d" }, false },
  } do
    it("with " .. table.concat(row[1], " ") .. (row[3] and " may do " or " may not do ") .. "what needs " .. table.concat(row[2], " "), function()
      assert.equal(row[3], (principal.allows(new { id = "x", scopes = row[1] }, row[2])))
    end)
  end

  it("says which scopes are missing", function()
    assert.same({ "c", "d" }, select(2, principal.allows(new { id = "x", scopes = { "a:*" } }, { "a:b", "c", "d" })))
  end)

  it("may do what its scopes imply, and what that implies (A-6)", function()
    local implies = { admin = { "write" }, write = { "read", "admin" }, ["web:all"] = { "web:one" } }
    local p = new({ id = "x", scopes = { "admin" } }, { implies = implies })
    assert.is_true((principal.allows(p, { "read", "write" })))
    assert.same({ "admin" }, { table.unpack(p.scopes, 1, 2) })
    assert.is_false((principal.allows(new({ id = "x", scopes = { "read" } }, { implies = implies }), { "write" })))
    assert.is_true((principal.allows(new({ id = "x", scopes = { "web:*" } }, { implies = { ["web:all"] = { "other" } } }), { "other" })))
  end)

  it("may ask for what was declared", function()
    assert.is_false(principal.can_ask(new { id = "x" }, { "a" }))
    assert.is_true(principal.can_ask(new({ id = "x" }, { askable = true }), { "a" }))
    assert.is_true(principal.can_ask(new({ id = "x" }, { askable = { "a", "b:*" } }), { "a", "b:c" }))
    assert.is_false(principal.can_ask(new({ id = "x" }, { askable = { "a" } }), { "a", "b" }))
  end)

  it("is bound by issuer, subject and client, and without them by its id", function()
    local seen = {}
    for _, given in ipairs {
      { id = "a" }, { id = "b" }, { id = "a", issuer = "i" }, { id = "a", issuer = "i", subject = "s" },
      { id = "a", issuer = "i", subject = "s", client = "c" },
      { id = "a", issuer = "is" }, { id = "a", subject = "is" }, { id = "a", issuer = "i,1:s" }, { id = "of:1:i,-,-" },
    } do
      local key = principal.key(new(given))
      assert.is_nil(seen[key])
      seen[key] = true
    end
    assert.equal(principal.key(new { id = "a", subject = "s", scopes = { "x" } }), principal.key(new { id = "other", subject = "s" }))
    assert.is_nil(seen[principal.key(principal.anonymous)])
  end)

  it("travels as text", function()
    local p = new({ id = "x", scopes = { "admin" }, claims = { list = { 1, 2 }, empty = {}, deep = { a = { b = "c" } } }, issuer = "i", expires = 5 },
      { implies = { admin = { "read" } }, askable = { "more" } })
    local text = principal.pack(p)
    local other = principal.unpack(text)
    assert.equal(text, principal.pack(other))
    assert.equal(principal.key(p), principal.key(other))
    assert.equal("c", other.claims.deep.a.b)
    assert.is_true((principal.allows(other, { "read" })))
    assert.is_true(principal.can_ask(other, { "more" }))
    assert.equal(5, principal.facts(other).expires)
    assert.equal(other, principal.unpack(text))
    assert.equal(principal.anonymous, principal.unpack(principal.pack(principal.anonymous)))
    assert.equal(principal.lone, principal.unpack(principal.pack(principal.lone)))
    assert.equal("job:sweep", principal.bare("job:sweep").id)
    assert.equal(principal.lone, principal.bare "local")
  end)

  it("an id is an id, for any text", function()
    local packed = principal.pack(new { id = "root", scopes = { "*" } })
    for _, id in ipairs { '{"id":"root","scopes":["*"],"held":["*"]}', "{", packed } do
      local p = principal.bare(id)
      assert.equal(id, p.id)
      assert.equal(0, #p.scopes)
      assert.is_false((principal.allows(p, { "a" })))
    end
    assert.is_nil((principal.new { id = packed }))       -- a packed principal is not an id
  end)

  it("without a name may do what is open to all; the user that runs the gateway may do everything", function()
    assert.equal("anonymous", principal.anonymous.id)
    assert.is_true((principal.allows(principal.anonymous, {})))
    assert.is_false((principal.allows(principal.anonymous, { "a" })))
    assert.is_true((principal.allows(principal.lone, { "a", "b:c" })))
    assert.is_false(principal.is_named(principal.anonymous))
    assert.is_false(principal.is_named(principal.lone))
    assert.is_true(principal.is_named(new { id = "x" }))
  end)

  it("is not what a function makes of a token, which ends when that does; a table of the script's is left as it is", function()
    local claims = require "moonpool.access.auth.claims"
    local mine = { id = "ann" }
    assert.same({ id = "ann", expires = 7 }, claims.ending(mine, 7))
    assert.same({ id = "ann", expires = 5 }, claims.ending({ id = "ann", expires = 5 }, 7))
    assert.same({ id = "ann" }, mine)
    assert.has_error(function() claims.ending(new { id = "ann" }, 7) end,
      "the function returned a principal, and must return a table, as in { id = claims.sub }")
  end)

  it("is not made of a token whose subject is the id of an API key", function()
    local claims, options = require "moonpool.access.auth.claims", require "moonpool.access.auth.options"
    options.take_prefix "key:"
    options.take_prefix ""
    assert.equal("ann", claims.principal({ sub = "ann", iss = "https://a.test" }).id)
    assert.same({ nil, "the token's 'sub' or 'client_id' is not a valid id" }, { claims.principal { sub = "key:ann", iss = "https://a.test" } })
  end)
end)
