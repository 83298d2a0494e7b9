-- Passwords that come at once: how many are hashed, wait and are judged, and what is left of those whose browser has gone.
local cjson = require "cjson"
local signing_in = require "spec.helpers.signing_in"
local uv = require "luv"
local wait = require "spec.helpers.wait"

-- Sends the password form on `count` connections at once: the connections.
local function send(g, browser, page, count, password)
  local token, connections = page.body:match 'name="form" value="([^"]+)"', {}
  for i = 1, count do
    connections[i] = g:connect()
    connections[i]:send { method = "POST", path = "/oauth/password", body = signing_in.form { form = token, name = "ann", password = password },
      headers = { Host = "127.0.0.1:7300", Cookie = browser.cookie, Origin = signing_in.url, ["Content-Type"] = "application/x-www-form-urlencoded" } }
  end
  return connections
end

local function audited(g, reason)
  local count = 0
  for line in g:file "audit.jsonl":gmatch "[^\n]+" do
    if cjson.decode(line).why == reason then count = count + 1 end
  end
  return count
end

describe("wrong passwords at once", function()
  it("have eight places for one address, and are not all judged", function()
    local g <close> = signing_in.start({ log = { audit = "audit.jsonl" } }, { workers = 2 })
    local ann = signing_in.browser(g)
    local page = ann:allow(ann:begin((signing_in.register(g))))
    local statuses = { [403] = 0, [503] = 0 }
    local began = uv.hrtime()
    local connections = send(g, ann, page, 16, "hello12346")
    for _, connection in ipairs(connections) do
      local status = connection:read_response().status
      statuses[status] = statuses[status] + 1
      connection:close()
    end
    local seconds = (uv.hrtime() - began) // 1000000000
    assert.is_true(statuses[403] >= 1 and statuses[503] >= 1, cjson.encode { statuses[403], statuses[503] })
    wait.for_fact("lines of the audit", 5, function()
      return audited(g, "wrong name or password") + audited(g, "too many wrong passwords") == statuses[403]
    end)
    local judged = audited(g, "wrong name or password")
    assert.is_true(judged >= 1 and judged <= 7 + seconds, judged .. " passwords were judged")        -- a wait begins with a second
    assert.has_nothing_left(g)
  end)
end)

describe("a browser that leaves", function()
  it("leaves no more than two hashes, which are counted until they are computed", function()
    local g <close> = signing_in.start()
    local ann = signing_in.browser(g)
    local page = ann:allow(ann:begin((signing_in.register(g))))
    for _ = 1, 2 do
      local connections = send(g, ann, page, 8, signing_in.password)
      g:wait_status(function(status) return status.gauges.password_hashes > 0 end)
      for _, connection in ipairs(connections) do connection:reset() end
      assert.is_true(g:status().gauges.password_hashes <= 2)
    end
    g:wait_status(function(status) return status.gauges.password_hashes == 0 end)
    assert.equal(303, ann:sign_in(ann:allow(ann:begin((signing_in.register(g)))), "bob").status)
    assert.has_nothing_left(g)
  end)
end)

describe("a page that finds no place", function()
  it("is refused before it has used up a code", function()
    local slow = signing_in.users:gsub("ann scrypt:32768:8:3:", "ann scrypt:65536:8:8:", 1)
    local g <close> = signing_in.start(nil, { files = { ["users.txt"] = slow }, constants = { sign_in_pages = 4 } })
    local client = signing_in.register(g)
    local code = signing_in.code(g, client, nil, "bob")
    local ann = signing_in.browser(g)
    local connections = send(g, ann, ann:allow(ann:begin(client)), 4, signing_in.password)
    g:wait_status(function(status) return status.gauges.sign_in_pages == 4 end)
    local refused = signing_in.redeem(g, client, code)
    assert.equal(503, refused.status)
    assert.truthy(tonumber(refused.headers["retry-after"]))
    assert.equal(1, g:status().counters.refused.auth_pending)
    for _, connection in ipairs(connections) do connection:reset() end
    g:wait_status(function(status) return status.gauges.sign_in_pages == 0 end)
    assert.equal(200, signing_in.redeem(g, client, code).status)
    assert.has_nothing_left(g)
  end)
end)
