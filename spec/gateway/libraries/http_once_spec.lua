-- A kept connection that dies after a request was written: the server ran the request once. libcurl by itself would
-- send it again.
local assert = require "spec.helpers.asserts"
local certificates = require "spec.helpers.certificates"
local gateway = require "spec.helpers.gateway"
local memory = require "spec.helpers.memory"
local talk = require "spec.helpers.talk"

local TIMES = 50

-- Runs `args.n` times for each method: a request that leaves its connection open, then a request on that connection,
-- which the server closes in the middle.
local tool = [[return tool { "Dies.", timeout = 300, input = { url = t.string, key = t.string, n = t.integer, size = t.integer, methods = t.list(t.string) },
  function(args)
    local hows, list = { "whole", "head", "reset" }, {}
    for _, method in ipairs(args.methods) do
      for i = 1, args.n do
        try(http.get(args.url .. "/warm"))
        local id = ("%s-%s-%d"):format(args.key, method, i)
        local body = args.size >= 0 and ("x"):rep(args.size) or nil
        local res, why = http[method](args.url .. "/die/" .. hows[i % 3 + 1] .. "/" .. id, { body = body })
        list[#list + 1] = { id = id, status = res and res.status or 0, why = why or "" }
      end
    end
    return list
  end }]]

local function written(text)
  local path = os.tmpname()
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
  return path
end

-- Runs `check(url, server, g)` with a server, over TLS or not.
local function with(is_secure, workers, check)
  local pem = is_secure and certificates.here()
  local files = pem and { written(pem.key), written(pem.own) } or {}
  local server <close> = talk.start("closing.mjs", files)
  local port = math.tointeger(server:wait_fact("port").port)
  local g <close> = gateway.start {
    constants = { http_idle_ms = 5000 },
    workers = workers, scripts = { ["tools/dies.lua"] = tool }, env = memory.environment(), files = pem and { ["ca.pem"] = pem.own },
    config = { scripts = { allow = { net = { "127.0.0.1:" .. port } } }, http = pem and { ca = "ca.pem" } or nil },
  }
  check((is_secure and "https" or "http") .. "://127.0.0.1:" .. port, server, g)
  for _, path in ipairs(files) do os.remove(path) end
end

-- The number of runs of each id at the server.
local function runs(server)
  local count = {}
  for _, fact in ipairs(server:all "run") do count[fact.id] = (count[fact.id] or 0) + 1 end
  return count
end

local changing = { "post", "put", "patch", "delete" }

-- `most_answered`: how many of the requests may have an answer, since libcurl sent them on a new connection.
local function assert_once(server, list, most_answered)
  local count, answered = runs(server), 0
  for _, got in ipairs(list) do
    if got.status == 200 then
      answered = answered + 1
      assert.equal(1, count[got.id], got.id)
    else
      assert.truthy(got.why:find("connection", 1, true), got.why)
      assert.is_true((count[got.id] or 0) <= 1, got.id .. " ran " .. tostring(count[got.id]) .. " times")
    end
  end
  assert.is_true(answered <= most_answered, answered .. " requests were answered")
  local total = 0
  for _, n in pairs(count) do total = total + n end
  assert.is_true(total >= #list * 0.9, ("the server has read %d of %d requests"):format(total, #list))
end

for _, is_secure in ipairs { false, true } do
  for _, size in ipairs { -1, 0, 1 << 20 } do
    local what = (is_secure and "https" or "http") .. (size < 0 and " without a body" or (" with a body of %d bytes"):format(size))
    it("a request that changes something runs once on a kept connection that dies, by " .. what, function()
      with(is_secure, 1, function(url, server, g)
        local me = g:client "2026-07-28"
        local result = me:result("tools/call", { name = "dies", arguments = { url = url, key = "a", n = TIMES, size = size, methods = changing } }, 120)
        assert.is_nil(result.isError, result.content[1].text)
        assert.equal(TIMES * #changing, #result.structuredContent)
        assert_once(server, result.structuredContent, 0)
        me:close()
      end)
    end)
  end
end

it("a request that changes something runs once, also with two workers at once", function()
  with(false, 2, function(url, server, g)
    local clients, calls, list = {}, {}, {}
    for i = 1, 8 do
      clients[i] = g:client "2026-07-28"
      calls[i] = clients[i]:open("tools/call", { name = "dies", arguments = { url = url, key = "w" .. i, n = TIMES // 4, size = 1000, methods = changing } })
    end
    for i = 1, 8 do
      local result = calls[i]:answer(120).result
      table.move(result.structuredContent, 1, #result.structuredContent, #list + 1, list)
    end
    assert.equal(8 * (TIMES // 4) * #changing, #list)
    assert_once(server, list, #list // 2)
    for i = 1, 8 do clients[i]:close() end
  end)
end)

it("a GET is sent again, and its answer arrives", function()
  with(false, 1, function(url, server, g)
    local me = g:client "2026-07-28"
    local result = me:result("tools/call", { name = "dies", arguments = { url = url, key = "a", n = 6, size = -1, methods = { "get", "head" } } })
    local count = runs(server)
    for _, got in ipairs(result.structuredContent) do
      assert.equal(200, got.status, got.why)
      assert.equal(2, count[got.id])
    end
    me:close()
  end)
end)
