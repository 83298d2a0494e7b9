-- B-67: a request target may be anything that a client can write. It is answered as an unknown path, or refused; its
-- bytes never reach another path, appear unescaped in the log, or show memory behind them.
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"

-- Each row: a target, and the HTTP statuses that may answer a GET of it; nil also allows the connection to end without
-- an answer.
local REFUSED = { 400, 403, 404, 405, 431 }

local targets = {
  "//", "///", "/..", "/../..", "/./", "/%", "/%%", "/%2", "/%zz", "/%00", "/%2e%2e/", "/mcp%", "/mcp%00", "/mcp/", "/mcp/..%2f", "/%2f%2fmcp",
  "/mcp;x", "/mcp#x", "/\\mcp", "/nowhere/../..", "/" .. ("../"):rep(1000), "/" .. ("a/"):rep(1000), "/" .. ("%2e%2e/"):rep(500),
  "*", "?", "#", ":", "@", "mcp", "mcp?session_id=1", "http", "http:", "http:/", "http://", "http://[", "http://[::1", "http://]", "http://?",
  "http:///", "http:////", "http://:", "http://:80", "http://@", "http://localhost:x/", "http://%", "https://", "ftp://localhost/mcp", "://localhost/mcp",
  "http://localhost:99999999999999999999/", "http://" .. ("a"):rep(4000) .. "/", "HTTP://LOCALHOST/..",
  "localhost:80", "/\127\128\255", "/\255\254", "/\xc0\xaf", "/\xed\xa0\x80", "\128", "/" .. ("\255"):rep(3000),
  "/sse//", "/sse%", "/messages", "/messages?session_id", "/messages?session_id=%", "/messages?session_id=\255", "/messages?session_id=" .. ("a"):rep(8000),
  "/messages?&&&&=&=", "/messages?session_id=a&session_id=b", "/" .. ("x"):rep(60000), "/" .. ("x"):rep(65536), "/" .. ("x"):rep(200000),
  "/mcp?" .. ("%"):rep(50000), "/?" .. ("&"):rep(50000), "/\1", "/\r", "/\0", "/\t/mcp", "",
}

local function is_one_of(list, value)
  for _, each in ipairs(list) do
    if each == value then return true end
  end
  return false
end

local function name_of(target)
  return ("%s (%d bytes)"):format(target:sub(1, 40):gsub("[^\32-\126]", "."), #target)
end

describe("a request for an odd target", function()
  local g

  setup(function()
    g = gateway.start { config = { limits = { request_time = "400ms" } } }
  end)

  teardown(function()
    g:stop()
  end)

  for _, method in ipairs { "GET", "POST", "DELETE", "HEAD", "OPTIONS" } do
    it("is refused for the method " .. method, function()
      for _, target in ipairs(targets) do
        for _, admin in ipairs { false, true } do
          local connection <close> = client.connect(g, { admin = admin })
          connection.asked = { method }
          connection:send_raw(("%s %s HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nContent-Type: application/json\r\nConnection: close\r\n%s\r\n")
            :format(method, target, method == "POST" and "Content-Length: 2\r\n\r\n{}" or ""))
          connection:wait_closed()
          local answer = connection.responses[1]
          if answer then
            local kind = answer.headers["content-type"] or ""
            -- a target that means "/" gets the dashboard
            local is_dashboard = admin and answer.status == 200 and kind:find "^text/html" ~= nil
            assert.is_true(is_dashboard or is_one_of(REFUSED, answer.status), ("%s is %d"):format(name_of(target), answer.status))
          end
        end
      end
      assert.is_true(g:is_alive())
    end)
  end

  it("writes only printable text to the log", function()
    for line in g:log():gmatch "[^\n]+" do
      assert.is_nil(line:find "[%z\1-\31\127]", line)
      assert.truthy(utf8.len(line), line)
    end
  end)

  it("leaves no connection and no call", function()
    assert.equal(0, g:status().counters.sessions_opened)
    assert.has_nothing_left(g)
  end)
end)

describe("an invalid request line", function()
  it("ends the connection", function()
    local g <close> = gateway.start { config = { limits = { request_time = "400ms" } } }
    for _, bytes in ipairs {
      "\r\n\r\n\r\n\r\n", "GET\r\n\r\n", "GET /mcp\r\n\r\n", "GET /mcp HTTP/1.1 x\r\n\r\n", "GET  /mcp  HTTP/1.1\r\n\r\n", "GET /mcp HTTP/9.9\r\n\r\n",
      "GET /mcp http/1.1\r\n\r\n", "\0\0\0\0\r\n\r\n", "\22\3\1\2\0\1\0\1\252\3\3", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
      ("x"):rep(100000), ("A"):rep(70000) .. " / HTTP/1.1\r\n\r\n", " GET /mcp HTTP/1.1\r\n\r\n", "{\"jsonrpc\":\"2.0\"}\r\n\r\n",
      "GET /mcp HTTP/1.1\r\n" .. ("A: b\r\n"):rep(200) .. "\r\n", "GET /mcp HTTP/1.1\r\nHost: localhost\r\n: x\r\n\r\n",
    } do
      local connection <close> = client.connect(g)
      connection.asked = { "GET" }
      connection:send_raw(bytes):wait_closed()
      local answer = connection.responses[1]
      assert.is_true(not answer or is_one_of(REFUSED, answer.status), name_of(bytes))
      assert.is_true(#connection.responses <= 1)
    end
    assert.equal(0, g:status().counters.sessions_opened)
    assert.has_nothing_left(g)
  end)
end)
