-- The pages of the dashboard that run tools, read resources and get prompts, in Debian's chromium. Without chromium
-- they are not tested, and the spec says so.
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local node = require "spec.helpers.node"
local task_client = require "spec.helpers.task_client"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"

local token = ("o"):rep(32)
local chromium = uv.fs_stat "/usr/bin/chromium" and "/usr/bin/chromium"

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

describe("the pages of tools, resources and prompts", function()
  it("run them by keyboard alone; names and results that look like HTML are inert", function()
    if not chromium then
      pending "there is no chromium: apt-get install chromium"
      return
    end
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, {
      config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { me = token } } }, log = { audit = "audit.log" } }, scripts = {
        ["tools/order.lua"] = [[return tool { "Places an order.\nSecond line.", title = "Order <b>x</b>", input = {
          item = t.string { description = "What to order" }, count = t.optional(t.integer { min = 1 }), express = t.optional(t.boolean),
          size = t.one_of { "S", "M", "L" }, tags = t.optional(t.list(t.string)), to = t.object { street = t.string, city = t.optional(t.string) },
        }, output = { text = t.string, n = t.integer }, function(args, call)
          for i = 1, 3 do
            call:progress(i, 3, "step " .. i)
            call:log("info", "packing " .. i)
          end
          local sure = call:elicit("sure", "Really order " .. args.item .. "?", { gift = t.boolean, note = t.optional(t.string) })
          if not sure then return nil, "not confirmed" end
          return { text = args.item .. " <img src=x onerror=alert(1)> " .. args.size, n = args.count or 1 }
        end }]],
        ["tools/hold.lua"] = 'return tool { "Holds.", destructive = true, scopes = { "hold" }, function() sleep(300) end }',
        ["tools/long.lua"] = 'return tool { "Is long.", task = "required", function() sleep(300) end }',
        ["tools/one_fail.lua"] = 'return tool { "Has the name of a tool of the upstream.", function() return 1 end }',
        ["resources/note.lua"] = 'return resource { "A note.", uri = "note://{name}", function(vars) return "note " .. vars.name .. " <b>bold</b>" end }',
        ["prompts/hello.lua"] = [[return prompt { "Greets.", args = { who = t.string { complete = { "you", "y<b>es</b>", "no" } } },
          function(args) return "Hello " .. args.who end }]],
      },
    })
    local c <close> = g:client("2026-07-28", { capabilities = task_client.CAN })
    task_client.result(g, c, "tools/call", { name = "long", arguments = {} })
    local listener <close> = g:client "2025-11-25"
    listener:get_stream()
    local code, out, err = gateway.run_program(node.path, {
      "spec/clients/run.mjs", chromium, "http://127.0.0.1:" .. g.admin_port, token, g.dir .. "/browser", "build/screens",
    }, { seconds = 400 })
    local found = assert(cjson.decode(out), out .. err)
    assert.is_nil(found.error, tostring(found.error) .. "\n" .. tostring(found.text))
    assert.equal(0, code)
    for _, name in ipairs { "console", "violations", "wide", "unnamed", "axe" } do assert.same({}, found[name], name) end
    assert.equal("item (required)", found.focus)
    assert.same({ true, true }, { found.question, found.answer })
    assert.equal("Leave it as it is", found.kept)
    assert.is_true(found.still_on)
    assert.equal("3 of 3: step 3", found.last)
    assert.same({ n = 2, text = "tea <img src=x onerror=alert(1)> S" }, cjson.decode(found.result))
    assert.equal("Result", found.after)
    assert.same({ "tools/call order", "handler", "tools/call order", "handler" }, found.steps)
    assert.equal("Do not run it", found.safe)
    assert.same({ "you", "y<b>es</b>" }, found.suggested)
    assert.equal(0, found.images)
    for _, url in ipairs(found.requests) do assert.is_nil(url:find(token, 1, true), url) end
    local audit = read(g.dir .. "/audit.log")
    -- Three calls: in 2026-07-28 a call with a question is answered, and then sent again with the user's answer.
    assert.equal(3, select(2, audit:gsub('"event":"call"[^\n]*"caller":"token me"[^\n]*"name":"order","outcome":"ok"', "")))
    assert.matches('"caller":"token me"[^\n]*"name":"hold","outcome":"cancelled"', audit)
    assert.equal(2, select(2, audit:gsub('"event":"call run by operator"[^\n]*"why":"tools/call hold"', "")))
    assert.equal(4, select(2, audit:gsub('"event":"switched by operator"[^\n]*"caller":"token me"', "")))
  end)
end)
