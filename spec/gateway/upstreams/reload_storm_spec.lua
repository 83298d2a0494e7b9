-- Many reloads that change how upstreams are reached, while clients of two revisions call them: no call fails, none
-- runs twice, and no program of an earlier configuration is left. Rule B-88.
local cjson = require "cjson.safe"
local process = require "spec.helpers.process"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local RELOADS <const> = 40

-- What each reload changes of all entries, in turn: what belongs to the connection, what does not, both, and nothing.
local CHANGES <const> = {
  function(one, n) one.timeout = 30 + n .. "s" end,
  function(one, n)
    if one.url then one.headers = { ["x-number"] = "n" .. n } else one.process = { env = { NUMBER = "n" .. n } } end
  end,
  function(one, n) one.describe = { look = "Number " .. n } end,
  function(one, n)
    if one.url then one.auth = { bearer = "token-" .. n } else one.process = { env = { NUMBER = "n" .. n }, idle_stop = "5m" } end
    one.hide = { "nothing-" .. n }
  end,
  function() end,
}

local function reload(g, n)
  local file <close> = assert(io.open(g.dir .. "/moonpool.yaml"))
  local config = cjson.decode(file:read "a")
  for _, one in pairs(config.upstreams) do CHANGES[n % #CHANGES + 1](one, n) end
  local out <close> = assert(io.open(g.dir .. "/moonpool.yaml", "w"))
  out:write(cjson.encode(config))
  out:close()
  assert.equal(200, g:admin("/reload", "POST").status)
end

describe("reloads of upstreams under load", function()
  it("fail no call, run none twice, and leave no program", function()
    local web <close> = upstream.start { revision = "2025-11-25" }
    local new <close> = upstream.start { revision = "2026-07-28" }
    local child <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    local stubs = { web = web, new = new, child = child }
    local entries = {}
    for name in pairs(stubs) do entries[name] = { list_wait = "20s" } end
    local g <close> = upstream.gateway(stubs, { workers = 2, entries = entries, config = { scripts = { watch = "false" } } })
    local clients = { g:client "2025-11-25", g:client "2026-07-28", g:client "2025-06-18" }
    wait.for_fact("the lists", 20, function()
      local names = {}
      for _, tool in ipairs(clients[1]:result("tools/list").tools) do names[tool.name] = true end
      return names.web_echo and names.new_echo and names.child_echo
    end)

    local sent, running = 0, {}
    local function call_all()
      for _, c in ipairs(clients) do
        for name in pairs(stubs) do
          sent = sent + 1
          local text = "call " .. sent
          running[#running + 1] = { text = text, stream = c:open("tools/call", { name = name .. "_echo", arguments = { text = text } }) }
        end
      end
    end
    local function take_all()
      for _, one in ipairs(running) do
        assert.equal(one.text, cjson.decode(upstream.text(one.stream:answer(40))).text)
        one.stream:close()
      end
      running = {}
    end
    for n = 1, RELOADS do
      call_all() -- some are sent before the reload, some are on their way, some come during it
      reload(g, n)
      call_all()
      take_all()
    end
    local ran = {}
    for _, stub in pairs(stubs) do
      for _, entry in ipairs(stub:all { method = "tools/call", tool = "echo" }) do
        local text = entry.json.params.arguments.text
        assert.is_nil(ran[text], text .. " came twice")
        ran[text] = true
      end
    end
    for n = 1, sent do assert.is_true(ran["call " .. n], "call " .. n .. " never came") end
    for _, c in ipairs(clients) do c:close() end

    -- the programs of earlier configurations have ended
    g:wait_status(function(status) return status.gauges.upstream_exchanges == 0 and status.gauges.upstream_processes == #child:alive() end, 40)
    child:wait_alive(1, 40)
    wait.for_fact("one program below the gateway", 40, function()
      local programs = 0
      for _, pid in ipairs(process.below(g.pid)) do
        local file <close> = io.open("/proc/" .. pid .. "/cmdline")
        -- counts programs of upstreams, not the keepers that started them
        if file and file:read("a"):find "^/usr/bin/lua5.4%z.*child.lua" then programs = programs + 1 end
      end
      return programs == 1
    end)
  end)
end)
