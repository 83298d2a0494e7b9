-- What commands print on a terminal: nothing of a server's texts that a terminal obeys, or that changes what is seen.
local gateway = require "spec.helpers.gateway"

local MARKS <const> = "\27]52;c;aGk=\7 \27[2J \u{9b}31m \u{202e}evil\u{200b} \r \8"

-- The text of a script in which MARKS is replaced by these marks, as a string of Lua.
local function marked(text) return (text:gsub("MARKS", function() return ("%q"):format(MARKS) end)) end

local scripts = {
  ["tools/say.lua"] = marked [[return tool { "Says " .. MARKS, title = "T" .. MARKS, input = { a = t.string { "A" .. MARKS, default = "x" } },
    function(_, call) call:log("info", "log" .. MARKS) call:progress(1, 2, "step" .. MARKS) return "result" .. MARKS end }]],
  ["tools/refuse.lua"] = marked [[return tool { "Refuses.", function() fail("no" .. MARKS) end }]],
  ["tools/made.lua"] = marked [[return tool { "Structured.", output = { a = t.string }, function() return { a = "s" .. MARKS } end }]],
  ["resources/note.lua"] = marked [[return resource { "Note" .. MARKS, uri = "note://one", "text" .. MARKS }]],
  ["prompts/hello.lua"] = marked [[return prompt { "Hello" .. MARKS, args = { who = t.string { complete = function() return { "you" .. MARKS } end } },
    function() return "prompt" .. MARKS end }]],
}

-- The output of a command that has a terminal for stdout and stderr.
local function on_terminal(dir, ...)
  local words = {}
  for i, word in ipairs { gateway.binary, ... } do words[i] = "'" .. word .. "'" end
  local line = "cd '%s' && TERM=xterm script -qec \"%s\" /dev/null </dev/null 2>&1"
  local pipe <close> = assert(io.popen(line:format(dir, table.concat(words, " "))))
  return (pipe:read "a":gsub("\r\n", "\n"))
end

local function assert_plain(text, ...)
  local what = table.concat({ ... }, " ") .. ":\n" .. text
  assert.is_true(#text > 0, what)
  for _, bad in ipairs { "\27", "\7", "\8", "\r", "\u{9b}", "\u{202e}", "\u{200b}" } do assert.is_nil(text:find(bad, 1, true), what) end
end

describe("on a terminal", function()
  it("no command prints what a server could do to it", function()
    local g <close> = gateway.start { scripts = scripts }
    local front <close> = gateway.start { config = { upstreams = { below = { url = g.url } } } }
    front:client("2025-06-18"):result("tools/list", {})
    for _, row in ipairs {
      { "result", "call", "--url", g.url, "say" }, { "no", "call", "--url", g.url, "refuse" }, { "s", "call", "--url", g.url, "made" },
      { "result", "call", "--url", g.url, "--raw", "say" }, { "text", "read", "--url", g.url, "note://one" },
      { "prompt", "prompt", "--url", g.url, "hello", "who=x" },
      { "Says", "list", "--url", g.url }, { "you", "complete", "--url", g.url, "hello", "who=" },
    } do
      local text = on_terminal(g.dir, table.unpack(row, 2))
      assert_plain(text, table.unpack(row, 2))
      assert.truthy(text:find(row[1], 1, true), text)
    end
    for _, command in ipairs { { "list" }, { "check" }, { "check", "--json" } } do
      assert_plain(on_terminal(g.dir, table.unpack(command)), table.unpack(command))
    end
    for _, command in ipairs { { "check", "--connect" }, { "check", "--connect", "--json" },
      { "upstreams" }, { "doctor", "below" }, { "explain", "below_say" } } do
      assert_plain(on_terminal(front.dir, table.unpack(command)), table.unpack(command))
    end
  end)

  it("is the only place where texts are changed: a pipe gets them as they are, and JSON has the same values", function()
    local g <close> = gateway.start { scripts = scripts }
    local code, out = gateway.exec { "call", "--url", g.url, "say" }
    assert.equal(0, code)
    assert.equal("result" .. MARKS .. "\n", out)
    local _, text = gateway.exec({ "check", "--json" }, { cwd = g.dir })
    for _, one in ipairs(require "cjson.safe".decode(text).tools) do
      if one.name == "say" then assert.equal("T" .. MARKS, one.title) end
    end
  end)
end)
