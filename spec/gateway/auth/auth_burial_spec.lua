-- Streams that stay open when the scripts that authenticated them are gone: the data of their principals outlives the
-- Lua state that made them, which another thread frees meanwhile. Errors here show in the builds with sanitizers.
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"

local ROUNDS <const>, LISTENERS <const> = 12, 24

describe("listeners", function()
  it("come and go, in any order, while each reload frees the generation that authenticated them", function()
    local g <close> = gateway.start { config = { scripts = { watch = false } },
      scripts = { ["auth/main.lua"] = credentials.script, ["tools/who.lua"] = credentials.who } }
    local open, me = {}, {}
    for i, name in ipairs { "ann", "bob", "carl" } do me[i] = g:client("2026-07-28", { token = name .. "-1" }) end
    local function listen(i)
      local stream = me[i % #me + 1]:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
      stream:wait "notifications/subscriptions/acknowledged"
      return stream
    end
    for i = 1, LISTENERS do open[i] = listen(i) end
    for n = 1, ROUNDS do
      local file <close> = assert(io.open(g.dir .. "/scripts/auth/main.lua", "w"))
      file:write(("local ballast = {} for i = 1, 30000 do ballast[i] = { %d } end\n"):format(n), credentials.script)
      file:close()
      assert.equal(200, g:admin("/reload", "POST").status)
      for i = n % 2 + 1, LISTENERS, 2 do open[i]:close() end      -- while the old states are freed
      for i = n % 2 + 1, LISTENERS, 2 do open[i] = listen(i + n) end
    end
    for i, one in ipairs(me) do assert.equal("user:" .. ({ "ann", "bob", "carl" })[i], (credentials.ask(one))) end
    for _, stream in ipairs(open) do stream:close() end
    for _, one in ipairs(me) do one:close() end
    assert.has_nothing_left(g)
  end)
end)
