-- Too few descriptors: a start that fails reports it, and a gateway that has no descriptor left still logs.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"

local function limit(g, count)
  assert.equal(0, (gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--nofile=" .. count .. ":" })))
end

describe("without descriptors", function()
  it("a start fails with words", function()
    local dir = gateway.prepare { workers = 1 }
    local binary = uv.fs_realpath(gateway.binary)
    for count = 4, 64 do
      local code, _, err = gateway.run_program("/usr/bin/timeout",
        { "-s", "TERM", "1", "/usr/bin/prlimit", "--nofile=" .. count, binary, "run", "moonpool.yaml" }, { cwd = dir })
      if code == 124 then return end -- `timeout` has ended it: the gateway served
      -- it exits by itself, and no signal ends it
      assert.truthy(code == 1 or code == 78 or code == 127 and err:find "shared object", count .. ": " .. code .. err)
      assert.truthy(err == "" or err:find "Too many open files" or err:find "shared object", count .. ": " .. err)
    end
    error "it never starts"
  end)

  it("the log goes on", function()
    local g <close> = gateway.start {}
    local clients, free = {}
    repeat -- waits until all of the lowest numbers are taken
      clients[#clients + 1] = g:client "2026-07-28"
      clients[#clients]:result("tools/list", {})
      free = 0
      while uv.fs_readlink(("/proc/%d/fd/%d"):format(g.pid, free)) do free = free + 1 end
    until free >= 8
    limit(g, free)
    g:signal "sighup"
    assert.truthy(g:wait_log("config refused").fields.error:find "Too many open files")
    limit(g, 1000)
    for _, client in ipairs(clients) do client:close() end
    g:signal "sighup"
    g:wait_status(function(status) return status.scripts.ok end)
    assert.has_nothing_left(g)
  end)
end)
