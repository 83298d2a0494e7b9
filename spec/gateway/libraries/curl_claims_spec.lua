-- What comments say about the system's libcurl, tried by the program curl, which uses it, and by a gateway.
-- docs/dev/libraries.md names each.
local errand = require "spec.helpers.errand"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"

local function requests_of(server, ...)
  local code, _, err = gateway.run_program("/usr/bin/curl", { "-s", server.url, ... })
  assert.equal(0, code, err)
  return server.requests[#server.requests].headers
end

describe("libcurl", function()
  it("leaves a header out that is written without a value, and sends one with a semicolon empty", function()
    local server <close> = stub.start(function(_, reply) reply:send(200, {}, "") end)
    local headers = requests_of(server, "-H", "X-Out:", "-H", "X-Empty;")
    assert.is_nil(headers["x-out"])
    assert.equal("", headers["x-empty"])
  end)

  it("adds a content-type to a body, unless the header is written without a value", function()
    local server <close> = stub.start(function(_, reply) reply:send(200, {}, "") end)
    assert.equal("application/x-www-form-urlencoded", requests_of(server, "-d", "x")["content-type"])
    assert.is_nil(requests_of(server, "-d", "x", "-H", "content-type:")["content-type"])
  end)

  it("is loaded, with some twenty libraries more, by the first request", function()
    local server <close> = stub.start(function(_, reply) reply:send(200, {}, "") end)
    local g <close> = errand.start { net = { server.at }, code = "return try(http.get(args.url)).status" }
    local function libraries()
      local list, count = {}, 0
      for line in io.lines("/proc/" .. g.pid .. "/maps") do
        local path = line:match "/%S+%.so%S*"
        if path and not list[path] then list[path], count = true, count + 1 end
        if path and path:find "libcurl" then list.curl = true end
      end
      return list, count
    end
    local before, few = libraries()
    assert.is_nil(before.curl)
    local me = g:client "2026-07-28"
    assert.equal("200", errand.run(me, { url = server.url }))
    local after, many = libraries()
    assert.is_true(after.curl)
    assert.is_true(many - few >= 10, many - few)
    me:close()
  end)
end)
