-- A weather service for the example: GET /forecast?city=…&days=… as JSON, GET /observations?city=… as an event stream.
-- lua5.4 examples/weather/service.lua [PORT]      needs lua-luv and lua-cjson
local uv = require "luv"
local cjson = require "cjson"

local port = tonumber(arg[1] or 7380)
local skies, names = { "sun", "clouds", "rain", "snow" }, { "today", "tomorrow", "in two days", "in three days", "in four days", "in five days", "in six days" }
local cities = { Oslo = -3, Rome = 14, ["San Juan"] = 27 }

local function send(client, status, kind, body)
  client:write(("HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"):format(status, kind, #body, body))
end

local function forecast(client, low, days)
  local list = {}
  for i = 1, days do list[i] = { name = names[i], sky = skies[(low + i) % 4 + 1], low = low + i, high = low + i + 7 } end
  send(client, "200 OK", "application/json", cjson.encode { days = list })
end

local function observe(client, low)
  client:write "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
  local timer, n = uv.new_timer(), 0
  timer:start(0, 100, function()
    if client:is_closing() then return timer:close() end
    n = n + 1
    client:write(("id: %d\ndata: %d degrees\n\n"):format(n, low + n % 5))
  end)
end

local function answer(client, target)
  local query = {}
  for name, value in target:gmatch "[?&]([^=&]+)=([^&]*)" do
    query[name] = value:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
  end
  local low = cities[query.city]
  if not low then return send(client, "404 Not Found", "text/plain", "no such city\n") end
  if target:find "^/observations" then return observe(client, low) end
  forecast(client, low, math.min(tonumber(query.days) or 1, #names))
end

local server = uv.new_tcp()
assert(server:bind("127.0.0.1", port))
assert(server:listen(128, function()
  local client, rest = uv.new_tcp(), ""
  server:accept(client)
  client:read_start(function(_, bytes)
    if not bytes then return client:close() end
    rest = rest .. bytes
    for target in rest:gmatch "GET (%S+) HTTP/1%.1\r\n.-\r\n\r\n" do answer(client, target) end
    rest = rest:match "\r\n\r\n(.*)$" or rest
  end)
end))
print("weather on http://127.0.0.1:" .. port)
uv.run()
