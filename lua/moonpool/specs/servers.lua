-- fake.http: fakes the answers of HTTP servers, complete ones and streams.

local host = require "moonpool.host"
local json = require "moonpool.json"

local servers = {}

local flows = setmetatable({}, { __mode = "k" })       -- handle of a faked stream -> { pieces, at }
local real = { read = host.http.read, close = host.http.close }

function host.http.read(handle, idle)
  local flow = flows[handle]
  if not flow then return real.read(handle, idle) end
  local piece = flow.pieces[flow.at]
  if piece == nil then return false end
  flow.at = flow.at + 1
  if type(piece) ~= "table" then return piece end
  if piece.after and idle and piece.after > idle then
    host.time.sleep(idle)
    return nil, "late", "", "late"
  end
  if piece.after then host.time.sleep(piece.after) end
  return piece[1] or ""
end

function host.http.close(handle)
  if not flows[handle] then return real.close(handle) end
  flows[handle].pieces = {}
end

-- Encodes an event of an event stream.
local function event_text(event)
  if type(event) == "string" then event = { data = event } end
  local lines = {}
  if event.event then lines[#lines + 1] = "event: " .. event.event end
  if event.id then lines[#lines + 1] = "id: " .. event.id end
  local data = type(event.data) == "table" and json.encode(event.data) or tostring(event.data or "")
  for line in (data .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = "data: " .. line end
  return table.concat(lines, "\n") .. "\n\n"
end

-- Makes a fake answer: status, header lines, and the body as a string or a list of pieces.
local function parts_of(given)
  if type(given) == "number" then return given, {}, "" end
  if type(given) ~= "table" then return 200, {}, given end
  local head, body = {}, given.body or ""
  if given.json ~= nil then
    body = json.encode(given.json)
    head[1] = "content-type: application/json"
  elseif given.events then
    body = {}
    for i, event in ipairs(given.events) do
      local after = type(event) == "table" and event.after
      body[i] = after and { event_text(event), after = after } or event_text(event)
    end
    head[1] = "content-type: text/event-stream"
  elseif given.chunks then
    body = { table.unpack(given.chunks) }
  end
  for name, value in pairs(given.headers or {}) do head[#head + 1] = name .. ": " .. tostring(value) end
  return given.status or 200, head, body
end

local function joined(body)
  if type(body) ~= "table" then return body end
  local texts = {}
  for i, piece in ipairs(body) do texts[i] = type(piece) == "table" and piece[1] or piece end
  return table.concat(texts)
end

--- Makes the function that replaces the network for `http`: `served` has the answers by "METHOD url" or url. Returns
--- the function and the list to which it appends requests.
function servers.new(served)
  local answer = require "moonpool.lib.http.answer"
  local asked = {}
  return function(plan, is_stream)
    local request = { method = plan.method, url = plan.url, body = plan.body, headers = {} }
    for _, header in ipairs(plan.headers) do request.headers[header[1]:lower()] = header[2] end
    asked[#asked + 1] = request
    local place, began = plan.method .. " " .. plan.url, host.time.now()
    local given = served[place]
    if given == nil then given = served[plan.url] end
    if given == nil then
      return nil, place .. ": fake.http has no answer for it: add [\"" .. place .. "\"] = … to its table"
    end
    if type(given) == "function" then
      local made, why = given(request)
      if made == nil then return nil, why or place .. ": the function in fake.http returned nothing" end
      given = made
    end
    if type(given) == "table" and given.after then host.time.sleep(math.min(given.after, plan.timeout)) end
    if host.time.now() - began >= plan.timeout then return nil, ("%s: no answer within %g s"):format(place, plan.timeout) end
    local status, head, body = parts_of(given)
    head = table.concat(head, "\n")
    if not is_stream then return answer.whole(status, head, joined(body), plan.url) end
    local handle = {}
    flows[handle] = { pieces = type(body) == "table" and body or { body ~= "" and body or nil }, at = 1 }
    return answer.stream(status, head, handle, plan.url, plan, function(what, hint)
      return place .. ": " .. what .. (hint and hint ~= "" and " (" .. hint .. ")" or "")
    end)
  end, asked
end

return servers
