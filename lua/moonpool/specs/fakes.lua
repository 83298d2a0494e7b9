-- What specs put in the place of the world: the time, other servers, the answers of a user. Required before anything keeps the
-- functions that stand here.

local host = require "moonpool.host"
local json = require "moonpool.json"

local fakes = { fake = {} }
local fake = fakes.fake

local at, answers
local real = { time = os.time, date = os.date, sleep = host.sleep }

-- -- time --------------------------------------------------------------------------------------------------------------

function os.time(when)                                                          -- luacheck: ignore 122
  if when ~= nil or not at then return real.time(when) end
  return math.floor(at)
end

function os.date(format, when)                                                  -- luacheck: ignore 122
  return real.date(format or "%c", when or (at and math.floor(at) or real.time()))
end

function host.sleep(seconds)
  if not at then return real.sleep(seconds) end
  real.sleep(0)
  at = at + seconds
end

--- fake.time(seconds): it is that time, in seconds since 1970; sleep() moves it on and takes none.
function fake.time(seconds)
  if type(seconds) ~= "number" then error("fake.time needs seconds since 1970, as os.time { year = 2026, month = 1, day = 1 } gives", 2) end
  at = seconds
end

-- -- other servers -----------------------------------------------------------------------------------------------------

local function whole(answer, given, plan)
  local head, body = {}, given
  local status = 200
  if type(given) == "number" then status, body = given, "" end
  if type(given) == "table" then
    status, body = given.status or 200, given.body or ""
    if given.json ~= nil then
      body = json.encode(given.json)
      head[1] = "content-type: application/json"
    end
    for name, value in pairs(given.headers or {}) do head[#head + 1] = name .. ": " .. tostring(value) end
  end
  return answer.whole(status, table.concat(head, "\n"), body, plan.url)
end

--- fake.http { ["GET https://…"] = answer }: a text, a status, { status, headers, body or json }, or a function(request) that gives one,
--- or nil and why. Without the method it is any. Gives the list of what is asked for from now on.
function fake.http(served)
  if type(served) ~= "table" then error("fake.http needs a table of answers by URL", 2) end
  local http, answer = require "moonpool.http", require "moonpool.http.answer"
  local asked = {}
  function http.stand_in(plan, stream)
    local request = { method = plan.method, url = plan.url, body = plan.body, headers = {} }
    for _, header in ipairs(plan.headers) do request.headers[header[1]:lower()] = header[2] end
    asked[#asked + 1] = request
    local place = plan.method .. " " .. plan.url
    if stream then return nil, place .. ": fake.http has no streams" end
    local given = served[place]
    if given == nil then given = served[plan.url] end
    if given == nil then return nil, place .. ": fake.http has no answer for it" end
    if type(given) == "function" then
      local made, why = given(request)
      if made == nil then return nil, why or place .. ": the fake gave nothing" end
      given = made
    end
    return whole(answer, given, plan)
  end
  return asked
end

-- -- a user ------------------------------------------------------------------------------------------------------------

--- fake.answers { key = value }: what call:elicit gets for that key; false declines, a key that is missing cancels. For call:sample a
--- text, for call:roots a list.
function fake.answers(given)
  if type(given) ~= "table" then error("fake.answers needs a table of answers by key", 2) end
  answers = given
end

local function raw(asked, given)
  if asked.method == "sampling/createMessage" then
    return type(given) == "table" and given or { role = "assistant", model = "fake", content = { type = "text", text = given } }
  elseif asked.method == "roots/list" then
    return { roots = given }
  elseif given == false then
    return { action = "decline" }
  end
  return { action = "accept", content = type(given) == "table" and given or nil }
end

--- Asks in the place of a client.
function fakes.ask(open, found, whys)
  for key, asked in pairs(open) do
    local given = answers and answers[key]
    if given == nil then
      whys[key] = "cancelled"
    else
      found[key], whys[key] = asked.read(raw(asked, given))
    end
  end
end

--- The world as it is.
function fakes.reset()
  at, answers = nil, nil
  require "moonpool.http".stand_in = nil
end

return fakes
