-- examples/two-upstreams: its own specs, with faked upstreams; and the same scripts before stub upstreams.
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"

describe("the example two-upstreams", function()
  it("passes its own specs, without a server", function()
    local code, out, err = gateway.exec { "test", "-c", "examples/two-upstreams/moonpool.yaml" }
    assert.equal(0, code, out .. err)
    assert.truthy((out .. err):find "2 specs, all fine", out .. err)
  end)

  it("calls both servers", function()
    local one <close> = upstream.start { revision = "2025-11-25" }
    local two <close> = upstream.start { revision = "2026-07-28" }
    local script = example.read "examples/two-upstreams/scripts/tools/greet_file.lua"
    script = script:gsub('"write_file"', '"echo"')
    local g <close> = upstream.gateway({ everything = one, files = two }, { scripts = { ["tools/greet_file.lua"] = script } })
    local c <close> = g:client "2025-06-18"
    local answer = c:call("tools/call", { name = "greet_file", arguments = { path = "/p", message = "hi" } })
    assert.equal('{"content":"{\"message\":\"hi\"}","path":"/p"}', (upstream.text(answer):gsub("\\", "")))
    assert.equal(1, one:ran "echo")
    assert.equal(1, two:ran "echo")
  end)
end)
