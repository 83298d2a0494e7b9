-- No regular expression delays the worker for long, for any expression and text: PCRE2 counts its backtracking but not
-- the bytes that it scans, so a limit on processor time ends the match. Patterns in schemas have that limit, too.
local code = require "spec.helpers.code"
local memory = require "spec.helpers.memory"

local hostile = {
  "^(?:(?=[^x]*+x)|a)*c", "^(?:a(?![^x]*+x))*c", "^(?:(?=\\\\p{L}*+x)|a)*c", "(?i)^(a*)\\\\1b", "^(?:(?:(?=\\\\p{L}*+\\\\p{Lu})|a))*c", "^\\\\X*+x",
  "(?:\\\\p{L}|a)*+(?<=x)", "(?:(?=[^x]*+x)|a)*c",
}

describe("a regular expression that scans a text again and again", function()
  it("ends within its time on texts of every length, with a reason or an answer", function()
    local g <close> = code.start { workers = 1, env = memory.environment() }
    local me = g:client "2026-07-28"
    for _, pattern in ipairs(hostile) do
      for _, length in ipairs { 100, 2000, 100000, 4000000 } do
        local got = assert(code.run(me, ([[
          local text, r = ("a"):rep(%d), try(regex.new "%s")
          local least, found, why = math.huge
          for _ = 1, 5 do -- the processor may be at half its speed for a while
            local before = os.clock()
            found, why = r:test(text)
            least = math.min(least, (os.clock() - before) * 1000)
            if least < 100 then break end
          end
          return { found = found, why = why, ms = least }]]):format(length, pattern), 30))
        assert.truthy(got.found == false or got.why == "limit", pattern)
        assert.truthy(got.ms < 200, ("%s on %d bytes: %f ms"):format(pattern, length, got.ms))
      end
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("finds nothing in texts above 4 MiB, and says so", function()
    local g <close> = code.start { workers = 1, env = memory.environment() }
    local me = g:client "2026-07-28"
    assert.same({ true, "limit" }, code.run(me, [[
      local r = try(regex.new "b$")
      return { (r:test(("a"):rep((1 << 22) - 1) .. "b")), select(2, r:test(("a"):rep(1 << 22) .. "b")) }]]))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is an error of a tool's arguments where it is in the schema", function()
    local g <close> = code.start { workers = 1, env = memory.environment(), scripts = {
      ["tools/check.lua"] = [[return tool { "Checks.", input = { text = t.string { pattern = "^(?:(?=[^x]*+x)|a)*c" } }, function() return "fine" end }]],
    } }
    local me = g:client "2026-07-28"
    local result = me:call("tools/call", { name = "check", arguments = { text = ("a"):rep(1000000) } }).result
    assert.is_true(result.isError)
    assert.truthy(result.content[1].text:find("takes too long to match", 1, true), result.content[1].text)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("an expression that takes long to compile", function()
  it("is refused", function()
    local g <close> = code.start { workers = 1 }
    local me = g:client "2026-07-28"
    local why = code.run(me, [[return select(2, regex.new(("[\u{80}-\u{10ffff}]"):rep(100), "i"))]])
    assert.truthy(why:find("more than 8 caseless ranges of characters beyond ASCII", 1, true), why)
    assert.is_true(code.run(me, [[return regex.new("[\u{e0}-\u{fd}][a-z][\u{400}-\u{4ff}]", "i"):test "\u{c0}Q\u{410}"]]))
    assert.is_true(code.run(me, [[return regex.new(("[\u{80}-\u{10ffff}]"):rep(100)):test(("\u{e0}"):rep(100))]]))
    me:close()
    assert.has_nothing_left(g)
  end)
end)
