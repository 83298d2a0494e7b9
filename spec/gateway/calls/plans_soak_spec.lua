-- Random calls of random tools by clients of all revisions, while scripts are reloaded, tools are switched off and on,
-- tokens change and clients leave, on a gateway that compares each planned call with the general path
-- (MOONPOOL_PLANS=both): a difference would end the process. Each call has one audit line.
-- PLAN_SOAK_SEED repeats a run, PLAN_SOAK_STEPS makes a longer one.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local SEED <const> = tonumber(os.getenv "PLAN_SOAK_SEED") or os.time()
local STEPS <const> = tonumber(os.getenv "PLAN_SOAK_STEPS") or 600
local TOKENS <const> = { "ann", "bob", "all" }
local REVISIONS <const> = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "2026-07-28" }

-- The tools of a generation. "which" says its number, and must say the same at the start and at the end of a call.
local function scripts_of(n)
  return {
    ["lib/number.lua"] = ("return %d"):format(n),
    ["tools/add.lua"] = ("--- Add %d.\n---@param a number\n---@param b? number\nreturn function(a, b) return a + (b or %d) end"):format(n, n % 3),
    ["tools/members.lua"] = ([[return tool { "Members.", input = { a = t.number, b = t.string { optional = true }, c = t.boolean { default = %s },
      at = t.optional(t.object { x = t.number, y = t.number { default = %d } }) },
      function(args) return { a = args.a, b = args.b, c = args.c, at = args.at } end }]]):format(n % 2 == 0, n),
    ["tools/scoped.lua"] = ('return tool { "Scoped.", scopes = { "%s" }, input = { n = t.integer }, function(args) return args.n end }')
      :format(n % 3 == 0 and "a" or n % 3 == 1 and "b" or "c"),
    ["tools/fits.lua"] = [[return tool { "Fits.", input = { n = t.number }, output = { n = t.number, s = t.string }, function(args)
      return { n = args.n, s = args.n > 1 and "é" or nil } end }]],
    ["tools/fails.lua"] = [[return tool { "Fails.", input = { n = t.integer }, function(args)
      if args.n == 0 then error "broken" elseif args.n == 1 then fail "no" elseif args.n == 2 then return nil, "why" elseif args.n == 3 then return end
      return args.n end }]],
    ["tools/which.lua"] = [[local number = require "number"
      return tool { "Which.", input = { ms = t.integer }, function(args, call)
        call:progress(1)
        sleep(args.ms / 1000)
        return number .. " " .. require "number" end }]],
    ["tools/switch.lua"] = [[return tool { "Switch.", input = { name = t.string, on = t.boolean }, function(args)
      if args.on then enable("tool", args.name) else disable("tool", args.name) end return "switched" end }]],
    ["policy/cap.lua"] = n % 4 == 0 and [[return policy { tools = { "a*" }, function(call, next)
        if call.args.a == 7 then fail "not 7" end
        return next(call)
      end }]]
      or "return policy { resources = { \"none:*\" }, function(call, next) return next(call) end }",
    ["auth/a.lua"] = [[return auth { function(request)
      local scopes = { ann = { "a" }, bob = { "b", "c" }, all = { "*" } }
      local name = try(request.bearer, "no token")
      return { id = "user:" .. name, scopes = try(scopes[name], "unknown"), issuer = name ~= "bob" and "https://id.example" or nil }
    end }]],
  }
end

local function pick(list) return list[math.random(#list)] end

local calls = {
  function() return "add", { a = math.random(9), b = pick { 1, 2.5, nil } } end,
  function() return "add", { a = pick { "x", 1, 7, 1e15, -0.5 } } end,
  function() return "members", { a = math.random(5), b = pick { "é", "a\nb", nil }, at = pick { { x = 1 }, { x = 1, y = 2 }, { y = 2 }, nil } } end,
  function() return "scoped", { n = math.random(5) } end,
  function() return "fits", { n = pick { 0, 1, 2, 0.1 } } end,
  function() return "fails", { n = math.random(0, 4) } end,
  function() return "which", { ms = math.random(0, 3) } end,
  function() return "missing", {} end,
}

local function save(g, path, text)
  local file <close> = assert(io.open(g.dir .. "/scripts/" .. path, "wb"))
  file:write(text)
end

local function audited(g)
  local count = 0
  for line in io.lines(g.dir .. "/audit.jsonl", "L") do
    if line:sub(-1) == "\n" and line:find('"method":"tools/call"', 1, true) then
      cjson.decode(line)
      count = count + 1
    end
  end
  return count
end

describe("random calls during reloads and switches", function()
  it("are served in the same way with plans and without (seed " .. SEED .. ")", function()
    math.randomseed(SEED)
    local g <close> = gateway.start { workers = 2, scripts = scripts_of(1), env = { MOONPOOL_PLANS = "both" }, config = {
      log = { audit = "audit.jsonl", level = "error" }, scripts = { watch = "false" }, limits = { call = { time = "30s" } },
    } }
    local clients, sent, generation = {}, 0, 1
    for i, revision in ipairs(REVISIONS) do clients[i] = g:client(revision, { token = TOKENS[(i - 1) % #TOKENS + 1] }) end
    -- A session belongs to its principal, so only stateless clients change tokens.
    local function call(me, name, arguments)
      sent = sent + 1
      local answer = me:call("tools/call", { name = name, arguments = arguments })
      assert.truthy(answer.result or answer.error)
      if name == "which" and answer.result then
        local began, ended = answer.result.content[1].text:match "^(%d+) (%d+)$"
        assert.equal(began, ended)
      end
    end
    for step = 1, STEPS do
      local me, dice = pick(clients), math.random(40)
      if dice == 1 then
        generation = generation + 1
        for path, text in pairs(scripts_of(generation)) do save(g, path, text) end
        assert.equal(200, g:admin("/reload", "POST").status)
      elseif dice == 2 then
        call(clients[#clients], "switch", { name = pick { "add", "members", "scoped" }, on = step % 3 ~= 0 })
      elseif dice == 3 then
        clients[#clients].token = pick(TOKENS)
      elseif dice == 4 then
        sent = sent + 1
        local you = clients[#clients]
        you:open("tools/call", { name = "which", arguments = { ms = 20000 }, _meta = { progressToken = 1 } }):wait "notifications/progress":hang_up()
      else
        call(me, pick(calls)())
      end
    end
    assert.is_true(g:status().counters.calls_planned > STEPS / 4)
    wait.for_fact("an audit line for each of " .. sent .. " calls", 10, function() return audited(g) >= sent end)
    assert.equal(sent, audited(g))
    for _, me in ipairs(clients) do
      if me.session then me:delete() end
      me:close()
    end
    g:wait_status(function(status) return status.gauges.vms == 2 and status.gauges.tasks == 0 end)
  end)
end)
