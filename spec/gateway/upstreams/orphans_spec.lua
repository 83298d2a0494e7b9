-- Programs of upstreams end with everything that they have started, whatever ends them: chains as npx makes them, a
-- descendant with a session of its own, and one that ignores the end of its input and SIGTERM.
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local process = require "spec.helpers.process"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local PATIENCE <const> = 40 -- seconds; a fact ends the wait at once

-- A program that writes the ids of all processes that it starts to the file $1, then becomes the program of the other
-- arguments.
local FAMILY <const> = [[
export FILE="$1"
shift
sh -c 'sh -c "echo \$\$ >>\"\$FILE\"; exec sleep 700" & echo $$ >>"$FILE"; wait' >/dev/null &
setsid sh -c 'echo $$ >>"$FILE"; trap "" HUP INT QUIT TERM USR1; while :; do sleep 701; done' >/dev/null &
echo $$ >>"$FILE"
while [ "$(wc -l <"$FILE")" -lt 4 ]; do sleep 0.01; done
exec "$@"
]]

local function pids_of(path)
  local pids = {}
  local file <close> = io.open(path)
  for line in file and file:lines() or function() end do pids[#pids + 1] = line end
  return pids
end

-- Each cause ends the program of the stub `u` behind the gateway `g`; `c` is a client that has called it, `pids` are
-- those of its processes.
local causes = {
  { "its session ends", function(_, c) c:delete() end },
  { "it is idle", function() end, entry = { process = { idle_stop = "1s" } } },
  { "a reload removes it", function(g)
    local file <close> = assert(io.open(g.dir .. "/moonpool.yaml"))
    local config = cjson.decode(file:read "a")
    config.upstreams.one = nil
    config.upstreams.other = { url = "http://127.0.0.1:1/mcp", prefix = "" }
    local out <close> = assert(io.open(g.dir .. "/moonpool.yaml", "w"))
    out:write(cjson.encode(config))
    out:close()
    assert.equal(200, g:admin("/reload", "POST").status)
  end },
  { "the program itself is killed", function(_, _, pids) uv.kill(pids.program, "sigkill") end, is_killed = true },
  { "the gateway gets SIGTERM", function(g, c)
    c:close()
    g:stop()
  end, ends = true },
  { "the gateway is killed", function(g)
    g:kill()
    g.stopped = true -- its exit code is not checked
  end, ends = true },
}

local function wait_gone(pids)
  for _, pid in ipairs(pids) do
    wait.for_fact("process " .. pid .. " to be gone", PATIENCE, function() return process.is_gone(pid) end)
  end
end

-- A stub whose program has the family, and the file with the ids.
local function start_stub()
  local dir = gateway.new_folder()
  local path, script = dir .. "/pids", assert(io.open(dir .. "/family.sh", "w"))
  script:write(FAMILY)
  script:close()
  local u = upstream.start {
    revision = "2025-11-25", transport = "stdio", command = function(words) return { "/bin/sh", dir .. "/family.sh", path, table.unpack(words) } end,
  }
  return u, path
end

-- Calls the upstream as a client that can be asked, which has a program of its own: returns the client, and the ids of
-- the program's processes.
local function call_own(g, u, path)
  os.remove(path)
  local c = g:client("2025-11-25", { capabilities = { roots = {} } })
  upstream.text(c:call("tools/call", { name = "one_echo", arguments = {} }))
  local pids = pids_of(path)
  assert.equal(4, #pids)
  for _, pid in ipairs(pids) do assert.is_false(process.is_gone(pid)) end
  pids.program = u.children[#u.children].pid
  return c, pids
end

-- Returns once the lists were read, by a program of the gateway's own.
local function wait_listed(g)
  local c <close> = g:client("2025-11-25", { capabilities = {} })
  upstream.text(c:call("tools/call", { name = "one_echo", arguments = {} }))
end

describe("everything that the program of an upstream has started ends", function()
  for _, cause in ipairs(causes) do
    for _, is_stubborn in ipairs(cause.is_killed and { false } or { false, true }) do
      it("when " .. cause[1] .. (is_stubborn and ", though it ignores the end of its input and SIGTERM" or ""), function()
        local u, path = start_stub()
        local _ <close> = u
        local g <close> = upstream.gateway({ one = u }, { workers = 2, entries = { one = cause.entry } })
        wait_listed(g)
        local c, pids = call_own(g, u, path)
        if is_stubborn then u.children[#u.children]:order("ignore", "sigterm"):order "stay" end
        cause[2](g, c, pids)
        wait_gone(pids)
        if not cause.ends then c:close() end
      end)
    end
  end

  it("when it does not answer, and so could not be opened", function()
    local u, path = start_stub()
    local _ <close> = u
    u:when("initialize", function() end)
    local g <close> = upstream.gateway({ one = u }, { workers = 2, entries = { one = { timeout = "1s", list_wait = "1s" } } })
    wait.for_fact("the program", PATIENCE, function() return #pids_of(path) >= 4 end)
    wait_gone(pids_of(path))
    u:behave()
    assert.truthy(g:status().upstreams.one)
  end)

  it("and leaves neither zombies nor descriptors", function()
    local u, path = start_stub()
    local _ <close> = u
    local g <close> = upstream.gateway({ one = u }, { workers = 2 })
    wait_listed(g)
    local processes, descriptors
    for round = 1, 4 do
      local c, pids = call_own(g, u, path)
      c:delete()
      c:close()
      wait_gone(pids)
      if round == 1 then -- descriptors that the gateway opens only once are open after the first round
        g:wait_status(function(status) return status.gauges.upstream_processes == 1 end)
        wait.for_fact("no zombie", PATIENCE, function()
          processes, descriptors = #process.below(g.pid), g:fds()
          return #u:alive() == 1
        end)
      end
    end
    wait.for_fact("the processes and descriptors of before", PATIENCE, function() return #process.below(g.pid) <= processes and g:fds() <= descriptors end)
  end)
end)
