-- nginx and HAProxy in front of a gateway, and a proxy that lies in front of them: each client has its own address,
-- limits and sessions.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local haproxy = require "spec.helpers.haproxy"
local nginx = require "spec.helpers.nginx"
local whereabouts = require "spec.helpers.whereabouts"
local wire = require "spec.helpers.wire"

local scripts, request, text_of = whereabouts.scripts, whereabouts.request, whereabouts.text_of

-- What a client or a proxy before the proxy may write to be somebody else.
local forged = {
  {}, { ["X-Forwarded-For"] = "198.51.100.1" }, { ["X-Forwarded-For"] = "198.51.100.1, 127.0.0.1" }, { ["X-Forwarded-For"] = 'unknown, "' },
  { ["X-Real-IP"] = "198.51.100.1" }, { ["X-Forwarded-For"] = "127.0.0.3" }, { Forwarded = "for=198.51.100.1" },
}

local ssl = require "spec.helpers.certificates".here()
local files = { ["c.pem"] = ssl.certificate, ["k.pem"] = ssl.key }
local location = "    location / { proxy_pass http://127.0.0.1:GATEWAY; proxy_set_header Host $host; proxy_set_header Forwarded ''; "
  .. "proxy_set_header X-Forwarded-For %s; }"

local forwardfor = "  option forwardfor\n  http-request del-header forwarded"

-- Each way: which program, keys of the address, and how it is started; `tls`: the client speaks TLS to the gateway.
local ways = {
  ["nginx that appends to X-Forwarded-For"] = { nginx, {}, function(g) return nginx.start(g, location:format "$proxy_add_x_forwarded_for") end },
  ["nginx that writes X-Forwarded-For anew"] = { nginx, {}, function(g) return nginx.start(g, location:format "$remote_addr") end },
  ["HAProxy with forwardfor"] = { haproxy, {}, function(g) return haproxy.start(g, "http", "", forwardfor) end },
  ["HAProxy with forwardfor, over HTTP/2"] = { haproxy, { http2 = "on" }, function(g) return haproxy.start(g, "http", "proto h2", forwardfor) end },
  ["HAProxy with PROXY v1"] = { haproxy, { proxy_protocol = "on" }, function(g) return haproxy.start(g, "tcp", "send-proxy") end },
  ["HAProxy with PROXY v2"] = { haproxy, { proxy_protocol = "on" }, function(g) return haproxy.start(g, "tcp", "send-proxy-v2 check") end },
  ["HAProxy with PROXY v2 and its fields, before TLS"] = { haproxy, { proxy_protocol = "on", tls = { certificate = "c.pem", key = "k.pem" } },
    function(g) return haproxy.start(g, "tcp", "send-proxy-v2 proxy-v2-options unique-id,crc32c") end, tls = true },
}

for name, way in pairs(ways) do
  describe("behind " .. name, function()
    if not way[1].find() then
      pending(name:match "^%a+" .. " is not installed: apt-get install nginx haproxy")
      return
    end

    local function with(use)
      local listen = { address = "127.0.0.1:0", trusted_proxies = { "127.0.0.1" } }
      for key, value in pairs(way[2]) do listen[key] = value end
      local g <close> = gateway.start { scripts = scripts, files = files, config = { listen = { listen }, auth = "none", sessions = { per_principal = 2 } } }
      local front <close> = way[3](g)
      local function ask(from, what)
        local tls = way.tls and { name = "localhost", ca = g.dir .. "/c.pem" } or nil
        local c <close> = client.connect(front.port, { from = from, tls = tls })
        return c:request(what)
      end
      use(ask, g)
    end

    it("each client has its own address and limits, whatever it writes", function()
      with(function(ask)
        for _, headers in ipairs(forged) do
          for _, from in ipairs { "127.0.0.2", "127.0.0.3" } do
            assert.equal(from, text_of(ask(from, request("where", headers))))
          end
        end
        for _, from in ipairs { "127.0.0.2", "127.0.0.3" } do
          for i = 1, 4 do
            local text = text_of(ask(from, request("twice", { ["X-Forwarded-For"] = "198.51.100." .. i })))
            assert.equal(i <= 2, text == "ran", text)
          end
        end
      end)
    end)

    it("each client has its own sessions", function()
      with(function(ask)
        local function open(from, i)
          local headers = { Accept = wire.both, ["X-Forwarded-For"] = "198.51.100." .. i }
          return ask(from, { method = "POST", path = "/mcp", headers = headers, body = wire.initialize_message "2025-11-25" }).status
        end
        for _, from in ipairs { "127.0.0.2", "127.0.0.3" } do
          assert.same({ 200, 200, 429 }, { open(from, 1), open(from, 2), open(from, 3) })
        end
      end)
    end)
  end)
end
