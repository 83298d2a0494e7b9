-- One script of each kind in every form that the API promises: they load together, and behave as described.
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"

local scripts = {
  -- the short form: the comment is the description, the annotations are the schema
  ["tools/add.lua"] = [[
--- Add two numbers.
---@param a number
---@param b number
return function(a, b) return a + b end
]],
  ["tools/convert.lua"] = [[
return tool {
  "Convert a temperature.",
  input = { degrees = t.number { "As read", min = -460 }, to = t.one_of { "celsius", "fahrenheit", default = "celsius" } },
  function(args) return args.to == "celsius" and (args.degrees - 32) / 1.8 or args.degrees * 1.8 + 32 end,
}
]],
  -- waits, reports progress, and is cancelled cleanly at each wait
  ["tools/titles.lua"] = [[
return tool {
  "Read web pages and return their titles.",
  input = { urls = t.list(t.string { format = "uri" }, { min = 1, max = 20 }) },
  timeout = 60 * seconds, read_only = true,
  function(args, call)
    local titles = {}
    for i, url in ipairs(args.urls) do
      local page = try(http.get(url, { timeout = 5 * seconds }))
      titles[url] = page.body:match "<title>(.-)</title>" or "(untitled)"
      call:progress(i, #args.urls, url)
    end
    return titles
  end,
}
]],
  ["resources/order.lua"] = [[
return resource {
  "An order, as JSON.",
  uri = "orders://{region}/{id}", mime = "application/json", ttl = 30 * seconds, complete = { region = { "eu", "us" } },
  function(vars)
    local res = try(http.get(env "ORDERS_URL" .. "/" .. vars.region .. "/" .. vars.id))
    if res.status == 404 then return nil end
    return res:json()
  end,
}
]],
  ["prompts/review.lua"] = [[
return prompt {
  "Review a change as a kind, exact colleague.",
  args = { language = t.string { complete = { "c", "go", "lua", "python" } }, diff = t.string "A unified diff" },
  function(args) return { user("Review this " .. args.language .. " change.\n\n" .. args.diff) } end,
}
]],
  ["policy/keys.lua"] = [[
return policy {
  tools = { "gh_*" },
  function(call, next)
    if call.args.repo == "internal/keys" then fail "that repository is not served here" end
    return next(call)
  end,
}
]],
  ["tools/gh/read.lua"] = 'return tool { "Read.", input = { repo = t.string }, function(args) return args.repo end }',
  -- asks its user: the same script for stateful and stateless revisions
  ["tools/orders/delete.lua"] = [[
local orders = { delete = function(ids) return #ids .. " deleted" end }
return tool {
  "Delete orders.", destructive = true,
  function(_, call)
    local ids = { 1, 2 }
    local yes, why = call:elicit("sure", "Delete 42 orders?", { confirm = t.boolean })
    if not (yes and yes.confirm) then return nil, why or "left as it was" end
    local receipt = call:once("delete", function() return orders.delete(ids) end)
    return receipt
  end,
}
]],
}

local able = { elicitation = { form = { [" "] = 1 } } }

describe("a script of each kind", function()
  it("loads unchanged, and does what its comments say", function()
    local web <close> = stub.start(function(request, reply)
      if request.path == "/eu/7" then return reply:json { id = 7 } end
      if request.path == "/page" then return reply:send(200, {}, "<title>A page</title>") end
      reply:send(404, {}, "")
    end)
    local address = "127.0.0.1:" .. web.port
    local g <close> = gateway.start {
      scripts = scripts, env = { ORDERS_URL = "http://" .. address },
      constants = { http_idle_ms = 5 }, config = { scripts = { allow = { net = { address }, env = { "ORDERS_URL" } } } },
    }
    local me = g:client("2026-07-28", { capabilities = able })
    local function tool(name, arguments) return me:result("tools/call", { name = name, arguments = arguments }) end
    assert.equal("5", tool("add", { a = 2, b = 3 }).content[1].text)
    assert.equal("100", tool("convert", { degrees = 212 }).content[1].text)
    local page = "http://" .. address .. "/page"
    assert.same({ [page] = "A page" }, tool("titles", { urls = { page } }).structuredContent)
    assert.equal('{"id":7}', me:result("resources/read", { uri = "orders://eu/7" }).contents[1].text)
    assert.equal(-32602, me:call("resources/read", { uri = "orders://eu/8" }).error.code)
    assert.matches("^Review this lua change", me:result("prompts/get", { name = "review", arguments = { language = "lua",
      diff = "+" } }).messages[1].content.text)
    assert.equal("a/b", tool("gh_read", { repo = "a/b" }).content[1].text)
    local refused = tool("gh_read", { repo = "internal/keys" })
    assert.same({ true, "that repository is not served here" }, { refused.isError, refused.content[1].text })
    local asked = tool("orders_delete", {})
    assert.equal("Delete 42 orders?", asked.inputRequests.sure.params.message)
    local answer = me:result("tools/call", {
      name = "orders_delete", arguments = {}, requestState = asked.requestState,
      inputResponses = { sure = { action = "accept", content = { confirm = true } } },
    })
    assert.equal("2 deleted", answer.content[1].text)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
