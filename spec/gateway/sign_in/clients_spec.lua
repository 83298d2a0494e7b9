-- Official clients that sign in at a gateway by themselves, with a person who has a line in its password file; and the
-- official conformance suite for authorization servers.
local cjson = require "cjson.safe"
local free_port = require "spec.helpers.free_port"
local gateway = require "spec.helpers.gateway"
local node = require "spec.helpers.node"
local signing_in = require "spec.helpers.signing_in"
local uv = require "luv"

-- A gateway at the address by which its pages and metadata name it: clients go there.
local function started()
  local port = free_port()
  local url = "http://127.0.0.1:" .. port
  return signing_in.start({ public_url = url, listen = { { address = "127.0.0.1:" .. port } } }, {}), url, port
end

local function run(script, ...)
  return gateway.run_program(node.path, { node.folder .. "/" .. script, ... }, { seconds = 60 })
end

-- What a client said: its lines by the names of their facts.
local function facts_of(code, out, err)
  local facts = {}
  assert.same({ 0, "" }, { code, err }, out)
  for line in out:gmatch "[^\n]+" do
    local fact = assert(cjson.decode(line), line)
    facts[fact.fact] = fact
  end
  return facts
end

local WHO <const> = "password:ann notes:read notes:write"

describe("the official TypeScript SDK", function()
  for _, version in ipairs { "1", "2" } do
    it("signs in, refreshes and comes back, " .. version .. ".x", function()
      local _ <close>, url = started()
      local facts = facts_of(run("sign_in.mjs", version, url .. "/mcp", "ann", signing_in.password))
      assert.equal("UnauthorizedError", facts.refused.error)
      assert.same({ fact = "signed in", pages = { "answer", "name" }, state = "a state", iss = url, at = "http://127.0.0.1:4711/callback" },
        facts["signed in"])
      assert.equal(WHO, facts.called.text)
      assert.same({ fact = "refreshed", text = WHO, times = 1 }, facts.refreshed)
      assert.equal(WHO, facts["came back"].text)
    end)
  end
end)

describe("the official Python SDK", function()
  for _, version in ipairs { "1.30.0", "2.3.0" } do
    it("signs in, refreshes and comes back, " .. version, function()
      local python = ("%s/build/python/%s/bin/python"):format(uv.cwd(), version)
      if not uv.fs_stat(python) then return pending("there is no python-sdk " .. version) end
      local _ <close>, url = started()
      local facts = facts_of(gateway.run_program(python, { uv.cwd() .. "/spec/upstreams/python/sign_in.py", url .. "/mcp", node.path,
        node.folder .. "/person.mjs", "ann", signing_in.password }, { seconds = 60 }))
      assert.same({ fact = "called", text = WHO, times = 1 }, facts.called)
      assert.same({ fact = "refreshed", text = WHO, times = 1 }, facts.refreshed)
      assert.same({ fact = "came back", text = WHO, times = 1 }, facts["came back"])
    end)
  end
end)

describe("mcp-remote", function()
  it("signs in, and comes back with what it has kept", function()
    local _ <close>, url = started()
    local facts = facts_of(run("remote.mjs", url .. "/mcp", tostring(free_port()), "ann", signing_in.password))
    assert.equal(WHO, facts.called.text)
    assert.equal(WHO, facts["came back"].text)
  end)
end)

describe("the official conformance suite for authorization servers", function()
  it("passes, and skips nothing", function()
    local g <close>, url = started()
    local port = free_port()
    local client = signing_in.register(g, { redirect_uris = { ("http://127.0.0.1:%d/callback"):format(port) } }, { Host = url:match "//(.*)" })
    local code, out, err = run("authorization.mjs", url, url .. "/mcp", client.client_id, tostring(port), "ann", signing_in.password)
    assert.same({ 0, "" }, { code, err }, out)
    for _, scenario in ipairs { "authorization-server-metadata-endpoint: 2", "authorization-code-grant: 1" } do
      assert.truthy(out:find("✓ " .. scenario .. " passed, 0 failed\n", 1, true), out)
    end
    assert.truthy(out:find("\nTotal: 3 passed, 0 failed\n", 1, true), out)
  end)
end)
