-- What `moonpool upstreams` and /status say besides counts: process ids, what the clients of channels can be asked, and
-- how many things are hidden.
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"

local EMPTY <const> = { [" "] = 1 }

describe("the state of upstreams", function()
  it("has the process ids of programs, the classes of channels and the number of hidden things", function()
    local program <close> = upstream.start { transport = "stdio", revision = "2025-11-25" }
    local server <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = program, two = server }, { entries = { two = { hide = { "echo", "fail" } } } })
    local c <close> = g:client("2025-11-25", { capabilities = { elicitation = { form = EMPTY }, roots = EMPTY } })
    upstream.text(c:call("tools/call", { name = "two_sum", arguments = { a = 1, b = 2 } }))
    upstream.text(c:call("tools/call", { name = "one_sum", arguments = { a = 1, b = 2 } }))
    local all = g:wait_status(function(status) return #status.upstreams.one.pids == 2 end).upstreams
    local known = {}
    for _, child in ipairs(program.children) do known[child.pid] = true end
    for _, pid in ipairs(all.one.pids) do assert.is_true(known[pid], "no program has the process id " .. pid) end
    assert.same({ none = 1, ["form+roots"] = 1 }, all.two.classes)
    assert.same({ 2, 0 }, { all.two.served.hidden, all.one.served.hidden })
    assert.is_nil(all.two.pids)
    local code, out = gateway.exec { "upstreams", "--admin", "127.0.0.1:" .. g.admin_port }
    assert.equal(0, code)
    assert.truthy(out:find("2 processes %(pid %d+, %d+%)"), out)
    assert.truthy(out:find("2 channels (1 form+roots, 1 none)", 1, true), out)
    assert.truthy(out:find("2 hidden", 1, true), out)
  end)
end)
