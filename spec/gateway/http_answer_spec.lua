-- What http.get and its siblings send, and what they give for what comes back.
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"

local function start(server, scripts, more)
  local config = { scripts = { allow = { net = { server.at } } }, limits = { http = { idle = "100ms" } } }
  for key, value in pairs(more or {}) do config.limits.http[key] = value end
  return gateway.start { scripts = scripts, workers = 1, config = config }
end

-- A tool `run` whose body is `code`, with the stub's URL as `url`.
local function tool(server, code)
  return { ["tools/run.lua"] = ("local url = %q\nreturn tool { 'Runs.', input = { with = t.any { optional = true } }, function(args, call)\n%s\nend }"):format(server.url, code) }
end

local function run(me, with)
  return me:result("tools/call", { name = "run", arguments = { with = with } })
end

describe("http.get", function()
  it("gives status, headers, body and JSON", function()
    local server <close> = stub.start(function(_, reply)
      reply:send(200, { { "X-Kind", "a" }, { "x-kind", "b" }, { "Set-Cookie", "a=1" }, { "Set-Cookie", "b=2" } }, '{"n":[1,2]}')
    end)
    local g <close> = start(server, tool(server, [[
      local res = try(http.get(url .. "/x", { query = { q = "a b&c", page = 2, tags = { "x", "y" } }, headers = { ["X-Key"] = "k" } }))
      return { status = res.status, kind = res.headers["x-kind"], kinds = res:values "X-Kind", cookie = res.headers["set-cookie"],
        cookies = res:values "set-cookie", body = res.body, n = try(res:json()).n, url = res.url }
    ]]))
    local me = g:client "2026-07-28"
    local got = run(me).structuredContent
    assert.same({ status = 200, kind = "a, b", kinds = { "a", "b" }, cookie = "a=1", cookies = { "a=1", "b=2" }, body = '{"n":[1,2]}', n = { 1, 2 },
      url = server.url .. "/x?page=2&q=a%20b%26c&tags=x&tags=y" }, got)
    local asked = server.requests[1]
    assert.equal("page=2&q=a%20b%26c&tags=x&tags=y", asked.query)
    assert.equal("k", asked.headers["x-key"])
    assert.matches("^moonpool/", asked.headers["user-agent"])
    me:close()
    assert.is_empty_house(g)
  end)
end)
