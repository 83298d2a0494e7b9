-- POST /api/profile of a gateway's admin listener: begins a profile, and reads what it found.
local assert = require "luassert"
local cjson = require "cjson.safe"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"

local profile = {}
profile.__index = profile

--- The admin listener's token of an operator.
profile.token = ("o"):rep(32)

-- The parts take turns: what slows the machine for a while hits them alike. Turns that are shorter than the time
-- between two samples differ in length:
-- samples in equal distances would see one part too often otherwise.
local scripts = {
  ["tools/hot.lua"] = [[
return tool { "Has hot lines.", input = { n = t.integer }, function(args)
  local x, n = 0, args.n // 20
  for _ = 1, 20 do for i = 1, 7 * n do x = x + i end
  for i = 1, 2 * n do x = x + i end
  for i = 1, n do x = x + i end end
  return x
end }]],
  ["tools/inner.lua"] = [[
return tool { "Has hot lines in coroutines.", input = { n = t.integer }, function(args)
  local x, n = 0, args.n
  local outer = coroutine.wrap(function()
    local inner = coroutine.create(function()
      for i = 1, 7 * n do x = x + i end
      coroutine.yield()
      for i = 1, 2 * n do x = x + i end
    end)
    coroutine.resume(inner)
    coroutine.resume(inner)
  end)
  outer()
  for i = 1, n do x = x + i end
  return x
end }]],
  ["tools/native.lua"] = [[
return tool { "Calls C for long.", input = { n = t.integer }, function(args)
  local text = ("ab"):rep(20000)
  for i = 1, args.n do for _ = 1, 7 * (i % 13 + 1) do text:find("b+c", 1) end
  for _ = 1, 3 * (i % 13 + 1) do text:find("b+c", 1) end end
  return 1
end }]],
  ["tools/large.lua"] = [[
local list = {}
for i = 1, 20000 do list[i] = { name = "row " .. i, text = ("é\n"):rep(10) } end
return tool { "Returns much.", function() return { rows = list } end }]],
  ["tools/takes.lua"] = 'return tool { "Takes much.", input = { list = t.list(t.any) }, function(args) return #args.list end }',
  ["tools/endless.lua"] = 'return tool { "Never ends.", function() while true do end end }',
  ["tools/stubborn.lua"] = [[return tool { "Never ends, where it cannot yield.", function()
    table.sort({ 1, 2, 3 }, function() while true do end end)
  end }]],
  ["tools/allocates.lua"] = [[
return tool { "Allocates.", input = { n = t.integer }, function(args)
  local s
  for i = 1, 3 * args.n do s = ("x"):rep(10000 + i) end
  for i = 1, args.n do s = ("x"):rep(10000 + i) end
  return #s
end }]],
  ["tools/deep.lua"] = [[
local function down(n, left) if n > 0 then return (down(n - 1, left)) end local x = 0 for i = 1, left do x = x + i end return x end
return tool { "Is deep.", input = { n = t.integer }, function(args) return down(150, args.n) end }]],
}

--- Starts a gateway with tools that compute, allocate, call C for long or never end. `more` has further options of gateway.start.
function profile.start(config, more)
  config = config or {}
  config.admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = profile.token }, view = { ann = ("v"):rep(32) } } }
  config.limits = config.limits or {}
  config.limits.call = config.limits.call or { cpu = "60s", time = "5m" }
  local options = { scripts = scripts, config = config }
  for key, value in pairs(more or {}) do options[key] = value end
  return gateway.start(options)
end

local function headers(token)
  return { Authorization = "Bearer " .. token, ["moonpool-admin"] = "1", ["Content-Type"] = "application/json" }
end

--- Sends a request to a path of /api, and returns the answer.
function profile.post(g, path, token, body)
  return client.request(g, { method = "POST", path = path, headers = headers(token), body = body and cjson.encode(body) or "" }, { admin = true })
end

--- Begins a profile; it runs when this returns.
function profile.begin(g, token, options, connect)
  connect = connect or {}
  connect.admin = true
  local reader = client.connect(g, connect)
  reader:send { method = "POST", path = "/api/profile", headers = headers(token), body = cjson.encode(options) }
  assert.equal(200, reader:read_head().status)
  local self = setmetatable({ reader = reader, gateway = g, token = token }, profile)
  self.began = self:wait "profile began"
  return self
end

--- Waits for an event of this name, for which `fact` is true if it is given.
function profile:wait(name, fact, seconds)
  return self.reader:wait_event(function(event)
    return type(event.json) == "table" and event.json.event == name and (not fact or fact(event.json))
  end, seconds or 30).json
end

--- Runs `work` until at least `count` samples were taken.
function profile:gather(count, work)
  local taken = 0
  repeat
    work()
    for _, event in ipairs(self.reader:messages()) do
      if type(event) == "table" and event.event == "progress" then taken = math.max(taken, event.samples) end
    end
  until taken >= count
end

--- Ends the profile if it still runs, waits until its reader has everything, and returns its stacks and its last event.
function profile:stacks()
  profile.post(self.gateway, "/api/profile/end", self.token)
  return self:read()
end

function profile:read()
  local ended = self:wait("profile ended", nil, 60)
  local list = {}
  for _, event in ipairs(self.reader:messages()) do
    if type(event) == "table" and event.event == "stack" then list[#list + 1] = event end
  end
  self.reader:close()
  return list, ended
end

--- Of the samples in stacks for which `of` is true, the part (0 to 1) in stacks for which `wanted` is true, too.
function profile.part(stacks, wanted, of)
  local some, all = 0, 0
  for _, stack in ipairs(stacks) do
    if not of or of(stack) then
      all = all + stack.count
      if wanted(stack) then some = some + stack.count end
    end
  end
  assert.is_true(all > 0, "no sample: " .. cjson.encode(stacks))
  return some / all
end

--- Fails if a part differs from the expected one by more than so many points of a hundred.
function profile.near(expected, found, points)
  assert.is_true(math.abs(expected - found) <= points / 100, ("%.3f instead of %.3f"):format(found, expected))
end

--- Returns a function that is true of a stack if one of its frames matches `pattern`.
function profile.has(pattern)
  return function(stack)
    for _, frame in ipairs(stack.frames) do
      if frame:find(pattern) then return true end
    end
    return false
  end
end

--- Returns a function that is true of a stack if its innermost frame matches `pattern`.
function profile.ends(pattern)
  return function(stack) return stack.frames[#stack.frames]:find(pattern) ~= nil end
end

--- Returns a function that is true of a stack in this phase.
function profile.phase(name)
  return function(stack) return stack.frames[1] == name end
end

function profile:__close() self.reader:close() end

return profile
