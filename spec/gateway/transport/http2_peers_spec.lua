-- Clients that others wrote: curl (nghttp2) and node's http2.
-- proves: HTTP/2, off by default 2024-11-05 sse
-- proves: HTTP/2, off by default 2025-03-26.. http
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local node = require "spec.helpers.node"
local wire = require "spec.helpers.wire"

local scripts = {
  ["tools/add.lua"] = [[return tool { "Adds.", input = { a = t.integer, b = t.integer }, function(args) return args.a + args.b end }]],
  ["tools/long.lua"] = [[return tool { "Gives a text back.", input = { text = t.string }, function(args) return args.text end }]],
  ["tools/steps.lua"] = [[return tool { "Steps.", function(_, call) for i = 1, 20 do call:progress(i, 20) sleep(0.002) end return "done" end }]],
  ["tools/wait.lua"] = [[return tool { "Waits.", input = { seconds = t.number }, function(args) sleep(args.seconds) return "waited" end }]],
  ["tools/extra.lua"] = [[return tool { "Extra.", enabled = false, function() return "" end }]],
  ["tools/change.lua"] = [[return tool { "Changes.", function() enable("tool", "extra") return "changed" end }]],
}

local function start(tls)
  local listen = { address = "127.0.0.1:0", http2 = "on", tls = tls and { certificate = "cert.pem", key = "key.pem" } or nil }
  return gateway.start { tls = tls, config = { auth = "none", listen = { listen } }, scripts = scripts }
end

local function curl(g, ...)
  local tls = g.tls and { "--cacert", g.tls.ca } or {}
  local arguments = { "-sS", "-m", "10", "-w", "\n%{http_version} %{http_code}", table.unpack(tls) }
  table.move({ ... }, 1, select("#", ...), #arguments + 1, arguments)
  local code, out, err = gateway.run_program("/usr/bin/curl", arguments)
  assert.equal(0, code, err)
  return out
end

local function url(g, path)
  return g.tls and ("https://localhost:%d%s"):format(g.port, path) or ("http://localhost:%d%s"):format(g.port, path)
end

for _, tls in ipairs { false, true } do
  describe(tls and "with TLS," or "in clear text,", function()
    it("curl speaks HTTP/2, and HTTP/1.1 to the same port", function()
      local g <close> = start(tls)
      local version = tls and "--http2" or "--http2-prior-knowledge"
      local discover = cjson.encode(wire.message(1, "server/discover", { _meta = wire.meta() }))
      local headers = {
        "-H", "accept: " .. wire.both, "-H", "content-type: application/json",
        "-H", "mcp-protocol-version: 2026-07-28", "-H", "mcp-method: server/discover",
      }
      local out = curl(g, version, url(g, "/mcp"), "-d", discover, table.unpack(headers))
      assert.matches('"supportedVersions".*\n2 200$', out)
      assert.matches("\n1.1 200$", curl(g, "--http1.1", url(g, "/mcp"), "-d", discover, table.unpack(headers)))
      -- Without knowledge, in clear text, curl asks for an upgrade, which is ignored.
      assert.matches(tls and "\n2 404$" or "\n1.1 404$", curl(g, "--http2", url(g, "/nowhere")))
      assert.matches("\n2 404$", curl(g, version, "-I", url(g, "/nowhere")))
      if tls then -- curl 7.88 cannot use a connection again that it opened with prior knowledge
        assert.matches("2 404.*2 404.*2 404", curl(g, version, url(g, "/a"), url(g, "/b"), url(g, "/c")))
      end
      local large = g.dir .. "/large"
      local file <close> = assert(io.open(large, "wb"))
      file:write(("x"):rep(6 << 20))
      file:flush()
      assert.matches("too large\n\n2 413$", curl(g, version, url(g, "/mcp"), "--data-binary", "@" .. large, table.unpack(headers)))
      assert.has_nothing_left(g)
    end)

    local function run(g, mode)
      local code, out, err = gateway.run_program(node.path, { node.folder .. "/http2.mjs", url(g, "/mcp"), mode, g.tls and g.tls.ca or nil }, { seconds = 20 })
      assert.equal(0, code, err)
      return cjson.decode(out)
    end

    it("node calls a tool in every revision", function()
      local g <close> = start(tls)
      assert.same({
        ["2024-11-05"] = "3", ["2025-03-26"] = "3", ["2025-06-18"] = "3", ["2025-11-25"] = "3", ["2026-07-28"] = "3",
      }, run(g, "revisions"))
    end)

    it("node holds 50 event streams and calls on one connection", function()
      local g <close> = start(tls)
      assert.same({ open = 50, told = 50, right = 50 }, run(g, "streams"))
      g:wait_status(function(status) return status.gauges.streams_open == 0 and status.gauges.http2_connections == 0 end)
    end)

    it("node sends and receives bodies of megabytes at the same time", function()
      local g <close> = start(tls)
      assert.same({ bytes = { 900000, 900000, 900000, 900000 } }, run(g, "large"))
    end)

    it("node reads progress as events", function()
      local g <close> = start(tls)
      assert.same({ status = 200, type = "text/event-stream", notes = 20 }, run(g, "progress"))
    end)
  end)
end

describe("a gateway that stops", function()
  it("lets node's calls finish", function()
    local g <close> = start(false)
    local process = gateway.spawn(node.path, { node.folder .. "/http2.mjs", url(g, "/mcp"), "drain" }, gateway.new_folder(), {})
    g:wait_status(function(status) return status.counters.calls == 2 and status.gauges.requests_in_flight == 1 end)
    g:signal "sigterm"
    require "spec.helpers.wait".for_fact("node to end", 10, function() return process.code end)
    local out <close> = assert(io.open(process.dir .. "/stdout"))
    local err <close> = assert(io.open(process.dir .. "/stderr"))
    local found = out:read("a"):match "called\n({.*)" or err:read "a"
    assert.equal('{"text":"waited","isTold":true}\n', found)
    assert.equal(0, (g:wait_exit(10)))
  end)
end)
