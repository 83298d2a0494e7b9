-- One mark finds a call: in the log's lines, in the audit, in the list of running calls.
local cjson = require "cjson"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/plain.lua"] = [[return tool { "Served by a plan.", input = { n = t.integer }, function(args)
    log.info("plain says", { n = args.n, call = "mine" })
    if args.n == 13 then error "unlucky" end
    return args.n
  end }]],
  ["tools/asks.lua"] = [[return tool { "Waits in members of a group.", input = { n = t.integer }, function(args, call)
    local _ <close> = closing(function() log.info("closer says", { n = args.n }) end)
    parallel {
      function() sleep(0.001) log.info("member says", { n = args.n }) end,
      function() if args.n == 13 then sleep(60) end end,
    }
    return call.principal.id
  end }]],
  ["tools/spin.lua"] = [[return tool { "Never ends.", function() while true do end end }]],
  ["resources/file.lua"] = [[return resource { uri = "file:///x", "X.", function() log.info "resource says" return "x" end }]],
}

-- The lines of the log and of the audit that are whole, as tables.
local function lines_of(text)
  local lines = {}
  for line in text:gmatch "([^\n]+)\n" do
    local ok, object = pcall(cjson.decode, line)
    if ok then lines[#lines + 1] = object end
  end
  return lines
end

local function fits(line, fields)
  for name, value in pairs(fields) do
    if line[name] ~= value then return false end
  end
  return true
end

local function find(read, fields)
  return wait.for_fact("a line " .. cjson.encode(fields), 20, function()
    for _, line in ipairs(lines_of(read())) do
      if fits(line, fields) then return line end
    end
  end)
end

local function start(more)
  local all = { workers = 2, config = { log = { audit = "audit.jsonl", format = "json", level = "debug" }, limits = { call = { cpu = "20ms" } } } }
  all.scripts = {}
  for path, text in pairs(scripts) do all.scripts[path] = text end
  for path, text in pairs(more or {}) do all.scripts[path] = text end
  local g = gateway.start(all)
  local function in_log(fields) return find(function() return g:log() end, fields) end
  local function in_audit(fields)
    return find(function()
      local file <close> = assert(io.open(g.dir .. "/audit.jsonl"))
      return file:read "a"
    end, fields)
  end
  return g, in_log, in_audit
end

describe("the mark of a call", function()
  it("is the audit's id and the `call` of each line that the call's scripts log, and of its request line", function()
    local g <close>, in_log, in_audit = start()
    for _, revision in ipairs { "2026-07-28", "2025-11-25" } do
      local c <close> = g:client(revision)
      for _, case in ipairs { { "plain", "plain says" }, { "asks", "member says" }, { "asks", "closer says" } } do
        local n = #case[2] + (revision == "2026-07-28" and 100 or 200)
        c:result("tools/call", { name = case[1], arguments = { n = n } })
        local mark = in_log({ event = case[2], n = n }).call
        assert.matches("^%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x$", mark)
        assert.equal(case[1], in_audit({ event = "call", id = mark }).name)
        assert.equal(case[1], in_log({ event = "request", call = mark }).name)
      end
    end
    assert.equal("mine", in_log({ event = "plain says" }).call_)
  end)

  it("is on the line of an internal error, whose number the client gets", function()
    local g <close>, in_log, in_audit = start()
    local c <close> = g:client "2026-07-28"
    local result = c:result("tools/call", { name = "plain", arguments = { n = 13 } })
    local number = result.content[1].text:match "^internal error (%x+)$"
    local mark = in_log({ level = "error", id = number }).call
    assert.equal("internal error " .. number, in_audit({ event = "call", id = mark }).why)
  end)

  it("is on lines about a call that was cancelled, and on those of its closers", function()
    local g <close>, in_log, in_audit = start()
    local c <close> = g:client "2026-07-28"
    c:open("tools/call", { name = "asks", arguments = { n = 13 } }):hang_up()
    local mark = in_log({ event = "call cancelled", why = "disconnected" }).call
    assert.equal(mark, in_log({ event = "closer says", n = 13 }).call)
    assert.equal("asks", in_audit({ event = "call", id = mark, outcome = "cancelled" }).name)
    -- ThreadSanitizer delivers no signal to a loop of Lua that calls nothing
    if os.getenv "TSAN_OPTIONS" then return end
    assert.truthy((c:call("tools/call", { name = "spin" })).error)
    mark = in_log({ event = "call over its limit" }).call
    assert.equal("spin", in_audit({ event = "call", id = mark }).name)
    assert.equal(mark, in_log({ event = "request", name = "spin" }).call)
  end)

  it("differs between the calls of a batch", function()
    local g <close>, in_log, in_audit = start()
    local c <close> = g:client "2025-03-26"
    local function message(id, n)
      return { jsonrpc = "2.0", id = id, method = "tools/call", params = { name = "plain", arguments = { n = n } } }
    end
    client.request(g, { method = "POST", path = "/mcp", body = cjson.encode { message(7, 1), message(8, 2) }, headers = {
      ["Mcp-Session-Id"] = c.session, Accept = "application/json, text/event-stream", ["Content-Type"] = "application/json",
    } })
    local one, two = in_log({ event = "plain says", n = 1 }).call, in_log({ event = "plain says", n = 2 }).call
    assert.not_equal(one, two)
    in_audit { event = "call", id = one }
    in_audit { event = "call", id = two }
  end)

  it("joins what an auth script logs with the call that it admits, and with the lines about a request that it refuses", function()
    local g <close>, in_log, in_audit = start { ["auth/a.lua"] = [[return auth { function(request)
      local token = request.headers.authorization
      log.info("auth says", { token = token and "some" or "none" })
      if not token then fail "nothing known" end
      return { id = "user:ann" }
    end }]] }
    assert.equal(401, client.request(g, { path = "/mcp" }).status)
    local mark = in_log({ event = "auth says", token = "none" }).call
    assert.equal(mark, in_log({ event = "refused", status = 401 }).call)
    in_audit { event = "refused", id = mark }
    local c <close> = g:client("2026-07-28", { token = "some-token" })
    c:result("tools/call", { name = "plain", arguments = { n = 3 } })
    mark = in_log({ event = "plain says", n = 3 }).call
    assert.equal("user:ann", in_audit({ event = "call", id = mark }).principal)
    wait.for_fact("a line of the auth script with the mark of the call", 20, function()
      for _, line in ipairs(lines_of(g:log())) do
        if line.event == "auth says" and line.call == mark then return true end
      end
    end)
  end)

  it("is not on lines that no request causes", function()
    local _ <close>, in_log = start { ["jobs/tick.lua"] = "log.info 'loading says'\nreturn job { 'Ticks.', every = 3600, function() end }" }
    assert.is_nil(in_log({ event = "loading says" }).call)
    assert.is_nil(in_log({ event = "serving" }).call)
  end)
end)
