-- What outlives the bytes of a request is counted: the largest request of every method, held by many clients at once,
-- takes no more memory than the gauges say.
local lfs = require "lfs"
local gateway = require "spec.helpers.gateway"
local memory = require "spec.helpers.memory"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local BODY <const> = 128 << 10 -- limits.body
local COUNT <const> = 300      -- clients that hold a request
local SMALL <const> = 3500     -- bytes of an id, and of a token: nearly the longest that are accepted

-- What a held request takes beside what is counted: the id and the token with their copies in Lua and in the answer's
-- tag, up to 4 KiB of params, the connection and the call.
local EACH <const> = 20 << 10
-- Buffers that a worker keeps for the next request, and pages that its allocator has not returned.
local SLACK <const> = 8 << 20

local scripts = {
  ["tools/hold.lua"] = 'return tool { "Holds.", input = { a = t.string }, function() sleep(60) end }',
  ["tools/job.lua"] = 'return tool { "A job.", task = "required", input = { a = t.string }, function() sleep(60) end }',
  ["resources/any.lua"] = 'return resource { "Any.", uri = "any://{name}{?q}", function(v) if v.name == "hold" then sleep(60) end return "text" end }',
  ["prompts/hold.lua"] = 'return prompt { "Holds.", args = { a = t.string }, function() sleep(60) end }',
}

local function text(size) return ("x"):rep(size) end

local URI <const> = 16000      -- bytes of the longest URI that a template takes

local function uris(size, client)
  local list = {}
  for i = 1, size // URI do list[i] = ("any://one?q=%06d%06d%s"):format(client, i, text(URI - 24)) end
  return list
end

-- For each method that holds its request: the revision of its client, and its largest params, with a text of `size`
-- bytes unless another limit is lower.
local NEW <const>, OLD <const> = "2026-07-28", "2025-11-25"
local METHODS <const> = {
  ["tools/call"] = { NEW, function(size) return { name = "hold", arguments = { a = text(size) } } end },
  ["resources/read"] = { NEW, function() return { uri = "any://hold?q=" .. text(URI) } end },
  ["prompts/get"] = { NEW, function(size) return { name = "hold", arguments = { a = text(size) } } end },
  ["subscriptions/listen"] = { NEW, function(size, client) return { notifications = { resourceSubscriptions = uris(size, client) } } end },
  ["resources/subscribe"] = { OLD, function(_, client) return { uri = ("any://one?q=%06d%s"):format(client, text(URI)) } end },
  ["completion/complete"] = { false },
  ["initialize"] = { false }, ["ping"] = { false }, ["server/discover"] = { false }, ["logging/setLevel"] = { false },
  ["tools/list"] = { false }, ["prompts/list"] = { false }, ["resources/list"] = { false }, ["resources/templates/list"] = { false },
  ["resources/unsubscribe"] = { false },
  ["tasks/get"] = { false }, ["tasks/update"] = { false }, ["tasks/cancel"] = { false }, ["tasks/list"] = { false }, ["tasks/result"] = { false },
}

-- The methods that the revisions have, from their tables: { [name] = true }.
local function methods_of_the_code()
  local names, tables = {}, 0
  for file_name in lfs.dir "lua/moonpool/protocol/era" do
    if file_name:find "^%d+%-%d+%-%d+%.lua$" then
      local file <close> = assert(io.open("lua/moonpool/protocol/era/" .. file_name))
      for list in ("\n" .. file:read "a"):gmatch "%f[%w]methods = (%b{})" do
        tables = tables + 1
        for name, is_there in pairs(assert(load("return " .. list, "@" .. file_name, "t", {}))()) do names[name] = names[name] or is_there or nil end
      end
    end
  end
  assert(tables >= 3, "the tables of methods have another form")
  return names
end

-- The sum of all gauges of bytes.
local function counted(g)
  local sum = 0
  for name, value in pairs(g:status().gauges) do
    if name:find "bytes$" and type(value) == "number" then sum = sum + value end
  end
  return sum
end

local function start()
  return gateway.start {
    scripts = scripts, workers = 1, env = memory.environment(),
    config = { limits = { body = BODY // 1024 .. "KiB", calls_in_flight = 2000, call = { time = "60s" } }, sessions = { per_principal = 2000 } },
  }
end

-- Sends the largest request of `method` from COUNT clients, each of which holds its connection.
local function hold(g, method, clients)
  local revision, params_of = table.unpack(METHODS[method])
  for i = 1, COUNT do
    local c = g:client(revision)
    clients[i] = c
    local params = params_of(BODY - 3 * SMALL, i)
    if revision == OLD then
      assert.same({}, c:result(method, params))
    else
      params._meta = wire.meta(NEW, { progressToken = text(SMALL) })
      c:open(method, params)
    end
  end
end

local is_measured <const> = not os.getenv "ASAN_OPTIONS" and not os.getenv "TSAN_OPTIONS" -- sanitizers have memory of their own

describe("the largest request", function()
  it("of every method has a row here", function()
    local names, missing, gone = methods_of_the_code(), {}, {}
    for name in pairs(names) do missing[#missing + 1] = not METHODS[name] and name or nil end
    for name in pairs(METHODS) do gone[#gone + 1] = not names[name] and name or nil end
    assert.same({ {}, {} }, { missing, gone })
  end)

  for method, row in pairs(METHODS) do
    if row[1] then
      it(("of %s, held by %d clients, takes what the gauges say"):format(method, COUNT), function()
        local g <close> = start()
        local clients = {}
        local rss, gauges = g:rss(), counted(g)
        hold(g, method, clients)
        g:wait_status(function(status)
          return status.gauges.ops + status.gauges.listeners + status.gauges.subscriptions >= COUNT and status.counters.calls >= COUNT
        end, 60)
        local function what() return ("the memory to be what is counted: %d bytes more, of which %d"):format(g:rss() - rss, counted(g) - gauges) end
        -- Memory that decoding has used is returned to the system once the gateway is quiet.
        wait.for_fact(what, 10, function()
          return not is_measured or g:rss() - rss <= (counted(g) - gauges) * 1.1 + COUNT * EACH + SLACK
        end)
        for _, c in ipairs(clients) do c:close() end
      end)
    end
  end

  it("is compared with limits.bodies over HTTP+SSE, too, where it outlives its HTTP request", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1, config = { limits = { bodies = "1MiB", body = "512KiB" } } }
    local c <close> = g:client "2024-11-05"
    local params = { name = "hold", arguments = { a = text(200 << 10) } }
    for _ = 1, 5 do c:open("tools/call", params) end
    g:wait_status(function(status) return status.gauges.requests_in_flight == 5 and status.gauges.call_bytes > 5 * 200 << 10 end)
    assert.equal("too many calls in flight: try again later", c:call("tools/call", params).error.message)
    assert.truthy(c:call "ping".result)
    c:close()
    g:wait_status(function(status) return status.gauges.call_bytes == 0 end)
  end)
end)
