-- URI templates, patterns of arguments and `regex` take a bounded time, for any template, pattern and text (B-120).
local uv = require "luv"
local gateway = require "spec.helpers.gateway"

-- For a debug build on a machine at half its speed: exponential matching takes seconds, or never ends.
local SLACK <const> = os.getenv "TSAN_OPTIONS" and 60 or os.getenv "ASAN_OPTIONS" and 20 or 6

local function values(operator, count, between)
  local list = {}
  for i = 1, count do list[i] = "{" .. operator .. "v" .. i .. "}" end
  return table.concat(list, between)
end

local scripts = {
  ["resources/reserved.lua"] = ("return resource { 'R.', uri = 'r:%s!', function() return 'x' end }"):format(values("+", 16, "a")),
  ["resources/plain.lua"] = ("return resource { 'P.', uri = 'p:%s!', function() return 'x' end }"):format(values("", 16, "a")),
  ["resources/lists.lua"] = "return resource { 'L.', uri = 'l:{a,b,c,d,e,f,g,h}{/i,j,k,l}!', function() return 'x' end }",
  ["resources/query.lua"] = "return resource { 'Q.', uri = 'q:x{?a,b,c}', function() return 'x' end }",
  -- milliseconds of the slowest match
  ["tools/guards.lua"] = [[
local guards = {}
for i, pattern in ipairs {
  "^(a+)+$", "(a|a)*b", "^(([a-z])+.)+[A-Z]([a-z])+$", "(.*)*=(.*)*", "(?=(a+))a*b", "a*a*a*a*a*a*a*b",
} do guards[i] = try(regex.new(pattern)) end
return tool { "Matches.", input = { length = t.integer }, function(args)
  local worst, text = 0, ("a"):rep(args.length) .. "!"
  for _, guard in ipairs(guards) do
    local least = math.huge
    for _ = 1, 12 do -- the machine may have more to do
      local began = time.monotonic()
      guard:test(text)
      least = math.min(least, time.monotonic() - began)
    end
    worst = math.max(worst, least * 1000)
  end
  return worst
end }]],
}

describe("B-120 a match", function()
  local g, me
  lazy_setup(function()
    g = gateway.start { scripts = scripts, workers = 1 }
    me = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    me:close()
    assert.has_nothing_left(g)
    g:stop()
  end)

  it("of a URI of up to 64 KB and any template takes 10 ms and less", function()
    for _, uri in ipairs {
      "r:" .. ("a"):rep(2000), "r:" .. ("a"):rep(60000), "p:" .. ("a"):rep(2000), "l:" .. (","):rep(2000), "l:" .. ("a,"):rep(1000), "l:" .. ("/"):rep(2000),
      "q:x?" .. ("a=1&"):rep(4000), "q:x?" .. ("&"):rep(60000), "r:" .. ("%61"):rep(680), "r:" .. ("%"):rep(2000),
    } do
      local least = math.huge
      for _ = 1, 12 do -- other programs may slow the machine down
        local began = uv.hrtime()
        local answer = me:call("resources/read", { uri = uri }, 20)
        least = math.min(least, (uv.hrtime() - began) / 1e6)
        assert.truthy(answer.error, uri:sub(1, 20))
      end
      assert.is_true(least < 10 * SLACK, ("%s… of %d bytes took %.1f ms"):format(uri:sub(1, 10), #uri, least))
    end
  end)

  it("of a pattern that explodes takes 10 ms and less", function()
    for _, length in ipairs { 30, 1000, 64 * 1024 } do
      local worst = tonumber(me:result("tools/call", { name = "guards", arguments = { length = length } }, 20).content[1].text)
      assert.is_true(worst < 10 * SLACK, ("%d bytes took %.1f ms"):format(length, worst))
    end
  end)
end)
