-- POST /api/profile of a gateway's admin listener: begins a profile, and reads what it found.
local assert = require "luassert"
local cjson = require "cjson.safe"
local client = require "spec.helpers.client"

local profile = {}
profile.__index = profile

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
